"""What all chains of a run share: the program, the data, the numbers that a chunk compares with."""

import dataclasses
import threading
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradless.engine.batches import FullBatch, Minibatch, Progressive, num_samples, rows
from gradless.engine.flat import ByIdentity
from gradless.engine.program import Limits, Program
from gradless.types import Key

NEVER = (int(np.iinfo(np.int32).max), 0.0)  # a batch that does not grow is never looked at


@dataclass(frozen=True)
class Work:
    """What all chains of a run share."""

    program: Program
    batches: FullBatch | Minibatch | Progressive
    data: Any
    test: Any
    key_order: Key  # of the order in which a growing batch takes up the data
    record_every: int
    target_loss: float
    target_metric: float
    held: dict[int, Any] = field(default_factory=dict)  # the growing batch at its present sizes
    compiled: set[Any] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    compile_seconds: list[float] = field(default_factory=list)

    @property
    def num_data(self) -> int:
        """Number of samples, 0 without data."""
        return num_samples(self.data)

    def stage(self, number: int) -> tuple[Program, Any]:
        """Return the program and the data after `number` growths of a progressive batch."""
        if not isinstance(self.batches, Progressive):
            return self.program, self.data
        size = self.batches.size(number, self.num_data)
        is_last = size == self.num_data
        error = None if is_last else self.batches.error
        inner = Minibatch(size, "iid") if self.batches.redraw else FullBatch()
        program = dataclasses.replace(self.program, batches=inner, error=ByIdentity(error))
        return program, self.data if is_last or self.batches.redraw else self._held(size)

    def _held(self, size: int) -> Any:
        with self.lock:
            if size not in self.held:
                order = jax.random.permutation(self.key_order, self.num_data)
                self.held[size] = rows(self.data, order[:size])
            return self.held[size]

    def limits(self, until: int, ahead: int = 1) -> Limits:
        """Return the numbers that a chunk compares with."""
        growth = (self.batches.check_every, self.batches.threshold) if isinstance(self.batches, Progressive) else NEVER
        return Limits(
            until=jnp.asarray(until, jnp.int32),
            record_every=jnp.asarray(self.record_every, jnp.int32),
            check_every=jnp.asarray(growth[0], jnp.int32),
            threshold=jnp.asarray(growth[1], jnp.float32),
            target_loss=jnp.asarray(self.target_loss, jnp.result_type(float)),
            target_metric=jnp.asarray(self.target_metric, jnp.result_type(float)),
            ahead=jnp.asarray(ahead, jnp.int32),
        )
