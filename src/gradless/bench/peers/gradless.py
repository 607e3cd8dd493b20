"""gradless itself, as an entry of the races."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from gradless.bench.peers.peer import Peer
from gradless.bench.peers.task import Task
from gradless.engine.batches import Batches, FullBatch, Progressive
from gradless.engine.plan import LARGEST, Plan
from gradless.engine.precision import precision_of
from gradless.engine.program import MAX_STEPS
from gradless.engine.session import Session
from gradless.engine.train import prepare
from gradless.problem import Problem
from gradless.types import Algorithm, Params


class Training:
    """A run of the engine, a turn at a time."""

    def __init__(self, task: Task, algorithm: Algorithm, batches: Batches, chains: int):
        began = time.perf_counter()
        if isinstance(batches, Progressive):
            self._rehearse(task, algorithm, batches, chains)
        self.session = _started(task, algorithm, batches, chains)
        self.session.advance_to(1)
        self.compile_seconds = time.perf_counter() - began

    @staticmethod
    def _rehearse(task: Task, algorithm: Algorithm, batches: Progressive, chains: int) -> None:
        """Compile for every size of a growing batch: one that grows at every step, to be thrown away."""
        growing = dataclasses.replace(batches, threshold=1.0, check_every=1)
        session = _started(task, algorithm, growing, chains)
        while growing.size(session.chains[0].stage, task.samples) < task.samples:
            session.advance_to(session.chains[0].t + 1)
        session.advance_to(session.chains[0].t + 1)

    @property
    def evaluations(self) -> int:
        """Evaluations of the loss so far, over all chains."""
        return sum(chain.cost(chain.t).evaluations for chain in self.session.chains)

    @property
    def samples(self) -> int:
        """How many samples they saw."""
        return sum(chain.cost(chain.t).samples for chain in self.session.chains)

    def advance(self, evaluations: int) -> None:
        """Make so many evaluations more, one a step."""
        chains = self.session.chains
        steps = min(-(-evaluations // len(chains)), MAX_STEPS)
        self.session.advance_to(chains[0].t + steps)

    def params(self) -> Params:
        """Return the net of the chain whose loss is lowest."""
        flattening = self.session.work.program.objective.flattening
        with precision_of(flattening.dtype):
            best = min((chain.carry.state for chain in self.session.chains), key=lambda state: float(state.loss))
            return flattening.unflatten(best.x)


def _started(task: Task, algorithm: Algorithm, batches: Batches, chains: int) -> Session:
    plan = Plan(
        steps=LARGEST,
        batches=batches,
        chains=tuple(range(chains)),
        seed=task.seed,
        precision=task.precision,
        record_every=10**6,
    )
    session = prepare(algorithm, task.problem.loss, task.start, plan, data=task.problem.data)
    session.begin()
    return session


def ours(
    settings: str,
    algorithm: Algorithm,
    batches: Callable[[Problem], Batches] = lambda problem: FullBatch(),
    chains: int = 1,
) -> Peer:
    """Return an entry of gradless: an algorithm, how the data are batched, and how many chains start together."""

    def search(task: Task) -> Any:
        return Training(task, algorithm, batches(task.problem), chains)

    return Peer("gradless aMC", "gradless", "gradless", settings, search)
