"""When a run goes badly, one line that says why and what to try."""

from typing import TYPE_CHECKING

import numpy as np

from gradless.engine.batches import Minibatch
from gradless.engine.program import DIVERGED

if TYPE_CHECKING:
    from gradless.engine.session import Session

FROZEN_WORDS = (
    "frozen: sigma has fallen below what floating point can resolve, and no move changes x any more; use float64, a "
    "larger n_s, or let the run end there (stop_when_frozen)"
)
MIN_STEPS = 500  # before that nothing can be said
SHRUNK = 0.01  # of sigma_0: ninety times n_s rejections in a row


def advice(session: "Session") -> str | None:
    """Return what looks wrong with the run, if something does."""
    chains, rows = session.chains, session.rows
    if len(rows) < 3 or chains[0].algorithm.needs_gradient:
        is_diverged = any(chain.status == DIVERGED for chain in chains)
        return "the loss is no longer a number: lower the learning rate or clip the gradient" if is_diverged else None
    acceptance = float(np.nanmean(_late(rows, "acceptance")))
    first, last = float(np.nanmedian(rows[0]["loss"])), float(np.nanmin(rows[-1]["loss"]))
    fallen = (first - last) / abs(first) if first else 0.0
    if np.any(rows[-1]["is_frozen"]):
        return FROZEN_WORDS
    if session.t < MIN_STEPS or session.stopped_by == "target":
        return None
    if acceptance < 0.01 and _has_shrunk(rows):
        sigma = np.nanmedian(rows[-1]["sigma"])
        return (
            f"acceptance is {acceptance:.2%}, though sigma has shrunk to {sigma:.1e}: x sits at a minimum or on a "
            "plateau; if U is not low enough there, try signal norm, another start, or several chains"
        )
    if acceptance < 0.01:
        how = "aMC lowers it by itself, so give it more steps or" if hasattr(chains[0].algorithm, "n_s") else "so"
        return f"acceptance is {acceptance:.2%}: sigma is too large; {how} lower sigma"
    if isinstance(session.work.batches, Minibatch) and _is_noise_dominated(rows):
        return (
            "the loss varies more from minibatch to minibatch than it falls: use a larger minibatch, or hold each "
            "one for several moves"
        )
    if acceptance > 0.4 and fallen < 0.1:
        return f"acceptance is {acceptance:.0%} and the loss has hardly fallen: sigma is too small; raise it"
    return None


def _late(rows: list[dict], name: str) -> list[float]:
    """Return the values of the last tenth of the records, all chains together."""
    return [float(value) for row in rows[-max(2, len(rows) // 10) :] for value in np.atleast_1d(row[name])]


def _has_shrunk(rows: list[dict]) -> bool:
    """Return whether sigma is far below where it began: then it is not too large any more."""
    return float(np.nanmedian(rows[-1]["sigma"])) < SHRUNK * float(np.nanmedian(rows[0]["sigma"]))


def _is_noise_dominated(rows: list[dict]) -> bool:
    late = np.asarray([np.mean(row["loss"]) for row in rows[-max(8, len(rows) // 4) :]])
    if len(late) < 8:
        return False
    half = len(late) // 2
    return float(np.std(np.diff(late))) > 2 * abs(float(late[:half].mean() - late[half:].mean())) > 0
