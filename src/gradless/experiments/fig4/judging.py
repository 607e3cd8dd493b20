"""The verdicts on Fig. 4, from its tables."""

from pathlib import Path
from typing import Any

import numpy as np

from gradless.experiments.claims import Verdict, judge, not_run
from gradless.experiments.fig4.medians import by_algorithm, gain, last_before, starting_step, step_of_outputs
from gradless.experiments.fig4.settings import ALGORITHMS, LEARNT, MIN_RUNS, MINUS, NAMES, PLUS, STARTED, ZERO
from gradless.experiments.tables import column, read_table


def check(out: Path, scale: str) -> list[Verdict]:
    """The larger epsilon, the sooner the sine is learnt; runs that were stopped decide nothing."""
    rows = read_table(out / "training.csv")
    of = by_algorithm(rows)
    if missing := [name for name in ALGORITHMS if name not in of]:
        return [not_run(claim, says, missing, rule) for claim, (says, rule) in CLAIMS.items()]
    runs = {(row["algorithm"], row["block"], row["chain"]) for row in rows if row["is_over"]}
    number = min(sum(name == run[0] for run in runs) for name in ALGORITHMS)
    is_decided = scale == "paper" and number >= MIN_RUNS
    verdicts = [_order(of, is_decided), _dip_and_rise(of, is_decided), _learnt(of, is_decided)]
    ours = f"here {of[ZERO][-1]['step']:,.0f} steps of aMC, and {number} runs of each or more"
    return [verdict._replace(differs=f"{DIFFERS}: {ours}") for verdict in verdicts]


CLAIMS = {  # what each says, and the rule
    "F4a": (
        "U gets lowest for epsilon > 0, least low for epsilon < 0; Adam lower than GD",
        "median U at the end: epsilon > 0 below 0 below < 0, Adam below GD",
    ),
    "F4b": (
        "pseudo-loss U' dips, then rises as the sine is learnt",
        "for Adam and epsilon > 0, median U' at first and at the end above twice its least, and sine learnt since then",
    ),
    "F4c": (
        "when epsilon = 0 starts on the sine, epsilon > 0 has learnt it, epsilon < 0 not at all",
        f"median overlap with the sine above {LEARNT}, between, below {STARTED}",
    ),
}
DIFFERS = "the paper gives neither its number of steps nor of runs"


def _end(rows: list[dict[str, Any]], quantity: str) -> float:
    """Return the median over the last twentieth of the records: Adam's loss has spikes."""
    return float(np.median(column(rows[-max(1, len(rows) // 20) :], quantity)))


def _order(of: dict[str, list[dict[str, Any]]], is_decided: bool) -> Verdict:
    """Judge F4a at the end."""
    last = {name: _end(rows, "loss") for name, rows in of.items()}
    says, rule = CLAIMS["F4a"]
    steps, others = of[ZERO][-1]["step"], of["gd"][-1]["step"]
    fewer = f", GD and Adam after {others:,.0f}" if others != steps else ""
    return judge(
        "F4a",
        says,
        ", ".join(f"{name} {loss:.3g}" for name, loss in last.items()) + f" after {steps:,.0f} steps{fewer}",
        rule,
        holds=last[PLUS] < last[ZERO] < last[MINUS] and last["adam"] < last["gd"],
        is_decided=is_decided,
    )


def _dip_and_rise(of: dict[str, list[dict[str, Any]]], is_decided: bool) -> Verdict:
    """Judge F4b: U' at the end at least twice its least, and more of the sine learnt since."""
    words, holds = [], True
    for name in ("adam", PLUS):
        dip = min(of[name], key=lambda row: row["pseudo_loss"])
        least, end = dip["pseudo_loss"], _end(of[name], "pseudo_loss")
        share = _end(of[name], "overlap") - min(column(of[name], "overlap"))
        learnt = f"{100 * share:.0f}% of the sine learnt"
        words.append(f"{name} {least:.2g} at step {dip['step']:,.0f}, {end:.2g} at the end with {learnt}")
        holds &= min(of[name][0]["pseudo_loss"], end) > 2 * least and _end(of[name], "overlap") > dip["overlap"]
    says, rule = CLAIMS["F4b"]
    return judge("F4b", says, "; ".join(words), rule, holds=holds, is_decided=is_decided)


def _learnt(of: dict[str, list[dict[str, Any]]], is_decided: bool) -> Verdict:
    """Judge F4c, at the step at which epsilon = 0 starts on the sine."""
    step = step_of_outputs(of)
    at = {name: last_before(of[name], step)["overlap"] for name in NAMES.values()}
    says, rule = CLAIMS["F4c"]
    return judge(
        "F4c",
        says,
        ", ".join(f"{name} {at[name]:.2f} ({gain(of[name], step):.2f} of it learnt)" for name in at)
        + f" at step {step:,.0f}",
        rule,
        holds=at[PLUS] > LEARNT > at[ZERO] > STARTED > at[MINUS],
        is_decided=is_decided and starting_step(of[ZERO]) is not None,
    )
