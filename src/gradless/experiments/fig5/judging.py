"""The verdicts on Fig. 5, from its tables."""

from pathlib import Path
from typing import Any

import numpy as np

from gradless.experiments.claims import Verdict, judge
from gradless.experiments.fig5.regimes import regimes
from gradless.experiments.fig5.settings import AGAIN, ASSUMED, FROM_LARGE, KINDS, LN2, SCALES, TARGET, TRAINING
from gradless.experiments.tables import column, read_table, table_so_far


def check(out: Path, scale: str) -> list[Verdict]:
    """Judge the claims; only the paper's own sequence, batch and net can decide them."""
    rows, about = read_table(out / TRAINING), read_table(out / "runs.csv")
    again = table_so_far(out / FROM_LARGE)
    made = {row["algorithm"]: row["steps"] for row in about}
    is_paper = scale == "paper" and all((row["shrink"], row["batch"], row["hidden"]) == (1, 1500, 64) for row in about)
    sizes = "; ".join(f"{row['algorithm']} {row['steps']:,.0f} steps" for row in about)
    smaller = "" if is_paper else f"smaller than the paper's: images shrunk by {about[0]['shrink']:g}, {sizes}; "
    differs = smaller + ASSUMED
    planned = SCALES["paper"]
    of = {kind: [row for row in rows if row["algorithm"] == kind] for kind in KINDS}
    is_over = made.get("aMC", 0) >= planned.steps or any(row["accuracy"] >= TARGET for row in of["aMC"])
    return [
        _judge_gradients(
            of, differs, is_paper and min(made.get(k, 0) for k in ("GD", "Adam")) >= planned.steps_gradient
        ),
        _judge_accuracy(of["aMC"], differs, is_paper),
        _judge_regimes(of["aMC"], differs, is_paper, is_over),
        _judge_explosion(again, of["aMC"], differs, is_paper),
    ]


def _judge_gradients(of: dict[str, list[dict[str, Any]]], differs: str, is_decided: bool) -> Verdict:
    # The loss of one minibatch fluctuates: the median over the last tenth of the records.
    last = {k: float(np.median(column(of[k], "loss")[-max(1, len(of[k]) // 10) :])) for k in ("GD", "Adam") if of[k]}
    return judge(
        "F5a",
        "GD and Adam stay near ln 2",
        ", ".join(f"{kind} U = {value:.5f}" for kind, value in last.items()) or "no runs",
        "U within 1% of ln 2 = 0.69315 at the end, both",
        holds=len(last) == 2 and all(abs(value / LN2 - 1) <= 0.01 for value in last.values()),
        is_decided=is_decided,
        differs=differs,
    )


def _judge_accuracy(rows: list[dict[str, Any]], differs: str, is_paper: bool) -> Verdict:
    accuracy = column(rows, "accuracy")
    best = float(np.nanmax(accuracy)) if len(rows) else float("nan")
    # How long the run may take is our choice: it falls short of the claim only once it no longer learns.
    is_stalled = len(rows) > 0 and rows[-1]["step"] >= SCALES["paper"].steps
    is_stalled = is_stalled and int(np.nanargmax(accuracy)) < 3 * len(rows) // 4
    return judge(
        "F5b",
        "aMC reaches 99.8% on the test set",
        f"{100 * best:.2f}% at best, {100 * accuracy[-1]:.2f}% after {rows[-1]['step']:,.0f} steps"
        if rows
        else "no run",
        "aMC >= 99.7%; below it only a run that has not improved in its last quarter decides",
        holds=best >= 0.997,
        is_decided=is_paper and (best >= 0.997 or is_stalled),
        differs=differs,
    )


def _judge_regimes(rows: list[dict[str, Any]], differs: str, is_paper: bool, is_over: bool) -> Verdict:
    small, large = regimes(rows) if rows else (np.zeros(0), np.zeros(0))
    is_seen = len(small) > 0 and len(large) >= 5
    ratio = float(np.median(large) / np.median(small)) if is_seen else float("nan")
    measured = (
        f"ratio {ratio:.3g}: median {np.median(small):.3g}, then {np.median(large):.3g}" if is_seen else "one regime"
    )
    return judge(
        "F5c",
        "the gradient along aMC's path has two regimes about three decades apart",
        measured,
        "ratio of medians, off and on the plateau U = ln 2, >= 100",
        holds=ratio >= 100,
        is_decided=is_paper and is_seen and is_over,  # until then the medians move, up and down
        differs=differs,
    )


def _judge_explosion(again: list[dict[str, Any]], rows: list[dict[str, Any]], differs: str, is_paper: bool) -> Verdict:
    is_large = bool(rows) and len(regimes(rows)[1]) >= 5
    words, explodes = [], False
    steps = max((row["step"] for row in again if row["algorithm"] == "GD without clipping"), default=0)
    for name in AGAIN:
        losses = column([row for row in again if row["algorithm"] == name], "loss")
        if len(losses):
            highest = float(np.max(np.where(np.isfinite(losses), losses, np.inf)))
            words.append(f"{name}: U from {losses[0]:.3g} to {highest:.3g} at most")
            explodes |= name == "GD without clipping" and highest > max(LN2, losses[0])
    return judge(
        "F5c",
        "GD started in the regime of large gradients explodes",
        "; ".join(words) or "not run",
        "without clipping its loss rises above ln 2, worse than knowing nothing, or is no number",
        holds=explodes,
        is_decided=is_paper and is_large and (explodes or steps >= SCALES["paper"].steps_again),
        differs=differs,
    )
