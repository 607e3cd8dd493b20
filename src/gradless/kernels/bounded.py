"""A Metropolis kernel between walls: a proposal that leads outside is reflected back in."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gradless.proposals import Noise, Proposal
from gradless.types import Evaluation, Info, Key, State


class Bounded(NamedTuple):
    """Any Metropolis kernel with low <= x <= high.

    The images of a Gaussian in two mirrors are seen alike from x and from x', so that with mu = 0 a reflected proposal
    is as likely as its reverse, and the Metropolis rule stays right. A proposal that stays inside is untouched.

    Differs: the paper has no bounds. mu follows the displacement x' - x after the reflection, which is the one that
    was made.
    """

    algorithm: Any
    low: Any  # an array; -inf where there is no wall
    high: Any

    def init(self, x: jax.Array, evaluation: Evaluation) -> State:
        """Start at x as the kernel does."""
        return self.algorithm.init(x, evaluation)

    def draw(self, key: Key, x: jax.Array) -> Noise:
        """Draw the kernel's own noise."""
        return self.algorithm.draw(key, x)

    def propose(self, noise: Noise, state: State) -> Proposal:
        """Propose the kernel's move, reflected at the walls."""
        free = self.algorithm.propose(noise, state)
        low, high = self.low.astype(free.x.dtype), self.high.astype(free.x.dtype)
        is_inside = (low <= free.x) & (free.x <= high)
        x = jnp.where(is_inside, free.x, reflect(free.x, low, high))
        return Proposal(x, jnp.where(is_inside, free.eps, (x - state.x).astype(free.eps.dtype)))

    def decide(self, noise: Noise, state: State, proposal: Proposal, evaluation: Evaluation) -> tuple[State, Info]:
        """Accept or reject as the kernel does."""
        return self.algorithm.decide(noise, state, proposal, evaluation)


def reflect(x: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """Return x folded into [low, high], as often as it takes; between walls that touch there is one point."""
    width = high - low
    is_between = jnp.isfinite(width) & (width > 0)
    period = jnp.where(is_between, 2 * width, 1)
    along = jnp.mod(x - low, period)
    between = low + jnp.minimum(along, period - along)
    beyond_one = jnp.where(x < low, 2 * low - x, 2 * high - x)
    return jnp.clip(jnp.where(is_between, between, beyond_one), low, high)
