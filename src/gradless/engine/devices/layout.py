"""The devices of one chain: proposals side by side, and each device with its share of the data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

PROPOSALS, DATA = "proposals", "data"


@dataclass(frozen=True)
class Layout:
    """A grid of devices with the axes `proposals` and `data`.

    Every device holds the whole state of the chain and makes every decision; only losses and decisions travel.
    """

    mesh: Mesh

    @classmethod
    def of(cls, devices: np.ndarray) -> "Layout":
        """Return the layout of a grid of devices, proposals along its first axis."""
        return cls(Mesh(devices, (PROPOSALS, DATA)))

    @property
    def proposals(self) -> int:
        """Number of proposals that are evaluated at a time."""
        return self.mesh.shape[PROPOSALS]

    @property
    def data(self) -> int:
        """Number of devices that share the data."""
        return self.mesh.shape[DATA]

    def place(self, tree: Any, is_split: bool = False) -> Any:
        """Return arrays on all devices: whole, or each with its share of the rows; nothing is sent."""
        sharding = NamedSharding(self.mesh, PartitionSpec(DATA) if is_split else PartitionSpec())

        def put(array: Any) -> jax.Array:
            if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
                data = put(jax.random.key_data(array))
                return jax.random.wrap_key_data(data, impl=jax.random.key_impl(array))
            host = np.asarray(array)
            return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

        return jax.tree.map(put, tree)

    def run(self, function: Callable[..., Any], data: Any, *others: Any) -> Any:
        """Call function(data, *others) on all devices, inside of a compiled program; all return the same."""
        specs = (PartitionSpec(DATA), *(PartitionSpec() for _ in others))
        spread = jax.shard_map(function, mesh=self.mesh, in_specs=specs, out_specs=PartitionSpec(), check_vma=False)
        return spread(data, *others)


def place_among_proposals(layout: Layout | None) -> tuple[Any, int]:
    """Return which of the proposals of a round this device evaluates first, and how many devices share them."""
    return (0, 1) if layout is None else (lax.axis_index(PROPOSALS), layout.proposals)


def gathered(layout: Layout | None, axis: str, tree: Any) -> Any:
    """Return what all devices along an axis have, stacked in their order; all of it travels in one message."""
    if layout is None:
        return jax.tree.map(lambda one: one[None], tree)
    leaves, structure = jax.tree.flatten(tree)
    words = [_as_words(leaf) for leaf in leaves]
    everyone = lax.all_gather(jnp.concatenate([one.ravel() for one in words]), axis)
    parts = jnp.split(everyone, np.cumsum([one.size for one in words])[:-1], axis=1)
    found = [
        _from_words(part.reshape(-1, *one.shape), leaf.dtype)
        for part, one, leaf in zip(parts, words, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, found)


NARROW = {1: jnp.uint8, 2: jnp.uint16}  # whole numbers as wide as a dtype, by its bytes


def _as_words(array: jax.Array) -> jax.Array:
    """Return the same bits as words of 32, of which narrower numbers take one each."""
    if array.dtype == np.bool_:
        return array.astype(jnp.uint32)
    width = NARROW.get(array.dtype.itemsize, jnp.uint32)
    return lax.bitcast_convert_type(array, width).astype(jnp.uint32)


def _from_words(words: jax.Array, dtype: Any) -> jax.Array:
    if dtype == np.bool_:
        return words.astype(bool)
    width = NARROW.get(np.dtype(dtype).itemsize, jnp.uint32)
    return lax.bitcast_convert_type(words.astype(width), dtype)
