"""Data in equal parts, on one device or several: a loss that is a mean or a sum over samples, added up part by part.

The number of parts belongs to the run, not to the machine: a device may hold several of them, and the sums are taken
in the order of the parts. So the chain is the same, bit for bit, on however many devices the parts are spread.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add, itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradless.apart import apart
from gradless.engine.batches import num_samples
from gradless.engine.devices.layout import DATA, Layout, gathered

NUM_CHECKED = 8  # samples on which the loss is seen to be a mean or a sum


@dataclass(frozen=True)
class Shards:
    """How the data are divided, and what the loss of all is in terms of the parts' losses."""

    number: int
    reduction: str  # "mean" or "sum"

    def loss(self, parts: list[jax.Array]) -> jax.Array:
        """Return U from the losses of all parts."""
        total = reduce(add, parts)
        return total / self.number if self.reduction == "mean" else total

    def all_parts(
        self, layout: Layout | None, batch: Any, terms_of: Callable[[Any], Any], look: Callable[..., Any]
    ) -> Callable[[jax.Array], list[Any]]:
        """Return a function of x that gives look(x, part, terms of the part) for every part, wherever it lies."""
        here = self.number // (1 if layout is None else layout.data)
        size = num_samples(batch) // here
        parts = [_rows(batch, place * size, size) for place in range(here)]
        terms = [terms_of(part) for part in parts]

        def look_at(x: jax.Array, place: int) -> Any:
            return apart(look, x, parts[place], terms[place])

        def everywhere(x: jax.Array) -> list[Any]:
            found = jax.tree.map(lambda *each: jnp.stack(each), *[look_at(x, place) for place in range(here)])
            found = gathered(layout, DATA, found)
            in_order = jax.tree.map(lambda all_of: all_of.reshape(self.number, *all_of.shape[2:]), found)
            return [jax.tree.map(itemgetter(place), in_order) for place in range(self.number)]

        return everywhere


def _rows(data: Any, begin: int, size: int) -> Any:
    return jax.tree.map(lambda array: array[begin : begin + size], data)


def reduction_of(value: Callable[[jax.Array, Any], jax.Array], x: jax.Array, data: Any) -> str:
    """Return whether a loss is a mean or a sum over samples; refuse one that is neither, as seen on a few of them."""
    # Not at x itself: where all samples have the same loss, a mean of roots is the root of the mean.
    x = x + 0.3 * jax.random.normal(jax.random.key(0), x.shape, x.dtype)
    # From the first to the last: what makes a loss no plain mean, such as a mask, may come at the end.
    places = np.unique(np.linspace(0, num_samples(data) - 1, NUM_CHECKED).astype(int))
    few = jax.tree.map(lambda array: array[places], data)
    number = len(places)
    compiled = jax.jit(value)
    together = float(compiled(x, few))
    alone = np.asarray([float(compiled(x, _rows(few, place, 1))) for place in range(number)])
    tolerance = 1e-4 * np.abs(alone).sum()  # for float32 sums; another kind of loss is off by percents
    if abs(together - alone.mean()) <= tolerance / number:
        return "mean"
    if abs(together - alone.sum()) <= tolerance:
        return "sum"
    raise ValueError(
        "a mesh with data > 1 needs a loss that is a mean or a sum over samples: "
        f"this one is {together:.6g} on {number} samples, whose own losses have the mean {alone.mean():.6g}"
    )
