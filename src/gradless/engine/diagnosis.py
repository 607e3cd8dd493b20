"""When a run goes badly, one line that says why and what to try."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gradless.engine.batches import Minibatch
from gradless.engine.program import DIVERGED

if TYPE_CHECKING:
    from gradless.engine.session import Session

VANISHED_WORDS = (
    "frozen: a billion steps as small as the last one would hardly change x; if U is not low enough there, the "
    "gradient has vanished: try aMC, with signal norm if the net is deep"
)
DIVERGED_WORDS = "the loss is no longer a number: lower the learning rate or clip the gradient"
NO_NUMBER_WORDS = (
    "the loss is not a number on some of the minibatches, where every move is rejected: look for NaN in the data, or "
    "bound what overflows in the loss"
)
COLUMNS = ("loss", "acceptance", "sigma", "is_frozen")
MIN_RECORDS = 3
MIN_STEPS = 500  # before that nothing can be said
SHRUNK = 0.01  # of sigma_0: ninety times n_s rejections in a row


def frozen_words(precision: str | None) -> str:
    """Return what to tell of a chain whose moves no longer change x."""
    finer = "" if precision == "float64" else "float64, "
    return (
        f"frozen: sigma has fallen below what {precision or 'floating point'} can resolve, and no move changes x any "
        f"more; use {finer}a larger n_s, or let the run end there (stop_when_frozen)"
    )


def advice(session: "Session") -> str | None:
    """Return what looks wrong with the run, if something does."""
    chains, rows = session.chains, session.rows
    has_gradient = chains[0].algorithm.needs_gradient
    if any(chain.status == DIVERGED for chain in chains):
        return DIVERGED_WORDS
    if has_gradient:
        return VANISHED_WORDS if rows and np.any(rows[-1]["is_frozen"]) else None
    if len(rows) < MIN_RECORDS:
        return None
    return advice_on(
        {name: np.asarray([row[name] for row in rows], float) for name in COLUMNS},
        session.t,
        precision=str(session.dtype),
        lowers_sigma=hasattr(chains[0].algorithm, "n_s"),
        has_minibatches=isinstance(session.work.batches, Minibatch),
        is_at_target=session.stopped_by == "target",
    )


def advice_on(
    table: Mapping[str, np.ndarray],
    step: int,
    precision: str | None,
    lowers_sigma: bool,
    has_minibatches: bool,
    is_at_target: bool,
) -> str | None:
    """Return what looks wrong with the records of a run without gradients, if something does.

    table: the records by name, each of shape (records,) or (records, chains).
    step: how far the run has come.
    precision: of its parameters, if it is known.
    lowers_sigma: whether its algorithm does, as aMC.
    has_minibatches: whether its losses are those of minibatches.
    is_at_target: whether it is where it was to go.
    """
    if np.any(table["is_frozen"][-1] > 0):
        return frozen_words(precision)
    if np.any(~np.isfinite(table["loss"]) & np.isfinite(table["acceptance"])):  # a chain that has ended has neither
        return NO_NUMBER_WORDS
    if step < MIN_STEPS or is_at_target:
        return None
    acceptance = _known(np.mean, table["acceptance"][-max(2, len(table["acceptance"]) // 10) :])
    sigma_0, sigma = (_known(np.median, table["sigma"][place]) for place in (0, -1))
    if acceptance < 0.01 and sigma < SHRUNK * sigma_0:
        return (
            f"acceptance has come to {acceptance:.2%}, though sigma has shrunk to {sigma:.1e}: x sits at a minimum or "
            "on a plateau; if U is not low enough there, try signal norm, another start, or several chains"
        )
    if acceptance < 0.01:
        how = "aMC lowers it by itself, so give it more steps or lower it" if lowers_sigma else "lower it"
        return f"acceptance has come to {acceptance:.2%}: sigma is too large; {how}"
    if has_minibatches and _is_noise_dominated(table["loss"]):
        return (
            "the loss varies more from minibatch to minibatch than it falls: use a larger minibatch, or hold each "
            "one for several moves"
        )
    first, last = _known(np.median, table["loss"][0]), _known(np.min, table["loss"][-1])
    if acceptance > 0.4 and first - last < 0.1 * abs(first):
        return f"acceptance has come to {acceptance:.0%} and the loss has hardly fallen: sigma is too small; raise it"
    return None


def _known(number_of: Callable[[np.ndarray], Any], values: np.ndarray) -> float:
    """Return a number of the values that are known; NaN, which no comparison holds for, where none is."""
    known = np.atleast_1d(values)[np.isfinite(np.atleast_1d(values))]
    return float(number_of(known)) if len(known) else float("nan")


def _is_noise_dominated(loss: np.ndarray) -> bool:
    late = loss[-max(8, len(loss) // 4) :].reshape(-1, loss[0].size).mean(axis=1)
    if len(late) < 8:
        return False
    half = len(late) // 2
    return float(np.std(np.diff(late))) > 2 * abs(float(late[:half].mean() - late[half:].mean())) > 0
