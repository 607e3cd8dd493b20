"""What the loop is made of: the compiled program, the numbers it compares with, and all that changes as it runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jax import lax

from gradless.engine.batches import FullBatch, Minibatch
from gradless.engine.devices.layout import Layout
from gradless.engine.flat import ByIdentity
from gradless.engine.objective import Objective
from gradless.types import Key, State

MAX_STEPS = 1 << 19  # in one chunk: one byte each in the log of accepted steps
MAX_RECORDS = 256  # in one chunk

GOING, AT_TARGET, FROZEN, DIVERGED, READY_TO_GROW = range(5)


@dataclass(frozen=True)
class Program:
    """All that is compiled in; what is not here may change without compiling again."""

    objective: Objective
    batches: FullBatch | Minibatch
    metrics: ByIdentity  # of metrics(params, test) -> dict, or of None
    error: ByIdentity  # of error(params, batch) that makes the batch grow, or of None
    traced: tuple[str, ...] = ()  # the fingerprints of these and of the loss: they may compute with other numbers now
    metric_target: tuple[str, str] | None = None  # a metric's name and ">=" or "<="
    stop_when_frozen: bool = False
    speculates: bool = False  # several proposals a round; how many is among the limits

    @property
    def layout(self) -> Layout | None:
        """The devices of a chain, where there are several."""
        return self.objective.layout

    def run(self, function: Callable[..., Any], data: Any, *others: Any) -> Any:
        """Call function(data, *others) on all devices of the chain, inside of a compiled program."""
        return function(data, *others) if self.layout is None else self.layout.run(function, data, *others)


class Limits(NamedTuple):
    """The numbers that a chunk compares with."""

    until: Any  # the chunk ends before this step
    record_every: Any
    check_every: Any  # how often the error of a growing batch is looked at
    threshold: Any  # the error below which it grows
    target_loss: Any
    target_metric: Any
    ahead: Any  # proposals that each device evaluates in a round of speculation


class Carry(NamedTuple):
    """All that the loop needs to go on from step t; a checkpoint holds just this."""

    t: jax.Array
    state: State
    accepted: jax.Array  # since the last record
    nonfinite: jax.Array  # since the last record
    status: jax.Array  # GOING, or why the chain has ended


class Going(NamedTuple):
    """What changes from step to step within a chunk."""

    carry: Carry
    cursor: Any  # what is remembered of the order of the data
    flags: jax.Array  # which of the chunk's steps were accepted
    rounds: jax.Array  # of speculation
    known: Any = ()  # by speculation: steps that have been looked at

    def after(
        self, state: State, steps: jax.Array | int, is_accepted: jax.Array, nonfinite: jax.Array, first_step: jax.Array
    ) -> "Going":
        """Return the loop after so many steps, the last of which may have been accepted."""
        carry = self.carry
        t = carry.t + steps
        return self._replace(
            carry=carry._replace(
                t=t, state=state, accepted=carry.accepted + is_accepted, nonfinite=carry.nonfinite + nonfinite
            ),
            flags=lax.dynamic_update_index_in_dim(self.flags, is_accepted, t - 1 - first_step, 0),
        )


class Chunk(NamedTuple):
    """What a chunk has to tell."""

    flags: jax.Array  # which of its steps were accepted
    records: Any  # a dict of arrays with one entry per record
    num_records: jax.Array
    rounds: jax.Array  # of speculation


def key_steps(key: Key) -> Key:
    """Return the key from which the noise of step t comes by `fold_in(key, t)`."""
    return jax.random.fold_in(key, 1)


def key_batches(key: Key) -> Key:
    """Return the key from which the order of the data comes."""
    return jax.random.fold_in(key, 2)
