"""Fig. 2: the acceptance rate falls with the loss, but slowly with the size of the net. Paper: Sec. II B."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradless.experiments.claims import Verdict, judge, not_run
from gradless.experiments.tables import column, read_table, table_so_far, write_table
from gradless.experiments.workshop import Run, Workshop
from gradless.kernels import AMC, Metropolis
from gradless.models import MLP
from gradless.plots import new_figure, save, say_not_run
from gradless.types import Algorithm

TITLE = "Acceptance against loss and size of the net"
ALGORITHMS: dict[str, Algorithm] = {
    "mc": Metropolis(sigma=1e-3),
    "amc": AMC(sigma=1e-2, epsilon=1e-2, n_s=100, signal_norm=True),
}
PANELS = {"a": ("mc", "width"), "b": ("mc", "depth"), "c": ("amc", "width"), "d": ("amc", "depth")}
DEPTH, WIDTH = 2, 25  # of the nets whose width, or depth, varies
INIT = "pytorch"
# Wider nets would take hours in float64. Float32 rounds U far more finely than a move changes it.
MOST_IN_FLOAT64 = 100  # neurons in a layer
CUTS = (0.1, 0.03, 0.01, 0.003, 0.001)  # U_0
HALF_WINDOW = 0.1  # decades of U to either side over which the acceptance is counted
SHADES = {  # dark is small; readable in grey
    "mc": ("#0b2350", "#1f4e9c", "#3f74c8", "#6a9be0", "#8fb4ea"),
    "amc": ("#0b3d1e", "#23754a", "#3f9a68", "#6cb98b", "#93cfab"),
}
DASHES = ("-", "--", "-.", ":", (0, (1, 3)))
MARKERS = "os^Dv"


@dataclass(frozen=True)
class Scale:
    """What one scale runs."""

    widths: tuple[int, ...]
    depths: tuple[int, ...]
    runs: int
    steps: dict[str, int]  # at most; a run ends once it is below its lowest cut
    lowest: dict[str, float]  # cut that is taken
    budget: str  # of time, for people


SCALES = {
    "smoke": Scale(
        (6, 25), (2,), runs=2, steps={"mc": 2_000, "amc": 600}, lowest={"mc": 0.01, "amc": 0.01}, budget="10 s"
    ),
    "quick": Scale(
        (10, 32, 100),
        (2, 4, 6, 10),
        runs=3,
        steps={"mc": 40_000, "amc": 20_000},
        lowest={"mc": 0.01, "amc": 0.001},
        budget="4 min",
    ),
    "paper": Scale(
        (10, 32, 100, 316, 1000),
        tuple(range(2, 11)),
        runs=5,
        steps={"mc": 200_000, "amc": 100_000},
        lowest={"mc": 0.003, "amc": 0.001},
        budget="1.5 hours",
    ),
}


def run(out: Path, scale: Scale, workshop: Workshop) -> None:
    """Train nets of many sizes, but for those in the tables, and count how often moves are accepted at each loss."""
    cuts = table_so_far(out / "cuts.csv", "panel", "width", "depth", "parameters")  # written last
    over = {_net(row) for row in cuts}
    curves = [row for row in table_so_far(out / "curves.csv") if _net(row) in over]
    for panel, (name, varied) in PANELS.items():
        for width, depth in _nets(scale, varied):
            if (panel, width, depth) in over:
                continue
            trained = workshop.train(
                f"{name}-width-{width}-depth-{depth}",
                "sine",
                ALGORITHMS[name],
                options={"width": width, "depth": depth, "init": INIT},
                steps=scale.steps[name],
                chains=scale.runs,
                precision="float64" if width <= MOST_IN_FLOAT64 else "float32",
                record_every=100 if name == "mc" else 20,
                target_loss=scale.lowest[name] * 10**-HALF_WINDOW,
            )
            net = {"panel": panel, "width": width, "depth": depth, "parameters": _num_parameters(width, depth)}
            grid = 10 ** np.arange(-0.35, np.log10(scale.lowest[name]) - HALF_WINDOW / 2, -HALF_WINDOW / 2)
            curves += [net | row for row in _acceptance(trained, grid)]
            cuts += [net | row for row in _acceptance(trained, np.asarray(CUTS))]
            # What is there can be drawn before the last net has been trained.
            write_table(out / "curves.csv", sorted(curves, key=_net))
            write_table(out / "cuts.csv", sorted(cuts, key=_net))


def _net(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["panel"], row["width"], row["depth"]


def _nets(scale: Scale, varied: str) -> Iterator[tuple[int, int]]:
    if varied == "width":
        yield from ((width, DEPTH) for width in scale.widths)
    else:
        yield from ((WIDTH, depth) for depth in scale.depths)


def _num_parameters(width: int, depth: int) -> int:
    return MLP((1, *[width] * depth, 1)).num_parameters


def _acceptance(run: Run, losses: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yield A at each loss: accepted over proposed moves while U was within a tenth of a decade, mean over the runs.

    A record tells the moves accepted since the one before; its loss is the geometric mean of the two ends.
    """
    steps = np.diff(run.table["step"])[:, None]
    loss, acceptance = (run.table[name].reshape(len(steps) + 1, -1) for name in ("loss", "acceptance"))
    with np.errstate(invalid="ignore"):
        middle = (np.log10(loss[1:]) + np.log10(loss[:-1])) / 2
    accepted = acceptance[1:] * steps
    for value in losses:
        is_near = np.abs(middle - np.log10(value)) <= HALF_WINDOW  # False for a run that has ended
        proposed = np.where(is_near, steps, 0).sum(axis=0)
        counted = np.where(is_near, accepted, 0).sum(axis=0)
        rates = counted[proposed > 0] / proposed[proposed > 0]
        known = len(rates) > 0
        yield {
            "loss": float(value),
            "acceptance": float(rates.mean()) if known else float("nan"),
            "spread": float(rates.std()) if known else float("nan"),
            "runs": len(rates),
            "moves": int(proposed.sum()),
        }


def draw(out: Path) -> list[Path]:
    """Draw for each panel the loss against acceptance (left), and acceptance at fixed loss against size (right)."""
    curves, cuts = read_table(out / "curves.csv"), read_table(out / "cuts.csv")
    figure, axes = new_figure(8, num_columns=4)
    for number, (panel, (name, varied)) in enumerate(PANELS.items()):
        left, right = axes[2 * number : 2 * number + 2]
        left.set_title(f"({panel}) {'MC' if name == 'mc' else 'aMC'}, {varied} varies", loc="left", fontsize=10)
        if all(row["panel"] != panel for row in cuts):
            say_not_run(left)
            right.set_axis_off()
            continue
        _draw_curves(left, [row for row in curves if row["panel"] == panel], varied, SHADES[name])
        _draw_cuts(right, [row for row in cuts if row["panel"] == panel], SHADES[name])
        if name == "mc":
            _draw_guide(right, [row for row in cuts if row["panel"] == panel])
    return [save(figure, out / "fig2")]


def _draw_curves(axis: Any, rows: list[dict[str, Any]], varied: str, shades: tuple[str, ...]) -> None:
    sizes = sorted({row[varied] for row in rows})
    shown = [sizes[place] for place in sorted({0, len(sizes) // 2, len(sizes) - 1})]  # the paper shows three
    for size, shade, dash in zip(shown, shades[::2], DASHES, strict=False):
        mine = [row for row in rows if row[varied] == size]
        axis.plot(
            column(mine, "acceptance"),
            column(mine, "loss"),
            linestyle=dash,
            color=shade,
            label=f"{varied} {size:g}, N = {mine[0]['parameters']:,.0f}",
        )
    for cut in CUTS:
        axis.axhline(cut, color="black", linewidth=0.4, alpha=0.5)
    axis.set(xlabel="acceptance rate A", ylabel="loss U", xscale="log", yscale="log", xlim=(2e-3, 1))
    axis.grid(alpha=0.2, linewidth=0.5)
    axis.legend(frameon=False, fontsize=7, loc="upper left")


def _draw_cuts(axis: Any, rows: list[dict[str, Any]], shades: tuple[str, ...]) -> None:
    for cut, shade, marker in zip(CUTS, shades, MARKERS, strict=False):
        mine = [row for row in rows if row["loss"] == cut and row["acceptance"] > 0]
        if not mine:
            continue
        axis.errorbar(
            column(mine, "parameters"),
            column(mine, "acceptance"),
            column(mine, "spread"),
            marker=marker,
            markersize=5,
            linewidth=1,
            color=shade,
            label=f"U₀ = {cut:g}",
        )
    sizes = column(rows, "parameters")
    axis.set(xlabel="number of parameters N", ylabel="A(U₀)", xscale="log", yscale="log", ylim=(1e-3, 1))
    axis.set_xlim(0.6 * min(sizes.min(), 1_000), 1.7 * max(sizes.max(), 10_000))  # two ticks at least
    axis.tick_params(axis="x", which="minor", labelbottom=False)
    axis.grid(alpha=0.2, linewidth=0.5)
    if axis.get_legend_handles_labels()[0]:
        # Above the panel: the guide and long error bars would cross it within.
        axis.legend(
            fontsize=7,
            ncols=3,
            loc="lower left",
            bbox_to_anchor=(0, 1),
            frameon=False,
            borderaxespad=0.2,
            columnspacing=1.0,
            handletextpad=0.4,
        )


def _draw_guide(axis: Any, rows: list[dict[str, Any]]) -> None:
    """Draw the paper's guide to the eye, 1/N, from the first point of the lowest cut."""
    sizes = np.unique(column(rows, "parameters"))
    start = next((row["acceptance"] for row in reversed(rows[: len(CUTS)]) if row["acceptance"] > 0), 0.1)
    axis.plot(sizes, start * sizes[0] / sizes, ":", color="black", linewidth=1)
    axis.annotate("1/N", (sizes[0] * 2, start / 2), xytext=(-18, -10), textcoords="offset points", fontsize=8)


def check(out: Path, scale: str) -> list[Verdict]:
    """MC's acceptance falls with N slower than 1/N; aMC's hardly depends on loss or N."""
    rows = read_table(out / "cuts.csv")
    judges = {"mc": _falls_slowly, "amc": _is_constant}
    return [
        judges[name]([row for row in rows if row["panel"] == panel], panel, scale)
        for panel, (name, _) in PANELS.items()
    ]


DIFFERS = (
    f"initialisation not given in the paper: {INIT}'s (from N(0, sigma^2) deep nets stay at the zero output, "
    "U = 0.4995); nor U_0: those shown, to the lowest that the scale reaches; "
    f"nets wider than {MOST_IN_FLOAT64} in float32"
)


def _rates(rows: list[dict[str, Any]], panel: str, scale: str) -> dict[float, np.ndarray]:
    """Return A of the nets that are there, at each loss that this scale asks for; NaN where a net has not been."""
    cuts = [cut for cut in CUTS if cut >= SCALES[scale].lowest[PANELS[panel][0]]]
    return {cut: column([row for row in rows if row["loss"] == cut], "acceptance") for cut in cuts}


def _is_whole(rows: list[dict[str, Any]], panel: str, scale: str) -> bool:
    """Return whether every net of the scale is there, and has been at every loss that the scale asks for."""
    there = {(row["width"], row["depth"]) for row in rows}
    are_known = all(np.all(np.isfinite(rates)) for rates in _rates(rows, panel, scale).values())
    return there >= set(_nets(SCALES[scale], PANELS[panel][1])) and are_known


def _falls_slowly(rows: list[dict[str, Any]], panel: str, scale: str) -> Verdict:
    says = f"MC's acceptance at fixed loss falls with N ({PANELS[panel][1]}), slower than 1/N"
    rule = "slope of log A against log N, at the lowest loss, in (-1, 0), two standard errors from either end"
    if not rows:
        return not_run(f"F2{panel}", says, ["all nets"], rule)
    slopes = {cut: _slope([row for row in rows if row["loss"] == cut]) for cut in _rates(rows, panel, scale)}
    slope, error = slopes[min(slopes)]
    known = {cut: slope_and_error for cut, slope_and_error in slopes.items() if np.isfinite(slope_and_error[0])}
    words = ", ".join(f"{value:+.3f} ± {e:.3f} at U = {cut:g}" for cut, (value, e) in known.items()) or "unknown"
    sizes = column(rows, "parameters")
    is_clear = min(abs(slope), abs(slope + 1)) > 2 * error
    return judge(
        f"F2{panel}",
        says,
        f"slope {words}; N = {sizes.min():,.0f} ... {sizes.max():,.0f}",
        rule,
        holds=-1 < slope < 0,
        # The claim is about four decades of N, of which the smaller scales have two.
        is_decided=scale == "paper" and _is_whole(rows, panel, scale) and is_clear,
        differs=DIFFERS,
    )


def _slope(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """Return the slope of log A against log N, and its standard error.

    That is the larger of two: from the spread of each net's runs, which one run does not show, and from how far the
    nets lie off the line. Where A is unknown or zero for a net, or there is but one, the slope is not a number.
    """
    size, rate = np.log(column(rows, "parameters")), column(rows, "acceptance")
    if len(rows) < 2 or not np.all(rate > 0):
        return float("nan"), float("nan")
    away, squares = size - size.mean(), np.sum((size - size.mean()) ** 2)
    slope, runs = float(away @ np.log(rate) / squares), column(rows, "runs")
    if runs.min() < 2:
        return slope, float("inf")
    errors = column(rows, "spread") / rate / np.sqrt(runs - 1)
    of_runs = np.sqrt(np.sum((away * errors) ** 2)) / squares
    off_line = np.log(rate) - np.log(rate).mean() - slope * away
    of_nets = np.sqrt(np.sum(off_line**2) / max(len(rows) - 2, 1) / squares)
    return slope, float(max(of_runs, of_nets))


def _is_constant(rows: list[dict[str, Any]], panel: str, scale: str) -> Verdict:
    says = f"aMC's acceptance is large and nearly constant in loss and N ({PANELS[panel][1]})"
    rule = "max/min of A over U_0 and N below 3"
    if not rows:
        return not_run(f"F2{panel}", says, ["all nets"], rule)
    rates = {cut: at[np.isfinite(at)] for cut, at in _rates(rows, panel, scale).items() if np.any(np.isfinite(at))}
    ratio = _ratio(list(rates.values()))
    each = ", ".join(f"{values.min():.3f} to {values.max():.3f} at U = {cut:g}" for cut, values in rates.items())
    is_refuted = ratio >= 3  # which more nets cannot change
    return judge(
        f"F2{panel}",
        says,
        f"max/min {ratio:.3g}; A {each or 'unknown'}",
        rule,
        holds=ratio < 3,
        is_decided=scale != "smoke" and (is_refuted or _is_whole(rows, panel, scale)),
        differs=DIFFERS,
    )


def _ratio(rates: list[np.ndarray]) -> float:
    """Return the largest over the smallest acceptance; a net that accepts nothing makes it infinite."""
    if not rates:
        return float("nan")
    every = np.concatenate(rates)
    return float(every.max() / every.min()) if every.min() > 0 else float("inf")
