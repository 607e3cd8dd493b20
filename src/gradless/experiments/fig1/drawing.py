"""The picture of Fig. 1, from its tables."""

from pathlib import Path
from typing import Any

import numpy as np

from gradless.experiments.curves import NAMES, TABLE, draw_curve, finish_panels, name_curves
from gradless.experiments.tables import column, read_table, table_so_far
from gradless.plots import COLOURS, DASHES, new_figure, save, say_not_run


def draw(out: Path) -> list[Path]:
    """Draw the paper's panels (a) and (b), and the runs of Sec. II F as (c); what has not been run stays empty."""
    curves = read_table(out / TABLE)
    figure, (sweep_axis, loss_axis, accuracy_axis, runs_axis) = new_figure(4)
    _draw_sweep(sweep_axis, table_so_far(out / "sweep.csv"))
    _draw_runs(runs_axis, table_so_far(out / "variation.csv"))
    for name in ("gd", "mc"):
        draw_curve(loss_axis, curves, name, "epoch", "loss", COLOURS[name], DASHES[name], NAMES[name])
        draw_curve(accuracy_axis, curves, name, "epoch", "accuracy", COLOURS[name], DASHES[name], NAMES[name])
    finish_panels(loss_axis, accuracy_axis, "epoch n", "(b)")
    return [save(figure, out / "fig1")]


def _draw_sweep(axis: Any, rows: list[dict[str, Any]]) -> None:
    marks = {"mc": "o", "gd": "s"}
    for name, label in (("mc", "MC, σ"), ("gd", "GD, α")):
        mine = [row for row in rows if row["algorithm"] == name]
        if mine:
            style = {"color": COLOURS[name], "linestyle": DASHES[name], "marker": marks[name], "markersize": 4}
            axis.plot(column(mine, "setting"), 100 * column(mine, "accuracy"), label=label, **style)
    epochs = f" after {max(column(rows, 'epochs')):,.0f} epochs" if rows else ""
    axis.set(xlabel="σ (MC) or α (GD)", ylabel="test accuracy C (%)", xscale="log", title=f"(a) C{epochs}")
    axis.set_ylim(0, 100)
    name_curves(axis)


def _draw_runs(axis: Any, rows: list[dict[str, Any]]) -> None:
    axis.set(xlabel="run, by rank", ylabel="test accuracy C (%)", title="(c) runs of MC")
    if not rows:
        say_not_run(axis)
        return
    values = 100 * np.sort(column(rows, "accuracy"))
    axis.plot(np.arange(1, len(values) + 1), values, "o", color=COLOURS["mc"], markersize=4)
    axis.axhline(values.mean(), color="#555555", linewidth=0.8)
    axis.set_xlim(0.5, len(values) + 0.5)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_title(f"(c) {len(values)} run{'s' * (len(values) > 1)} of MC")
    axis.grid(alpha=0.25, linewidth=0.5)
