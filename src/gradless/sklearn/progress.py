"""A session taken on in stretches of a fixed number of steps, until there is no more progress.

The engine's own rounds follow the clock; where a fit ends must not.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradless.engine.chains import Chain
from gradless.engine.loop import evaluate_loss
from gradless.engine.precision import precision_of
from gradless.engine.program import AT_TARGET, FROZEN, GOING
from gradless.engine.session import Session
from gradless.types import Params

LOOKS = 10  # at the progress, in n_iter_no_change steps

Judge = Callable[[Params], float]  # the validation score of a net, higher is better


@dataclass
class Progress:
    """When a fit ends before its steps do: `patience` steps have not bettered the loss or the score by `tol`."""

    tol: float
    patience: float  # infinite: it never ends early
    judge: Judge | None = None
    is_verbose: bool = False
    unit: float = 1.0  # of the losses, to show them
    scores: list[float] = field(default_factory=list)  # of each look
    best_score: float = -np.inf
    best: tuple[int, Params, float] | None = None  # the chain, the net and the loss of that score

    def stretch(self, steps: int) -> int:
        """Return how many steps are made between two looks."""
        return max(1, int(min(self.patience, steps)) // LOOKS)

    def look(self, session: Session, losses: list[float]) -> float:
        """Return the value that has to fall: the lowest loss, or the highest validation score with its sign changed."""
        if self.judge is None:
            return min(losses)
        judged = [self.judge(params_of(session, chain)) for chain in session.chains]
        place = int(np.argmax(judged))
        self.scores.append(judged[place])
        if judged[place] > self.best_score:
            params = params_of(session, session.chains[place])
            self.best_score, self.best = judged[place], (place, params, losses[place])
        return -judged[place]


@dataclass(frozen=True)
class Outcome:
    """What the chains have come to."""

    place: int  # of the best chain
    params: Params
    loss: float
    is_converged: bool
    is_frozen: bool  # no chain can move any more


def run_session(session: Session, steps: int, progress: Progress) -> Outcome:
    """Take a session that has begun `steps` further, or to where there is no more progress."""
    until, stretch = session.t + steps, progress.stretch(steps)
    scale = 1.0 if progress.judge else min(abs(float(chain.carry.state.loss)) for chain in session.chains)
    lowest, since, is_converged = np.inf, session.t, False
    losses: list[float] = []
    while session.t < until and not is_converged:
        session.steps = min(session.t + stretch, until)
        session.go()
        losses = [_loss(session, chain) for chain in session.chains]
        value = progress.look(session, losses)
        if progress.is_verbose:
            print(_line(session, [progress.unit * loss for loss in losses], progress.scores))
        if value < lowest - progress.tol * scale:
            lowest, since = value, session.t
        is_converged = has_ended(session) or session.t - since >= progress.patience
    place = int(np.argmin(losses))
    best = progress.best or (place, params_of(session, session.chains[place]), losses[place])
    is_frozen = all(chain.status == FROZEN for chain in session.chains)
    return Outcome(*best, is_converged or not np.isfinite(progress.patience), is_frozen)


def has_ended(session: Session) -> bool:
    """Return whether a chain is where none can do better, or all are frozen."""
    status = [chain.status for chain in session.chains]
    return AT_TARGET in status or GOING not in status


def row_of(row: dict[str, Any], place: int, num_chains: int) -> dict[str, Any]:
    """Return one chain's part of a record."""
    common = ("step", "seconds")
    return row if num_chains == 1 else {name: v if name in common else v[place] for name, v in row.items()}


def params_of(session: Session, chain: Chain) -> Params:
    """Return the net at which a chain stands, in NumPy arrays."""
    x: Any = np.asarray(chain.carry.state.x)
    return session.work.program.objective.flattening.unflatten(x)


def _loss(session: Session, chain: Chain) -> float:
    """Return a chain's loss on all the data; on minibatches, which differ from one another, it is not the state's."""
    if session.work.program.batches.is_fixed:
        return float(chain.carry.state.loss)
    with precision_of(session.dtype):
        return float(evaluate_loss(session.work.program, chain.carry.state.x, session.work.data))


def _line(session: Session, losses: list[float], scores: list[float]) -> str:
    row = row_of(session.rows[-1], int(np.argmin(losses)), len(session.chains))
    score = f", validation score {scores[-1]:.4g}" if scores else ""
    numbers = f"acceptance {row['acceptance']:.3f}, sigma {row['sigma']:.3g}"
    return f"step {session.t}, loss {min(losses):.6g}, {numbers}{score}"
