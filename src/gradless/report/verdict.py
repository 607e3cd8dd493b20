"""What became of a run: its state in a word, why it ended, and the verdict in a sentence."""

from typing import Any, NamedTuple

import numpy as np

from gradless.engine import loop
from gradless.engine.diagnosis import DIVERGED_WORDS, MIN_RECORDS, VANISHED_WORDS, advice_on
from gradless.engine.plan import LARGEST
from gradless.plots import GRADIENT, drawable
from gradless.report.curves import Table, last_known, metric_names, overall_acceptance

NAMES = {"mc": "Metropolis Monte Carlo", "amc": "Adaptive Monte Carlo", "gd": "Gradient descent", "adam": "Adam"}
ENDS = {
    loop.AT_TARGET: "it reached its target",
    loop.FROZEN: "it froze: the moves have become too small to change x",
    loop.DIVERGED: "it diverged: the loss is no longer a number",
}


class State(NamedTuple):
    """How a run stands."""

    word: str  # running, ended, stopped or empty
    reason: str  # why, as the end of a sentence


def state_of(is_running: bool, step: int | None, plan: dict[str, Any], statuses: list[int]) -> State:
    """Return how a run stands; `statuses` are the chains' own, as its newest checkpoint has them."""
    steps = step_goal(plan)
    goal = f" of {steps:,}" if steps else ""
    if is_running:
        where = "without a record yet" if step is None else f"at step {step:,}{goal}"
        return State("running", f"it is still running, {where}")
    if step is None:
        return State("empty", "it ended before its first record")
    if steps and step >= steps:
        return State("ended", "all steps are done")
    reasons = [ENDS[one] for one in statuses if one in ENDS]
    if statuses and len(reasons) == len(statuses):
        several = f" in {reasons.count(reasons[0])} of {len(reasons)} chains" if len(set(reasons)) > 1 else ""
        return State("ended", reasons[0] + several)
    why = "its time was up, or someone stopped it" if plan.get("time_budget") else "someone or something stopped it"
    return State("stopped", f"it stands at step {step:,}{goal}: {why}")


def with_lost_records(last: int | None, known: int) -> State:
    """Return how a run stands whose records end before one that its checkpoint knows of, or that has none."""
    ends = "" if last is None else f"its records end at step {last:,}, and "
    return State("stopped", f"{ends}its checkpoint knows of a record at step {known:,}: metrics.jsonl has lost some")


def step_goal(plan: dict[str, Any]) -> int | None:
    """Return how many steps a run is to make; None where only its time is limited."""
    steps = plan.get("steps")
    return steps if type(steps) is int and 0 < steps < LARGEST else None


def verdict(table: Table, algorithm: str, state: State) -> str:
    """Return one or two sentences: what the loss did, how good the net is, how many moves were accepted, the end."""
    end = f"{state.reason[0].upper()}{state.reason[1:]}."
    if not len(table.get("loss", ())):
        return f"There is no record to show: {state.reason}."
    loss = drawable(table["loss"]).reshape(len(table["loss"]), -1)
    start, last = last_known(loss[:1]), last_known(loss)
    if not np.isfinite(last).any():
        return f"The loss U was never a number. {end}"
    who = NAMES.get(algorithm, "The algorithm") + (f" in {loss.shape[1]} chains" if loss.shape[1] > 1 else "")
    came = f"{who} took the loss U from {short(np.nanmedian(start))} to {in_words(last)}"
    parts = [came + f" in {int(table['step'][-1]):,} steps", *_metrics(table)]
    if "acceptance" in table and np.isfinite(accepted := overall_acceptance(table)).any():
        parts.append(f"accepting {percent(float(np.nanmedian(accepted)))} of the moves")
    sentence = f"{parts[0]}, {' and '.join(parts[1:])}" if parts[1:] else parts[0]
    return f"{sentence}. {end}"


def advice(table: Table, algorithm: dict[str, Any], plan: dict[str, Any], state: State) -> list[str]:
    """Return what looks wrong with a run and what to try, as the end of `gradless train` tells it; often nothing."""
    words, has_gradient = None, algorithm.get("name") in GRADIENT
    if ENDS[loop.DIVERGED] in state.reason:
        words = DIVERGED_WORDS
    elif has_gradient:
        words = VANISHED_WORDS if np.any(table.get("is_frozen", [False])[-1:]) else None
    elif {"loss", "acceptance", "sigma"} <= table.keys() and len(table["step"]) >= MIN_RECORDS:
        batches = plan.get("batches")
        words = advice_on(
            {"is_frozen": np.zeros(len(table["step"]))} | {name: drawable(values) for name, values in table.items()},
            int(table["step"][-1]),
            precision=next((one for one in ("float32", "float64") if plan.get("precision") == one), None),
            lowers_sigma="n_s" in algorithm,
            has_minibatches=isinstance(batches, dict) and batches.get("name") == "minibatch",
            is_at_target=ENDS[loop.AT_TARGET] in state.reason,
        )
    return [f"{words[0].upper()}{words[1:]}."] if words else []


def _metrics(table: Table) -> list[str]:
    """Return what the first metric came to: the others are among the numbers."""
    for name in metric_names(table)[:1]:
        values = last_known(drawable(table[name]))
        if np.isfinite(values).any():
            if name == "accuracy":
                return [f"reaching a test accuracy of {percent(float(np.nanmedian(values)))}"]
            return [f"with {name.replace('_', ' ')} {in_words(values)} at the end"]
    return []


def in_words(values: np.ndarray) -> str:
    """Return a number, or of several chains the median and the extremes."""
    known = values[np.isfinite(values)]
    if len(known) <= 1:
        return short(known[0] if len(known) else float("nan"))
    return f"{short(np.median(known))} (median; {short(known.min())} to {short(known.max())})"


def short(value: float) -> str:
    """Return a number in four digits."""
    return f"{value:.4g}"


def percent(fraction: float) -> str:
    """Return a fraction in percent, with as many digits as say something."""
    return f"{100 * fraction:.3g} %" if fraction < 0.9995 else f"{100 * fraction:.4g} %"
