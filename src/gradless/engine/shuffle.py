"""The data in random order, place by place: to sort tens of thousands of samples takes longer than many steps on them.

A place p below n is written with two digits, p = left * side + right, where side is the least whole number whose square
is n or more. Each digit in turn is moved around its circle by a random number that depends on the other digit: a
Feistel network, which maps the places of the square one to one onto each other. Whatever lands at n or beyond is mapped
again until it lands below, which keeps it one to one.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax

from gradless.types import Key

ROUNDS = 12  # after 4 pairs of neighbours are still to be seen, after 8 no more
MAX_SORTED = 256  # samples; so few are sorted, by random numbers: every order is as likely as any other


def draw_order(key: Key, num_data: int) -> jax.Array:
    """Draw the random shifts of the Feistel rounds; for few samples, their order itself."""
    if num_data <= MAX_SORTED:
        return jax.random.permutation(key, num_data)
    side = math.isqrt(num_data - 1) + 1
    return (jax.random.bits(key, (ROUNDS, side), jnp.uint32) % side).astype(jnp.int32)


def in_order(order: jax.Array, places: jax.Array, num_data: int) -> jax.Array:
    """Return which samples stand at these places of the order."""
    if num_data <= MAX_SORTED:
        return order[places]
    side = order.shape[1]

    def mapped(place: jax.Array) -> jax.Array:
        left, right = jnp.divmod(place, side)
        for moves in order:
            left, right = right, (left + moves[right]) % side
        return left * side + right

    return lax.while_loop(
        lambda place: jnp.any(place >= num_data),
        lambda place: jnp.where(place >= num_data, mapped(place), place),
        mapped(places),
    )
