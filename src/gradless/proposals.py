"""The Gaussian move of all parameters at once, and the random numbers behind it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gradless import threefry
from gradless.types import Key


class Noise(NamedTuple):
    """All the random numbers of one Metropolis step."""

    normal: jax.Array  # a standard normal number for each parameter
    xi: jax.Array | None  # uniform on (0, 1], for the decision; None at zero temperature


class Proposal(NamedTuple):
    """A proposed move: where it leads and the displacement that leads there."""

    x: jax.Array
    eps: jax.Array


def draw(key: Key, x: jax.Array, with_xi: bool) -> Noise:
    """Return the noise of one step; the same key gives the same `normal` at every temperature."""
    key_move, key_decision = threefry.split(key)
    normal = rounded(threefry.normal(key_move, x.shape, working_dtype(x)))
    xi = 1 - jax.random.uniform(key_decision, (), working_dtype(x)) if with_xi else None
    return Noise(normal, xi)


def working_dtype(x: jax.Array) -> Any:
    """Return the precision of noise, sigma, lambda and mu: that of x, but float32 at least."""
    return jnp.promote_types(x.dtype, jnp.float32)


def move(x: jax.Array, eps: jax.Array) -> Proposal:
    """Return the proposal x' = x + eps, in the precision of x. Paper: Eqs. (1) and (9)."""
    return Proposal((x + eps).astype(x.dtype), eps)


def rounded(product: jax.Array) -> jax.Array:
    """Return `product` unchanged, rounded to its own precision before it is used any further.

    A compiler may contract a * b + c into one operation with a single rounding, or take a * (b * c) for (a * b) * c,
    and whether it does depends on the program around it. Then the same step would move x differently in the loop, in
    a replay and in a round of speculation. A bound that never binds stands in between and forbids both.
    """
    largest = jnp.finfo(product.dtype).max
    return jnp.clip(product, -largest, largest)
