"""The user's arrays in the precision of a run: on the device, or on the host to be spread over several."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradless.engine.flat import are_keys


def as_device(tree: Any, dtype: Any) -> Any:
    """Return the arrays of `tree` on the device, once, with floating-point ones in the precision of the run."""
    wide = jnp.promote_types(dtype, jnp.float32)

    def put(array: Any) -> jax.Array:
        if are_keys(array):
            return array
        array = array if isinstance(array, jax.Array) else np.asarray(array)
        if jnp.issubdtype(array.dtype, jnp.floating):
            return jnp.asarray(array, wide)
        return jnp.asarray(array, _type_without_loss(array))

    return jax.tree.map(put, tree)


def as_host(tree: Any, dtype: Any) -> Any:
    """Return the arrays of `tree` on the host as `as_device` would have them, to be spread over devices."""
    wide = jnp.promote_types(dtype, jnp.float32)

    def cast(array: Any) -> np.ndarray | jax.Array:
        if are_keys(array):
            return array
        array = np.asarray(array)
        kind = wide if jnp.issubdtype(array.dtype, jnp.floating) else _type_without_loss(array)
        return array.astype(kind, copy=False)

    return jax.tree.map(cast, tree)


def _type_without_loss(array: Any) -> Any:
    """Return the type that JAX has for whole numbers in the present precision; refuse numbers too large for it."""
    kind = jax.dtypes.canonicalize_dtype(array.dtype)
    if kind != array.dtype and jnp.issubdtype(kind, jnp.integer) and array.size:
        low, high, bounds = array.min(), array.max(), jnp.iinfo(kind)
        if low < bounds.min or high > bounds.max:
            raise ValueError(
                f"data must hold whole numbers that fit {kind}, got {low} to {high}: give them as floating point, "
                'scaled, or use precision="float64"'
            )
    return kind
