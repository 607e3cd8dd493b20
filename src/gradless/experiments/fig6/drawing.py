"""The picture of Fig. 6, from its tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gradless.experiments.fig6.settings import DEEPER, KINDS, LABELS, PLATEAU, TRAINED
from gradless.experiments.fig6.survival import end_of, induction_times, survival
from gradless.experiments.tables import column, read_table, table_so_far
from gradless.plots import new_figure, save

COLOURS = {"GD": "#7f7f7f", "Adam": "#4aa3df", "aMC off": "#2e8b57", "aMC on": "#1b6b3f"}
DASHES = {"GD": ":", "Adam": "-.", "aMC off": "--", "aMC on": "-"}
WIDTHS = {"GD": 3.0, "Adam": 2.2, "aMC off": 1.6, "aMC on": 1.6}  # to be seen where curves coincide


def draw(out: Path) -> list[Path]:
    """Draw (a) the best runs, (b) net outputs and (c) single runs and their survival curves."""
    rows, curves = read_table(out / "runs.csv"), read_table(out / "curves.csv")
    outputs = table_so_far(out / "outputs.csv")
    depths = sorted(set(column(curves, "depth")))
    deeper = [depth for depth in depths if depth in DEEPER]
    panels: list[Any] = [("a", depth) for depth in depths] + [("legend", 0)]
    panels += [None] * (-len(panels) % 4)
    panels += [("b", depth) for depth in sorted(set(column(outputs, "depth")))] if outputs else []
    if deeper:
        panels += [("survival", "Adam"), ("survival", "aMC on")]
        panels += [None] * (-len(panels) % 4)
        panels += [("c", depth) for depth in deeper]
    longest = 1.3 * column(curves, "step").max()
    figure, axes = new_figure(len(panels), num_columns=4)
    figure.set_size_inches(12, 2.5 * -(-len(panels) // 4))
    for axis, panel in zip(axes, panels, strict=True):
        if panel is None:
            axis.set_axis_off()
            continue
        name, value = panel
        if name in ("a", "c"):
            chosen = [row for row in curves if row["depth"] == value]
            _draw_losses(axis, chosen, only_best=name == "a")
            axis.set_xlim(1, longest)
            axis.set_title(f"({name})  d = {value:g}", loc="left", fontsize=10)
        elif name == "b":
            _draw_outputs(axis, [row for row in outputs if row["depth"] == value])
            axis.set_title(f"(b)  d = {value:g}", loc="left", fontsize=10)
        elif name == "survival":
            _draw_survival(axis, [row for row in rows if not row["help"]], deeper, value)
            axis.set_xlim(1, longest)
        else:
            _draw_legend(axis)
    return [save(figure, out / "fig6")]


def _draw_losses(axis: Any, curves: list[dict[str, Any]], only_best: bool) -> None:
    axis.axhline(PLATEAU, color="#bbbbbb", linewidth=0.8, zorder=0)
    axis.axhline(TRAINED, color="#bbbbbb", linewidth=0.8, linestyle=(0, (1, 3)), zorder=0)
    single: dict[Any, list[dict[str, Any]]] = {}
    for row in curves:
        if row["is_best"] if only_best else row["kind"] in ("Adam", "aMC on"):
            single.setdefault((list(KINDS).index(row["kind"]), row["init"], row["block"], row["chain"]), []).append(row)
    for _, mine in sorted(single.items()):
        kind, last = mine[0]["kind"], mine[-1]
        width = WIDTHS[kind] if only_best else 0.9
        axis.plot(column(mine, "step"), column(mine, "loss"), DASHES[kind], color=COLOURS[kind], linewidth=width)
        if last["loss"] < TRAINED:  # the run ends here because it is trained
            axis.plot(last["step"], last["loss"], "o", color=COLOURS[kind], markersize=3)
    axis.set(xlabel="epoch n", ylabel="loss U", xscale="log", yscale="log")
    low = min(0.008, 0.8 * column(curves, "loss").min())
    ticks = [tick for tick in (1e-5, 1e-4, 1e-3, 0.01, 0.05) if tick > low]
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ylim(low, 0.08)
    axis.yaxis.set_minor_formatter("")


def _draw_outputs(axis: Any, outputs: list[dict[str, Any]]) -> None:
    for kind in KINDS:
        mine = [row for row in outputs if row["kind"] == kind]
        if mine:
            axis.plot(column(mine, "theta"), column(mine, "target"), color="black", linewidth=0.8)
            axis.plot(
                column(mine, "theta"), column(mine, "output"), DASHES[kind], color=COLOURS[kind], linewidth=WIDTHS[kind]
            )
    axis.set(xlabel="θ", ylabel="net output")


def _draw_survival(axis: Any, rows: list[dict[str, Any]], depths: Sequence[float], kind: str) -> None:
    shades = np.linspace(0.75, 0.0, len(depths))
    for depth, shade, dash in zip(depths, shades, ("-", "--", "-.", ":"), strict=False):
        mine = [row for row in rows if (row["kind"], row["depth"]) == (kind, depth)]
        if not mine:
            continue
        times, seen = induction_times(mine, end_of(rows))
        when, shares = survival(times, seen)
        waiting = np.concatenate([[1.0], shares])
        axis.step(
            [1.0, *when, times.max()],
            [*waiting, waiting[-1]],
            dash,
            where="post",
            color=str(shade),
            label=f"d = {depth:g}",
        )
    axis.set(xlabel="epoch n", ylabel="share of untrained runs", xscale="log", ylim=(-0.03, 1.05))
    axis.set_title(f"(c)  {LABELS[kind]}", loc="left", fontsize=10)
    if axis.lines:
        axis.legend(frameon=False, fontsize=8)


def _draw_legend(axis: Any) -> None:
    for kind, label in LABELS.items():
        axis.plot([], [], DASHES[kind], color=COLOURS[kind], label=label, linewidth=WIDTHS[kind])
    axis.plot([], [], color="black", linewidth=0.8, label="target function")
    axis.plot([], [], color="#bbbbbb", linewidth=0.8, label="best constant, U = 3/64")
    axis.plot([], [], color="#bbbbbb", linewidth=0.8, linestyle=(0, (1, 3)), label="trained, U = 0.01")
    axis.legend(frameon=False, loc="center", fontsize=9)
    axis.set_axis_off()
