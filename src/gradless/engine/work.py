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
    held: dict[int, Any] = field(default_factory=dict)  # the growing batch, by the sizes it has had
    source: Any = None  # the data on the host, from which a growing batch is spread over devices
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
                self.held[size] = self._first(order[:size])
            return self.held[size]

    def _first(self, order: jax.Array) -> Any:
        layout = self.program.layout
        return rows(self.data, order) if layout is None else layout.place(rows(self.source, order), is_split=True)

    def limits(self, until: int, ahead: int = 1) -> Limits:
        """Return the numbers that a chunk compares with, of the host: every device takes them as they are."""
        growth = (self.batches.check_every, self.batches.threshold) if isinstance(self.batches, Progressive) else NEVER
        real = np.dtype(jnp.result_type(float))
        return Limits(
            until=np.int32(until),
            record_every=np.int32(self.record_every),
            check_every=np.int32(growth[0]),
            threshold=real.type(growth[1]),
            target_loss=real.type(self.target_loss),
            target_metric=real.type(self.target_metric),
            ahead=np.int32(ahead),
        )
