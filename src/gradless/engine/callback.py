"""A user's function that is called between chunks; it sees the run and may end it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from gradless.engine.session import Listener, Session
from gradless.records import COLUMNS

Function = Callable[[dict[str, Any]], None]


class Callback(Listener):
    """Calls a user's function between chunks with the present numbers; StopIteration in it ends the run."""

    def __init__(self, function: Function):
        if not callable(function):
            raise ValueError(f"callback must be a function, got {function!r}")
        self.function = function

    def chunk_done(self, session: Session, rows: list[dict[str, Any]], flags: np.ndarray) -> None:
        """Pass on where the run stands."""
        try:
            self.function(numbers(session, flags))
        except StopIteration:
            session.stop_requested = "callback"


def numbers(session: Session, flags: np.ndarray) -> dict[str, Any]:
    """Return where a run stands: plain numbers, or arrays with one number per chain where there are several."""
    costs = [chain.cost(chain.t) for chain in session.chains]
    states = [chain.carry.state for chain in session.chains if chain.carry is not None]
    share = flags.mean(axis=1) if flags.shape[1] else np.full(len(session.chains), np.nan)
    latest = [session.last_record(place) for place in range(len(session.chains))]
    return {
        "step": session.t,
        "steps": session.steps,
        "seconds": session.seconds_before + session.seconds,
        "epoch": _each([cost.epoch for cost in costs]),
        "evaluations": _each([cost.evaluations for cost in costs]),
        "samples": _each([cost.samples for cost in costs]),
        "loss": _each([float(state.loss) for state in states]),
        "acceptance": _each(share.tolist()),
        "sigma": _each([float(getattr(state, "sigma", np.nan)) for state in states]),
        "nonfinite": _each([chain.nonfinite + int(chain.carry.nonfinite) for chain in session.chains if chain.carry]),
        "is_frozen": any(bool(record.get("is_frozen", False)) for record in latest),
        "metrics": {
            name: _each([float(record[name]) for record in latest]) for name in latest[0] if name not in COLUMNS
        },
    }


def _each(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else np.asarray(values)
