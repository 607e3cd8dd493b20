"""Any pytree of parameters as one flat vector x, as the paper writes it, and back."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import compress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradless.types import Params


class ByIdentity:
    """Holds anything, and is equal only to a holder of the very same object: a static argument for jit."""

    def __init__(self, held: Any):
        self.held = held

    def __hash__(self) -> int:
        return id(self.held)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.held is other.held


class ByContent:
    """Holds a copy of a NumPy array, and is equal to a holder of the same numbers: what the caller changes is seen."""

    def __init__(self, array: np.ndarray):
        self.held = array.copy()
        self.held.flags.writeable = False
        self._hash = hash((array.dtype.str, array.shape, array.tobytes()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ByContent) or self._hash != other._hash:
            return False
        one, two = self.held, other.held
        return one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()


def which_are_trained(params: Params) -> list[bool]:
    """Return for each leaf whether it is a parameter: a floating-point array or number; all else rides along unchanged.

    A plain number inside of a module, such as the rate of an equinox dropout, is a setting of it.
    """
    found = []
    for part in jax.tree.leaves(params, is_leaf=_is_module):
        found += [_is_array(leaf) for leaf in jax.tree.leaves(part)] if _is_module(part) else [_is_number(part)]
    return found


def _is_module(node: Any) -> bool:
    return dataclasses.is_dataclass(node) and not isinstance(node, type)


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, float) or _is_array(leaf)


def _check_array(leaf: Any) -> None:
    """Refuse what NumPy has and JAX has not."""
    if isinstance(leaf, np.ma.MaskedArray):
        raise ValueError("params must be plain arrays, got a masked one: fill it, as by array.filled(0)")
    if np.dtype(getattr(leaf, "dtype", float)).itemsize > 8:
        raise ValueError(f"params must be float64 at most, got {leaf.dtype}: convert it, as by array.astype(float)")


@dataclass(frozen=True)
class Flattening:
    """How the leaves of a pytree lie in the flat vector x."""

    treedef: Any
    fixed: tuple[ByIdentity | ByContent | None, ...]  # what is not trained, None where a parameter stands
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]
    dtype: Any  # of x

    @classmethod
    def of(cls, params: Params, precision: str | None = None) -> "Flattening":
        """Read the layout of `params`; `precision` overrides the parameters' own dtypes."""
        leaves, treedef = jax.tree.flatten(params)
        is_trained = which_are_trained(params)
        trained = list(compress(leaves, is_trained))
        for leaf in trained:
            _check_array(leaf)
        if sum(int(np.size(leaf)) for leaf in trained) == 0:
            hint = ": a plain number in a module is a setting of it" if any(map(_is_number, leaves)) else ""
            raise ValueError(f"params must hold at least one floating-point array, got none{hint}")
        own = [_dtype(leaf) for leaf in trained]
        with jax.enable_x64(True):  # so that float64 parameters are seen as such
            dtype = np.dtype(precision) if precision else np.dtype(jnp.result_type(*own))
        return cls(
            treedef,
            tuple(None if mine else _constant(leaf) for leaf, mine in zip(leaves, is_trained, strict=True)),
            tuple(np.shape(leaf) for leaf in trained),
            tuple(dtype if precision else leaf_dtype for leaf_dtype in own),
            dtype,
        )

    def check(self, params: Params) -> None:
        """Refuse another chain's parameters if more differs in them than the numbers that are trained."""
        leaves = jax.tree.leaves(params)
        shapes = tuple(np.shape(leaf) for leaf in compress(leaves, which_are_trained(params)))
        if len(leaves) != len(self.fixed) or shapes != self.shapes:
            raise ValueError(f"params must have the same shapes in every chain, got {self.shapes} and {shapes}")
        for fixed, leaf in zip(self.fixed, leaves, strict=True):
            if fixed is not None and _is_numbers(leaf) and not _are_equal(fixed.held, leaf):
                raise ValueError(
                    f"params must have the same untrained numbers in every chain, got {fixed.held} and {leaf}: "
                    "make them floating-point to train them, or run each chain alone, as chains=[3]"
                )

    @property
    def num_parameters(self) -> int:
        """N, the length of x."""
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """How many numbers each trained leaf holds."""
        return [int(np.prod(shape, dtype=np.int64)) for shape in self.shapes]

    def flatten(self, params: Params) -> jax.Array:
        """Return x."""
        leaves = compress(jax.tree.leaves(params), which_are_trained(params))
        return jnp.concatenate([jnp.ravel(jnp.asarray(leaf)).astype(self.dtype) for leaf in leaves])

    def unflatten(self, x: jax.Array) -> Params:
        """Return the pytree whose parameters are x; leading axes of x, over chains, lead in every parameter.

        NumPy's arrays stay NumPy's: float64 needs no permission there.
        """
        if isinstance(x, np.ndarray):
            parts = np.split(x, np.cumsum(self.sizes)[:-1], axis=-1)
        else:  # a split, since its gradient is one concatenation; that of slices adds up a vector like x for each leaf
            parts = jax.lax.split(x, self.sizes, axis=x.ndim - 1)
        return self._join(
            part.reshape((*x.shape[:-1], *shape)).astype(dtype)
            for part, shape, dtype in zip(parts, self.shapes, self.dtypes, strict=True)
        )

    def abstract(self) -> Params:
        """Return the pytree with the shapes of its parameters in their place."""
        shapes = zip(self.shapes, self.dtypes, strict=True)
        return self._join(jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes)

    def some_x(self) -> jax.ShapeDtypeStruct:
        """Return the shape of x."""
        return jax.ShapeDtypeStruct((self.num_parameters,), self.dtype)

    def _join(self, trained: Iterable[Any]) -> Params:
        trained = iter(trained)
        leaves = [next(trained) if fixed is None else fixed.held for fixed in self.fixed]
        return jax.tree.unflatten(self.treedef, leaves)


def are_keys(leaf: Any) -> bool:
    """Return whether a leaf holds keys of random numbers, which NumPy has no type for."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.extended)


def _constant(leaf: Any) -> ByIdentity | ByContent:
    is_plain = isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject
    return ByContent(leaf) if is_plain else ByIdentity(leaf)


def _is_numbers(leaf: Any) -> bool:
    """Return whether a leaf that is not trained is made of numbers, which a loss can compute with."""
    return isinstance(leaf, int | float | complex | np.ndarray | np.generic | jax.Array) and not are_keys(leaf)


def _are_equal(one: Any, other: Any) -> bool:
    return one is other or np.array_equal(one, other)


def _dtype(leaf: Any) -> Any:
    return jnp.zeros(()).dtype if isinstance(leaf, float) else np.dtype(leaf.dtype)
