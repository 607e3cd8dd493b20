"""Fig. 1: Metropolis Monte Carlo and gradient descent train a net to read MNIST. Paper: Secs. II A and II F."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gradless.experiments.claims import Verdict, judge, not_run
from gradless.experiments.curves import (
    NAMES,
    TABLE,
    at_epoch,
    draw_curve,
    finish_panels,
    lacking,
    last,
    name_curves,
    records,
    train_curve,
)
from gradless.experiments.tables import column, read_table, table_so_far, write_table
from gradless.experiments.workshop import Run, Workshop
from gradless.kernels import GradientDescent, Metropolis
from gradless.plots import COLOURS, DASHES, new_figure, save, say_not_run
from gradless.types import Algorithm

TITLE = "MNIST: zero-temperature Monte Carlo trains a net as gradient descent does"
MIN_RUNS = 10  # below this the range of C says little
DIFFERS = (
    "U is summed over the 10 outputs, which fixes what a learning rate means; GD starts as PyTorch does, the paper "
    "gives the start of MC alone"
)
DECADES = "the plateau is measured in decades of the setting"
# From N(0, 1e-4) GD with this learning rate would stay at U = 0.9 for thousands of epochs.
INIT = {"gd": "pytorch", "mc": "gaussian", "amc": "gaussian"}


@dataclass(frozen=True)
class Scale:
    """What one scale runs."""

    problem: str
    epochs: int  # of panel (b) and of the runs of (c)
    sweep_epochs: int  # of panel (a)
    sigmas: tuple[float, ...]
    learning_rates: tuple[float, ...]
    sigma: float  # of panel (b), MC
    learning_rate: float  # of panel (b), GD
    together: int  # points of panel (a) that go side by side
    runs: int  # of panel (c)
    budget: str  # of time, for people


SCALES = {
    "smoke": Scale("digits", 200, 100, (1e-3, 1e-2, 1e-1), (1e-2, 1.0, 100.0), 1e-2, 1.0, 3, 2, "10 s"),
    "quick": Scale(
        problem="mnist",
        epochs=1_000,
        sweep_epochs=300,
        sigmas=(2e-4, 2e-3, 1e-2, 3e-2, 1e-1, 3e-1),
        learning_rates=(1e-2, 4.5e-2, 0.45, 1.5, 4.5, 45.0),
        sigma=2e-3,
        learning_rate=4.5e-2,
        together=6,
        runs=2,
        budget="5 min",
    ),
    "paper": Scale(
        problem="mnist",
        epochs=100_000,
        sweep_epochs=100_000,
        sigmas=(1e-4, 3e-4, 1e-3, 2e-3, 5e-3, 2e-2, 1e-1),  # wide enough for both ends of the plateau
        learning_rates=(4.5e-3, 4.5e-2, 0.45, 4.5, 45.0),
        sigma=2e-3,
        learning_rate=4.5e-2,
        together=2,  # takes less than two one after the other, though one such net occupies both cores
        runs=30,
        budget="16 h: (b) 1.2 h, (a) 6 h, (c) 9 h",
    ),
}


def run(out: Path, scale: Scale, workshop: Workshop) -> None:
    """Train by MC and GD, but for what the tables have: panel (b), then the sweeps of (a), then the runs of (c)."""
    train_curves(out, scale, workshop)
    for name, settings in groups(scale):
        train_points(out, scale, workshop, name, settings)
    for seed in range(1, scale.runs // 2 + 1):  # pairs, so that many hours of runs can be read before the last one
        rows = table_so_far(out / "variation.csv", "seed", "chain", "epochs", "accuracy")
        if any(row["seed"] == seed for row in rows):
            continue
        plan = records(scale.epochs, number=20)
        mc = Metropolis(sigma=scale.sigma)
        pair = workshop.train(f"mc-seed-{seed}", scale.problem, mc, chains=2, seed=seed, **plan)
        for place, (accuracy, steps) in enumerate(_ends(pair)):
            rows.append({"seed": seed, "chain": place, "epochs": steps, "accuracy": accuracy})
        write_table(out / "variation.csv", rows)


def train_curves(out: Path, scale: Scale, workshop: Workshop) -> None:
    """Train by MC and GD on the full batch, once for Figs. 1 and 7."""
    algorithms: dict[str, Algorithm] = {
        "mc": Metropolis(sigma=scale.sigma),
        "gd": GradientDescent(learning_rate=scale.learning_rate),
    }
    siblings = [workshop.common / name for name in ("F1", "F7")] if workshop.common else []
    for name, algorithm in algorithms.items():
        plan = records(scale.epochs) | {"options": {"init": INIT[name]}, "is_shared": True, "siblings": siblings}
        train_curve(out, workshop, name, f"mnist-{name}", scale.problem, algorithm, **plan)


def groups(scale: Scale) -> list[tuple[str, tuple[float, ...]]]:
    """Return the points of the sweeps that are run side by side, those nearest to the settings of panel (b) first.

    Points that panel (b) has, which are not run again, come before all; then MC's, then GD's, which take longer.
    """
    shown, others = [], []
    for name, (own, settings) in _sweeps(scale).items():
        near = sorted(settings, key=partial(_distance, own))
        if near[0] == own and scale.epochs == scale.sweep_epochs:
            shown.append((name, (near.pop(0),)))
        others += [(name, tuple(near[i : i + scale.together])) for i in range(0, len(near), scale.together)]
    return shown + others


def _sweeps(scale: Scale) -> dict[str, tuple[float, tuple[float, ...]]]:
    """Return for each algorithm its setting in panel (b), and those of panel (a)."""
    return {"mc": (scale.sigma, scale.sigmas), "gd": (scale.learning_rate, scale.learning_rates)}


def _distance(one: float, other: float) -> float:
    return float(abs(np.log(one / other)))


def train_points(out: Path, scale: Scale, workshop: Workshop, name: str, settings: tuple[float, ...]) -> None:
    """Train for some points of panel (a); one that panel (b) has, if it is as long, is taken from there."""
    rows = table_so_far(out / "sweep.csv", "algorithm", "setting", "epochs", "accuracy")
    if set(settings) <= {row["setting"] for row in rows if row["algorithm"] == name}:
        return
    own, _ = _sweeps(scale)[name]
    if settings == (own,) and scale.epochs == scale.sweep_epochs:
        curves = [row for row in read_table(out / TABLE) if row["run"] == name]
        found = [_last(column(curves, "step"), column(curves, "accuracy"))]
    else:
        values = np.asarray(settings) if len(settings) > 1 else settings[0]
        algorithm = Metropolis(sigma=values) if name == "mc" else GradientDescent(learning_rate=values)
        # At a large learning rate all neurons saturate; without a gradient the rest of the run would change nothing.
        plan = records(scale.sweep_epochs, number=20) | {"options": {"init": INIT[name]}, "stop_when_frozen": True}
        words = f"sweep-{name}-" + "-".join(f"{setting:g}" for setting in settings)
        found = _ends(workshop.train(words, scale.problem, algorithm, chains=len(settings), **plan))
    rows = [row for row in rows if row["algorithm"] != name or row["setting"] not in settings] + [
        {"algorithm": name, "setting": setting, "epochs": steps, "accuracy": accuracy}
        for setting, (accuracy, steps) in zip(settings, found, strict=True)
    ]
    write_table(out / "sweep.csv", sorted(rows, key=lambda row: (row["algorithm"], row["setting"])))


def _ends(run: Run) -> list[tuple[float, int]]:
    """Return the last accuracy of each chain, and after how many steps."""
    step = run.table["step"]
    return [_last(step, accuracy) for accuracy in run.table["accuracy"].reshape(len(step), -1).T]


def _last(step: np.ndarray, accuracy: np.ndarray) -> tuple[float, int]:
    """Return the last accuracy, and after how many steps; GD may have diverged or frozen before the end."""
    known = np.flatnonzero(np.isfinite(accuracy))[-1]
    return float(accuracy[known]), int(step[known])


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
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_title(f"(c) {len(values)} runs of MC")
    axis.grid(alpha=0.25, linewidth=0.5)


def check(out: Path, scale: str) -> list[Verdict]:
    """Judge F1a, F1b and F1c; only runs of the paper's 1e5 epochs decide."""
    is_paper = scale == "paper"
    sweep, variation = table_so_far(out / "sweep.csv"), table_so_far(out / "variation.csv")
    return [
        _check_sweep(sweep, is_paper, scale),
        _check_curves(read_table(out / TABLE), is_paper, scale),
        _check_runs(variation, is_paper, scale),
    ]


def stand_in(scale: str) -> str:
    """Say what a small scale has in place of the paper's set-up."""
    words = {"smoke": "digits in place of MNIST, few epochs", "quick": "fewer epochs than the paper's 1e5"}
    return words.get(scale, "")


class Peak(NamedTuple):
    """The maximum of C over a setting."""

    points: int
    setting: float
    accuracy: float  # in percent
    is_interior: bool
    width: float  # decades
    is_cut: bool  # the sweep ends before the plateau does, which is wider then

    def __str__(self) -> str:
        best = f"{self.accuracy:.2f}% at {self.setting:g}"
        if self.points == 1:
            return f"{best}, the only point"
        where = "interior" if self.is_interior else "at the edge"
        width = f"{'at least ' * self.is_cut}{self.width:.2f}"
        return f"{best}, {where}, plateau {width} decades"


def is_broader(one: Peak, other: Peak) -> bool | None:
    """Return whether one plateau is broader than the other; None where the sweeps end too early to say."""
    if one.width > other.width:
        return None if other.is_cut else True
    return None if one.is_cut else False


def _check_sweep(rows: list[dict[str, Any]], is_paper: bool, scale: str) -> Verdict:
    there = {(row["algorithm"], row["setting"]) for row in rows if _is_at_its_end(row)}
    wanted = {(name, setting) for name, settings in groups(SCALES["paper"]) for setting in settings}
    is_whole = there >= wanted
    peaks = {name: _peak([row for row in rows if row["algorithm"] == name]) for name in ("mc", "gd")}
    mc, gd = peaks.values()
    holds, broader = False, None
    if mc and gd:
        broader = is_broader(gd, mc)
        holds = mc.is_interior and gd.is_interior and 94 <= mc.accuracy <= 96 and 95 <= gd.accuracy <= 97
    measured = [f"{NAMES[name]} {peak or 'not run yet'}" for name, peak in peaks.items()]
    if is_paper and not is_whole:
        measured.append(f"{len(there)} of {len(wanted)} points so far")
    return judge(
        "F1a",
        "C has one interior maximum in sigma and in alpha: MC about 95%, GD about 96%, GD's plateau broader",
        "; ".join(measured) if rows else "not run yet",
        "argmax interior; MC max 94-96, GD max 95-97; width at 90% of max larger for GD",
        holds=holds and broader is True,
        is_decided=is_paper and is_whole and (broader is not None or not holds),
        differs="; ".join(filter(None, (stand_in(scale), DIFFERS, DECADES))),
    )


def _is_at_its_end(row: dict[str, Any]) -> bool:
    """Return whether a point has the paper's epochs; GD at a large learning rate may have ended before."""
    return row["epochs"] >= SCALES["paper"].sweep_epochs or (row["algorithm"] == "gd" and row["setting"] > 1)


def _peak(rows: list[dict[str, Any]]) -> Peak | None:
    if not rows:
        return None
    settings, accuracies = np.asarray(sorted((row["setting"], row["accuracy"]) for row in rows)).T
    top = int(np.argmax(accuracies))
    is_interior = 0 < top < len(rows) - 1
    return Peak(
        len(rows), float(settings[top]), 100 * float(accuracies[top]), is_interior, *plateau(settings, accuracies)
    )


def plateau(settings: np.ndarray, values: np.ndarray) -> tuple[float, bool]:
    """Return the decades of a setting over which the values are above 90% of their maximum, around that maximum.

    And whether it is cut: whether the settings end on it.
    """
    x, level = np.log10(settings), 0.9 * np.max(values)
    top = int(np.argmax(values))

    def edge(step: int) -> tuple[float, bool]:
        here = top
        while 0 <= here + step < len(x) and values[here + step] >= level:
            here += step
        if not 0 <= here + step < len(x):
            return float(x[here]), True
        share = (values[here] - level) / (values[here] - values[here + step])
        return float(x[here] + share * (x[here + step] - x[here])), False

    (low, is_cut_below), (high, is_cut_above) = edge(-1), edge(1)
    return high - low, is_cut_below or is_cut_above


def _check_curves(rows: list[dict[str, Any]], is_decided: bool, scale: str) -> Verdict:
    says, rule = "GD is faster early, and C comparable at the end", "U_GD < U_MC early; final C within 1.5 points"
    if missing := lacking(rows, ("gd", "mc")):
        return not_run("F1b", says, missing, rule)
    end = min(last(rows, name, "epoch") for name in ("gd", "mc"))
    early = end / 10
    loss = {name: at_epoch(rows, name, early, "loss") for name in ("gd", "mc")}
    final = {name: 100 * last(rows, name, "accuracy") for name in ("gd", "mc")}
    return judge(
        "F1b",
        says,
        f"U at epoch {early:,.0f}: GD {loss['gd']:.4g}, MC {loss['mc']:.4g}; "
        f"C at {end:,.0f}: GD {final['gd']:.2f}%, MC {final['mc']:.2f}%",
        rule,
        holds=loss["gd"] < loss["mc"] and abs(final["gd"] - final["mc"]) <= 1.5,
        is_decided=is_decided and end >= SCALES["paper"].epochs,
        differs="; ".join(filter(None, (stand_in(scale), DIFFERS, "one run of each; early is a tenth of the run"))),
    )


def _check_runs(rows: list[dict[str, Any]], is_paper: bool, scale: str) -> Verdict:
    values = 100 * column(rows, "accuracy")
    spread = float(np.ptp(values)) if len(values) else float("nan")
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
    fewer = f"{len(values)} runs in place of 30" if 0 < len(values) < 30 else ""
    return judge(
        "F1c",
        "30 MC runs with the same settings vary by about 1% in C",
        f"range {spread:.2f}, sd {deviation:.2f} points over {len(values)} runs" if rows else "not run yet",
        f"range 0.5-2 points, from at least {MIN_RUNS} runs",
        holds=0.5 <= spread <= 2,
        # A range can only grow with the number of runs: too small a one is known from all of them.
        is_decided=is_paper
        and len(values) >= (MIN_RUNS if spread >= 0.5 else SCALES["paper"].runs)
        and all(row["epochs"] >= SCALES["paper"].epochs for row in rows)
        and bool(np.isfinite(spread)),
        differs="; ".join(filter(None, (stand_in(scale), fewer))),
    )
