"""The picture of Fig. 4, from its tables."""

from pathlib import Path
from typing import Any

from gradless.experiments.fig4.medians import by_algorithm
from gradless.experiments.fig4.settings import MINUS, NAMES, PLUS, SINE, ZERO
from gradless.experiments.tables import column, read_table, table_so_far
from gradless.plots import COLOURS, new_figure, save, say_not_run

LATE = 10_000  # steps, from where on U is shown larger
STYLES = {  # colour, dash, label
    "gd": (COLOURS["gd"], ":", "GD"),
    "adam": (COLOURS["adam"], "-.", "Adam"),
    PLUS: ("#0b3d1e", "-", "ε = 0.005"),
    ZERO: ("#2e8b57", "--", "ε = 0"),
    MINUS: ("#8fce9f", ":", "ε = −0.005"),
}


def draw(out: Path) -> list[Path]:
    """Draw (a) U and (b) U' against n, gradient methods at left and aMC at right, and (c) outputs of aMC's nets."""
    of, outputs = by_algorithm(read_table(out / "training.csv")), table_so_far(out / "outputs.csv")
    figure, axes = new_figure(5, num_columns=3)
    groups = (("gd", "adam"), tuple(NAMES.values()))
    panels = (
        ("loss", "(a) loss U", "logarithm alone", axes[0:2]),
        ("pseudo_loss", "(b) pseudo-loss U′", "sine learnt", axes[3:5]),
    )
    for quantity, label, meaning, places in panels:
        for axis, names in zip(places, groups, strict=True):
            there = [name for name in names if name in of and of[name][-1]["step"] > 0]
            for name in there:
                _draw_training(axis, of[name], quantity, STYLES[name])
            if not there:
                axis.set(xlabel="step n", ylabel=label)
                say_not_run(axis)
                continue
            axis.axhline(SINE, color="black", linewidth=0.5)
            axis.text(0.02, SINE, meaning, fontsize=7, ha="left", va="bottom", transform=axis.get_yaxis_transform())
            axis.set(xlabel="step n", ylabel=label, xscale="log", yscale="log")
            axis.grid(alpha=0.2, linewidth=0.5)
            axis.legend(frameon=False, fontsize=8, loc="upper right")
    amc = [name for name in NAMES.values() if name in of and of[name][-1]["step"] >= LATE]
    if amc:
        _draw_end(axes[1], {name: of[name] for name in amc})
    _draw_outputs(axes[2], outputs)
    return [save(figure, out / "fig4")]


def _draw_training(axis: Any, rows: list[dict[str, Any]], quantity: str, style: tuple[str, str, str]) -> None:
    rows = [row for row in rows if row["step"] > 0]
    colour, dash, label = style
    step = column(rows, "step")
    axis.fill_between(
        step, column(rows, f"{quantity}_low"), column(rows, f"{quantity}_high"), color=colour, alpha=0.15, linewidth=0
    )
    axis.plot(step, column(rows, quantity), dash, color=colour, label=label, linewidth=1.4)


def _draw_end(axis: Any, of: dict[str, list[dict[str, Any]]]) -> None:
    """Draw the end of panel (a) larger: what the epsilons differ by is small beside the fall before."""
    inset = axis.inset_axes((0.53, 0.3, 0.45, 0.32))
    for name, rows in of.items():
        _draw_training(inset, [row for row in rows if row["step"] >= LATE], "loss", STYLES[name])
    inset.axhline(SINE, color="black", linewidth=0.5)
    inset.set(xscale="log", ylim=(0.92 * SINE, 1.08 * SINE))
    inset.tick_params(labelsize=6)


def _draw_outputs(axis: Any, rows: list[dict[str, Any]]) -> None:
    axis.set(xlabel="θ", ylabel="(c) output")
    if not rows:
        say_not_run(axis)
        return
    first = [row for row in rows if row["algorithm"] == PLUS]
    theta = column(first, "theta")
    axis.plot(theta, column(first, "target"), color="black", linewidth=2.0, label="target")
    axis.plot(theta, column(first, "log_term"), color="black", linewidth=0.7, label="its logarithm")
    for name in NAMES.values():
        mine = [row for row in rows if row["algorithm"] == name]
        colour, dash, label = STYLES[name]
        axis.plot(theta, column(mine, "output"), dash, color=colour, label=label, linewidth=1.2)
    axis.set_title(f"step {first[0]['step']:,.0f}", fontsize=9)
    axis.legend(frameon=False, fontsize=8)
