"""The verdicts on Fig. 1, from its tables."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gradless.experiments.claims import Verdict, judge, not_run
from gradless.experiments.curves import NAMES, TABLE, at_epoch, lacking, last
from gradless.experiments.fig1.settings import DECADES, DIFFERS, MIN_RUNS, SCALES, groups, stand_in
from gradless.experiments.tables import column, read_table, table_so_far


def check(out: Path, scale: str) -> list[Verdict]:
    """Judge F1a, F1b and F1c; only runs of the paper's 1e5 epochs decide."""
    is_paper = scale == "paper"
    sweep, variation = table_so_far(out / "sweep.csv"), table_so_far(out / "variation.csv")
    return [
        _check_sweep(sweep, is_paper, scale),
        _check_curves(read_table(out / TABLE), is_paper, scale),
        _check_runs(variation, is_paper, scale),
    ]


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
    several = len(values) > 1
    fewer = f"{len(values)} run{'s' * several} in place of 30" if 0 < len(values) < 30 else ""
    measured = f"C {values[0]:.2f}% in one run" if rows else "not run yet"
    if several:
        measured = f"range {spread:.2f}, sd {np.std(values, ddof=1):.2f} points over {len(values)} runs"
    return judge(
        "F1c",
        "30 MC runs with the same settings vary by about 1% in C",
        measured,
        f"range 0.5-2 points, from at least {MIN_RUNS} runs",
        holds=0.5 <= spread <= 2,
        # A range can only grow with the number of runs: too small a one is known from all of them.
        is_decided=is_paper
        and len(values) >= (MIN_RUNS if spread >= 0.5 else SCALES["paper"].runs)
        and all(row["epochs"] >= SCALES["paper"].epochs for row in rows)
        and bool(np.isfinite(spread)),
        differs="; ".join(filter(None, (stand_in(scale), fewer))),
    )
