"""A part of a program that is compiled by itself, whatever stands around it.

A compiler merges an operation into those that use its result. That can change the last bit of a sum, and can draw the
same random numbers again wherever one of them is needed. What stands in a branch is compiled by itself, and what a
branch returns is in memory; so the part is put into a branch that is always taken, which the compiler cannot know.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def apart(function: Callable[..., Any], witness: jax.Array, *args: Any) -> Any:
    """Return function(witness, *args), computed apart; the witness is an array, not empty, unknown while compiling."""
    function = jax.jit(function)  # traced once
    shapes = jax.eval_shape(function, witness, *args)

    def never(*_: Any) -> Any:
        return jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), shapes)

    return lax.cond(unknown_zero(witness) == 0, function, never, witness, *args)


def unknown_zero(witness: jax.Array) -> jax.Array:
    """Return a whole number that is always 0, which the compiler cannot know."""
    is_key = jnp.issubdtype(witness.dtype, jax.dtypes.prng_key)
    first = jnp.real(jnp.ravel(jax.random.key_data(witness) if is_key else witness)[0])
    number = first if jnp.issubdtype(first.dtype, jnp.floating) else first.astype(jnp.uint8)
    bits = lax.bitcast_convert_type(number, jnp.dtype(f"uint{8 * number.dtype.itemsize}"))
    return lax.population_count(bits) >> 7  # of at most 64
