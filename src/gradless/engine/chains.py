"""One Markov chain as the host sees it: where it stands, what it has cost, and how to take it further.

Chains are separate runs of one compiled program, several at a time on threads (XLA leaves Python's lock while it
computes). So a chain makes the same moves, bit for bit, alone or among others, which a batched (vmapped) program does
not promise; and small nets keep every core busy.
"""

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gradless.engine import loop
from gradless.engine.ahead.pace import Pace
from gradless.engine.batches import Minibatch, Progressive, num_samples
from gradless.engine.program import GOING, READY_TO_GROW, Carry, Program
from gradless.engine.work import Work
from gradless.machine import num_cores
from gradless.types import Algorithm, Key, State


class Cost(NamedTuple):
    """What a chain has cost up to some step."""

    epoch: float
    evaluations: int
    samples: int


@dataclass
class Chain:
    """A chain on its way."""

    index: int
    key: Key
    algorithm: Algorithm
    work: Work
    carry: Any = None  # a Carry, once begun or restored
    t: int = 0
    status: int = GOING
    stage: int = 0
    growths: list[int] = field(default_factory=list)  # the steps at which the batch grew
    stage_start: tuple[int, float, int, int] = (0, 0.0, 1, 0)  # step, epoch, evaluations and samples at that step
    nonfinite: int = 0  # up to the last record
    last_record: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)  # not yet collected
    pace: Pace = field(default_factory=Pace)  # of speculation

    def begin(self, x: jax.Array) -> float:
        """Evaluate the starting point and take the record of it; return its loss."""
        program, data = self.work.stage(self.stage)
        x = self.placed(x)
        self.stage_start = (0, 0.0, 1, self._batch_size(program, data))
        self.carry, record = loop.start(program, self.algorithm, self.key, x, data, self.work.test)
        self.rows.append(self._row({name: np.asarray(value) for name, value in record.items()}))
        return self.rows[-1]["loss"]

    def go_on(self, state: State, t: int) -> None:
        """Stand at step t with a state from elsewhere; what it knew of its data is looked up on the present ones."""
        program, data = self.work.stage(self.stage)
        self.t = self.last_record = t
        self.stage_start = (t, 0.0, 1, self._batch_size(program, data))
        step, state = self.placed(jnp.asarray(t, jnp.int32)), self.placed(state)
        state = loop.look_again(program, self.key, state, step, data)
        counts = [jnp.zeros((), jnp.int32) for _ in range(3)]  # a buffer each: the next chunk takes what it is given
        self.carry = Carry(step, state, *self.placed(counts))

    def placed(self, tree: Any) -> Any:
        """Return arrays where the chain is: on all of its devices."""
        layout = self.work.program.layout
        return tree if layout is None else layout.place(tree)

    def expected_carry(self, x: jax.Array) -> Carry:
        """Return the shapes that the loop's state has, to compare a checkpoint with; nothing is computed."""
        program, data = self.work.stage(self.stage)
        start = partial(loop.start.function, program, self.algorithm, self.key)
        shapes, _ = jax.eval_shape(start, x, data, self.work.test)
        return shapes

    def _batch_size(self, program: Program, data: Any) -> int:
        return program.batches.size if isinstance(program.batches, Minibatch) else max(num_samples(data), 1)

    def warm_up(self) -> None:
        """Compile the chunk for the present stage, once for all chains, and keep the time apart."""
        program, data = self.work.stage(self.stage)
        what = (program, jax.tree.structure(self.algorithm), num_samples(data))
        with self.work.lock:
            if what in self.work.compiled:
                return
            began = time.perf_counter()
            # A chunk of no steps: all that takes time in it is the compilation.
            self._advance(program, data, self.t)
            self.work.compile_seconds.append(time.perf_counter() - began)
            self.work.compiled.add(what)

    def advance(self, until: int) -> np.ndarray:
        """Go on to step `until`, or to the chain's end; return which steps were accepted."""
        flags = [np.zeros(0, bool)]
        while self.t < until and self.status == GOING:
            self.warm_up()
            program, data = self.work.stage(self.stage)
            flags.append(self._advance(program, data, until))
            if self.status == READY_TO_GROW:
                self._grow()
        return np.concatenate(flags)

    def _advance(self, program: Program, data: Any, until: int) -> np.ndarray:
        before, began = self.t, time.perf_counter()
        limits = self.work.limits(until, self.pace.ahead)
        self.carry, chunk = loop.advance(program, self.algorithm, self.key, self.carry, data, self.work.test, limits)
        self.t, self.status = int(self.carry.t), int(self.carry.status)
        records = jax.tree.map(np.asarray, chunk.records)
        for place in range(int(chunk.num_records)):
            self.rows.append(self._row({name: values[place] for name, values in records.items()}))
        flags = np.asarray(chunk.flags)[: self.t - before]
        self.pace.learn(len(flags), int(chunk.rounds), int(flags.sum()), time.perf_counter() - began)
        return flags

    def _row(self, record: dict[str, Any]) -> dict[str, Any]:
        step = int(record.pop("step"))
        accepted, window = int(record.pop("accepted")), step - self.last_record
        self.nonfinite += int(record.pop("nonfinite"))
        self.last_record = step
        cost = self.cost(step)
        return {
            "step": step,
            "epoch": cost.epoch,
            "evaluations": cost.evaluations,
            "samples": cost.samples,
            "loss": float(record.pop("loss")),
            "acceptance": accepted / window if window else float("nan"),
            "sigma": float(record.pop("sigma")),
            "nonfinite": self.nonfinite,
            "is_frozen": bool(record.pop("is_frozen")),
            **{name.removeprefix("metric:"): float(value) for name, value in record.items()},
        }

    def cost(self, step: int) -> Cost:
        """Return the cost up to `step`, which lies in the present stage."""
        program, data = self.work.stage(self.stage)
        began, epoch, evaluations, samples = self.stage_start
        steps, num_data, batches = step - began, num_samples(data), program.batches
        kept, new = self.algorithm.evaluations(False), self.algorithm.evaluations(True)
        drawn = batches.drawn(steps, num_data)
        return Cost(
            epoch + drawn / max(self.work.num_data, 1),
            evaluations + kept * steps + (new - kept) * batches.new_batches(steps),
            samples + kept * drawn + (new - kept) * batches.new_samples(steps, num_data),
        )

    def _grow(self) -> None:
        cost = self.cost(self.t)
        self.stage += 1
        self.growths.append(self.t)
        program, data = self.work.stage(self.stage)
        self.carry = loop.restart(program, self.algorithm, self.key, self.carry, data)
        self.stage_start = (self.t, cost.epoch, cost.evaluations + 1, cost.samples + self._batch_size(program, data))
        self.status = GOING

    def take_over(self, state: State) -> None:
        """Go on from the state of another chain; where that one sees other data, its loss is not this chain's."""
        # Of its own: the next chunk takes the buffers it is given.
        state = (
            jax.tree.map(lambda leaf: leaf.copy(), state) if self.work.program.layout is None else self.placed(state)
        )
        if self.sees_data_of_its_own:
            program, data = self.work.stage(self.stage)
            state = loop.look_again(program, self.key, state, self.carry.t, data)
            began, epoch, evaluations, samples = self.stage_start
            self.stage_start = (began, epoch, evaluations + 1, samples + self._batch_size(program, data))
        self.carry = self.carry._replace(state=state)

    @property
    def sees_data_of_its_own(self) -> bool:
        """Whether U(x) is known on a batch that other chains do not share and the next step does not renew."""
        batches = self.work.batches
        return isinstance(batches, Progressive) or (isinstance(batches, Minibatch) and self.t % batches.hold != 0)


def num_workers(num_chains: int) -> int:
    """Return how many chains run at a time: one per core, since a step of a small net keeps one core busy."""
    return min(num_chains, num_cores())
