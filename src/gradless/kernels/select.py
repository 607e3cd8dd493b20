"""What every Metropolis kernel does with a whole state: look again at new data, keep one of two, reject unseen."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from gradless.proposals import Proposal
from gradless.types import Evaluate, Evaluation, State

S = TypeVar("S", bound=Any)


def select(is_accepted: jax.Array, moved: S, stayed: S) -> S:
    """Return `moved` or `stayed`, whole: no parameter is ever restored by subtracting what was added."""
    return jax.tree.map(lambda new, old: new if new is old else jnp.where(is_accepted, new, old), moved, stayed)


def refresh(state: S, evaluate: Evaluate, is_new_batch: bool | jax.Array) -> S:
    """Return the state with U(x), and what else came from the pass, on the data behind `evaluate`.

    A loss kept from another batch is not U(x) on this one, and judging x' against it is wrong.
    `is_new_batch` is False for a fixed batch, which then costs nothing here.
    """

    if is_new_batch is False:
        return state
    if is_new_batch is True:
        return renewed(state, evaluate(state.x))
    # A branch copies what it passes on, and x does not change.
    seen = jax.lax.cond(
        is_new_batch, lambda: renewed(state, evaluate(state.x))._replace(x=()), lambda: state._replace(x=())
    )
    return seen._replace(x=state.x)


def renewed(state: S, evaluation: Evaluation) -> S:
    """Return the state with what an evaluation of its x tells: U(x), and lambda or the gradient if asked for."""
    known = {name: value for name, value in evaluation._asdict().items() if value is not None}
    return state._replace(**known)


def rejected(algorithm: Any, state: State) -> State:
    """Return the state after one more rejection: whatever was proposed, the NaN of its loss is never accepted."""
    unused = jax.tree.map(
        lambda like: jnp.ones(like.shape, like.dtype), jax.eval_shape(algorithm.draw, jax.random.key(0), state.x)
    )
    evaluation = Evaluation(jnp.full_like(state.loss, jnp.nan))
    return algorithm.decide(unused, state, Proposal(state.x, state.x), evaluation)[0]
