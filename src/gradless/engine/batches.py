"""Which data a step sees: the whole set, minibatches, or a batch that grows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from gradless.engine.shuffle import draw_order, in_order
from gradless.settings import FRACTION, check
from gradless.types import Key

Act = Callable[[Any, bool | jax.Array], Any]  # what to do with a batch, given whether it is new


def rows(data: Any, index: jax.Array) -> Any:
    """Return the samples at `index` from every array of `data`."""
    return jax.tree.map(lambda array: jnp.take(array, index, axis=0), data)


def num_samples(data: Any) -> int:
    """Return the length of the leading axis that all arrays of `data` share; 0 without data."""
    lengths = sorted({array.shape[0] for array in jax.tree.leaves(data)})
    return lengths[0] if lengths else 0


@dataclass(frozen=True)
class FullBatch:
    """Every step sees all the data; U(x) is known from the step before. Paper: batch learning, Sec. II A."""

    is_fixed: ClassVar[bool] = True
    is_redrawn: ClassVar[bool] = False  # at every step

    def check(self, num_data: int) -> None:
        """Nothing to refuse."""

    def open(self, num_data: int) -> Any:
        """Return what has to be remembered between steps: nothing."""
        return ()

    def visit(self, cursor: Any, key: Key, t: jax.Array, data: Any, act: Act) -> tuple[Any, Any]:
        """Act on the data of step t."""
        return cursor, act(data, False)

    def is_new(self, t: jax.Array) -> bool:
        """Return whether step t begins with other data than the step before."""
        return False

    def stay(self, t: jax.Array, end: jax.Array) -> jax.Array:
        """Return the step, at most `end`, up to which the data of step t stay."""
        return end

    def drawn(self, steps: int, num_data: int) -> int:
        """Return how many samples the batches of the first `steps` steps held."""
        return steps * max(num_data, 1)

    def new_batches(self, steps: int) -> int:
        """Return how many of the first `steps` steps began with a new batch."""
        return 0

    def new_samples(self, steps: int, num_data: int) -> int:
        """Return how many samples those new batches held."""
        return 0


@dataclass(frozen=True)
class Minibatch:
    """Steps see small parts of the data, shuffled without replacement or drawn independently (`iid`).

    Paper: Secs. II D and II F. The last part of a shuffled epoch is kept though it is shorter.
    """

    is_fixed: ClassVar[bool] = False

    size: int
    sampling: str = "shuffle"
    hold: int = 1

    def __post_init__(self) -> None:
        for name in ("size", "hold"):
            _make_whole(self, name, f"{name} of a minibatch", least=1)
        if self.sampling not in ("shuffle", "iid"):
            raise ValueError(f'sampling must be "shuffle" or "iid", got {self.sampling!r}')

    def check(self, num_data: int) -> None:
        """Refuse a minibatch larger than the data."""
        if num_data == 0:
            raise ValueError("minibatches need data, got none: give data=, or use gl.full_batch()")
        if self.size > num_data:
            raise ValueError(f"size of a minibatch must be at most the {num_data} samples there are, got {self.size}")

    def per_epoch(self, num_data: int) -> int:
        """Return how many minibatches make one pass over the data, the short last one included."""
        return -(-num_data // self.size)

    @property
    def is_redrawn(self) -> bool:
        """Whether every step sees a minibatch of its own."""
        return self.hold == 1

    def is_new(self, t: jax.Array) -> bool | jax.Array:
        """Return whether step t begins with other data than the step before."""
        return True if self.is_redrawn else t % self.hold == 0

    def stay(self, t: jax.Array, end: jax.Array) -> jax.Array:
        """Return the step, at most `end`, up to which the minibatch of step t is held."""
        return t + jnp.minimum(end - t, self.hold - t % self.hold)

    def open(self, num_data: int) -> Any:
        """Return an epoch and the order of the data in it, to be remembered between steps: none is known yet.

        The first step draws it, as the first of every epoch does: drawn here, it would be compiled twice.
        """
        if self.sampling == "iid":
            return ()
        order = jax.eval_shape(lambda key: draw_order(key, num_data), jax.random.key(0))
        return jnp.int32(-1), jnp.zeros(order.shape, order.dtype)

    def visit(self, cursor: Any, key: Key, t: jax.Array, data: Any, act: Act) -> tuple[Any, Any]:
        """Act on the data of step t."""
        num_data = num_samples(data)
        drawing = t // self.hold
        is_new = self.is_new(t)
        if self.sampling == "iid":
            index = jax.random.randint(jax.random.fold_in(key, drawing), (self.size,), 0, num_data, jnp.int32)
            return cursor, act(rows(data, index), is_new)

        epoch, place = jnp.divmod(drawing, self.per_epoch(num_data))
        known, order = cursor
        order = jax.lax.cond(
            epoch == known, lambda: order, lambda: draw_order(jax.random.fold_in(key, epoch), num_data)
        )
        cursor = epoch.astype(known.dtype), order

        def see(length: int) -> Any:
            places = place.astype(jnp.int32) * self.size + jnp.arange(length, dtype=jnp.int32)
            return act(rows(data, in_order(order, places, num_data)), is_new)

        last = num_data % self.size
        if not last:
            return cursor, see(self.size)
        is_last = place == self.per_epoch(num_data) - 1
        return cursor, jax.lax.cond(is_last, lambda: see(last), lambda: see(self.size))

    def drawn(self, steps: int, num_data: int) -> int:
        """Return how many samples the batches of the first `steps` steps held."""
        drawings, rest = divmod(steps, self.hold)
        return self.hold * self._samples(drawings, num_data) + rest * (
            self._samples(drawings + 1, num_data) - self._samples(drawings, num_data)
        )

    def _samples(self, drawings: int, num_data: int) -> int:
        if self.sampling == "iid":
            return drawings * self.size
        epochs, place = divmod(drawings, self.per_epoch(num_data))
        return epochs * num_data + place * self.size

    def new_batches(self, steps: int) -> int:
        """Return how many of the first `steps` steps began with a new batch."""
        return -(-steps // self.hold)

    def new_samples(self, steps: int, num_data: int) -> int:
        """Return how many samples those new batches held."""
        return self._samples(self.new_batches(steps), num_data)


@dataclass(frozen=True)
class Progressive:
    """A held batch that grows by `factor` whenever its error falls below `threshold`. Paper: Sec. II F.

    The batch contains the one before it, and the algorithm starts again from sigma_0 and mu = 0 at each growth.
    The error is looked at every `check_every` steps.
    Differs: the paper does not say whether the batch is held; redrawn at every step (`redraw=True`) a net of 500
    images does not get below 10% error, see docs/notation.md.
    """

    start: int
    error: Callable[..., jax.Array]
    threshold: float = 0.1
    factor: int = 2
    redraw: bool = False
    check_every: int = 10

    def __post_init__(self) -> None:
        for name, least in (("start", 1), ("factor", 2), ("check_every", 1)):
            _make_whole(self, name, name, least)
        if not callable(self.error):
            raise ValueError(f"error must be a function error(params, batch), got {self.error!r}")
        check("threshold", self.threshold, FRACTION)

    def check(self, num_data: int) -> None:
        """Refuse a first batch larger than the data."""
        if num_data == 0:
            raise ValueError("progressive batches need data, got none: give data=")
        if self.start > num_data:
            raise ValueError(f"start must be at most the {num_data} samples there are, got {self.start}")

    def size(self, stage: int, num_data: int) -> int:
        """Return the size of the batch after `stage` growths."""
        return min(self.start * self.factor**stage, num_data)


def _make_whole(batches: Any, name: str, words: str, least: int) -> None:
    """Refuse what is not a whole number; one of NumPy's becomes Python's own, whose type the compiler does not keep."""
    value = getattr(batches, name)
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{words} must be a whole number of at least {least}, got {value!r}")
    object.__setattr__(batches, name, int(value))


Batches = FullBatch | Minibatch | Progressive


def full_batch() -> FullBatch:
    """Let every step see all the data."""
    return FullBatch()


def minibatch(size: int, sampling: str = "shuffle", hold: int = 1) -> Minibatch:
    """Let steps see a few samples at a time.

    size: samples in a minibatch.
    sampling: "shuffle" goes through the data without replacement; "iid" draws every minibatch independently.
    hold: how many moves are made on each minibatch.
    """
    return Minibatch(size, sampling, hold)


def progressive(
    start: int,
    error: Callable[..., jax.Array],
    threshold: float = 0.1,
    factor: int = 2,
    redraw: bool = False,
    check_every: int = 10,
) -> Progressive:
    """Let steps see a held batch that grows while training goes on. Paper: Sec. II F.

    start: samples in the first batch.
    error: `error(params, batch)`, one number such as the fraction of wrong answers.
    threshold: the batch grows when its error is below this.
    factor: by how much it grows.
    redraw: draw the batch anew at every step instead of holding it.
    check_every: steps between two looks at the error.
    """
    return Progressive(start, error, threshold, factor, redraw, check_every)
