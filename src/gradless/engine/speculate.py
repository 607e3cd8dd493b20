"""Speculation: the coming proposals of a chain evaluated together, as if all but the last were rejected.

After a rejection x, mu and lambda stay, and sigma depends on nothing but the count. So the proposals of steps t, t + 1,
... are known before any of their losses is. A round evaluates several of them at a time, one after the other on each
device, and keeps the first that is accepted. Those behind it are proposed again, with the same random numbers, from
the new state: the chain is that of one step after the other, bit for bit.

Every device makes every decision and every move by itself. What travels is one loss and one decision per proposal.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from gradless.engine.layout import PROPOSALS, gathered, place_among_proposals
from gradless.engine.program import Going
from gradless.engine.stepping import Way, stays
from gradless.kernels.select import refresh, rejected
from gradless.types import Evaluate, Evaluation, State

MAX_AHEAD = 32  # proposals that one device evaluates in a round, at most


class Looked(NamedTuple):
    """What is known of the proposal of one step."""

    is_accepted: jax.Array
    is_finite: jax.Array
    loss: jax.Array  # U(x), which on a minibatch of the step's own is not known before
    loss_new: jax.Array  # U(x')


def go_in_rounds(way: Way, ahead: jax.Array, end: jax.Array, going: Going) -> Going:
    """Make the steps up to `end`, `ahead` proposals per device and round."""

    def rounds(evaluate: Evaluate | None, until: jax.Array, going: Going) -> Going:
        return lax.while_loop(lambda going: going.carry.t < until, partial(_round, way, ahead, evaluate, until), going)

    if way.program.batches.is_redrawn:
        return rounds(None, end, going)
    return stays(way, rounds, end, going)


def _round(way: Way, ahead: jax.Array, evaluate: Evaluate | None, until: jax.Array, going: Going) -> Going:
    """Look at the proposals of the coming steps, and go to the first that is accepted; without one, to the last."""
    first, root = going.carry.t, going.carry.state
    if evaluate is not None:
        root = refresh(root, evaluate, way.program.batches.is_new(first))
    here, devices = place_among_proposals(way.program.layout)
    num = jnp.minimum(ahead * devices, until - first)

    def look(loop: tuple[jax.Array, Any, Looked, jax.Array]) -> tuple[jax.Array, Any, Looked, jax.Array]:
        turn, cursor, table, _ = loop
        cursor, looked = _at(way, evaluate, cursor, root, first + turn * devices + here, partial(_look, way))
        table = jax.tree.map(lambda all_of, new: all_of.at[turn].set(new), table, looked)
        return turn + 1, cursor, table, looked.is_accepted

    def is_open(loop: tuple[jax.Array, Any, Looked, jax.Array]) -> jax.Array:
        turn, _, _, is_accepted = loop
        return (turn < ahead) & (turn * devices + here < num) & ~is_accepted

    no, loss = jnp.zeros(MAX_AHEAD, bool), jnp.zeros(MAX_AHEAD, root.loss.dtype)
    nothing = (jnp.zeros((), jnp.int32), going.cursor, Looked(no, ~no, loss, loss), jnp.zeros((), bool))
    cursor, table = lax.while_loop(is_open, look, nothing)[1:3]

    # From (device, turn) to the order of the steps. What a device has not looked at lies behind its own acceptance.
    table = jax.tree.map(lambda all_of: all_of.T.ravel(), gathered(way.program.layout, PROPOSALS, table))
    is_accepted = jnp.any(table.is_accepted)
    last = jnp.where(is_accepted, jnp.argmax(table.is_accepted), num - 1).astype(first.dtype)
    looked = jax.tree.map(lambda all_of: all_of[last], table)
    nonfinite = jnp.sum(~table.is_finite & (jnp.arange(len(table.is_finite)) <= last), dtype=first.dtype)

    cursor, state = _at(way, evaluate, cursor, root, first + last, partial(_step, way, looked))
    going = going._replace(cursor=cursor, rounds=going.rounds + 1)
    return going.after(state, last + 1, looked.is_accepted, nonfinite, way.first_step)


def _at(way: Way, evaluate: Evaluate | None, cursor: Any, root: State, t: jax.Array, act: Any) -> tuple[Any, Any]:
    """Let `act` use the noise, the data and the state of step t, if every step from the root to it is rejected."""
    state = lax.while_loop(lambda state: state.n < t, partial(rejected, way.algorithm), root)
    noise = way.noise(t, root.x)
    if evaluate is not None:
        return cursor, act(noise, state, evaluate, False)
    return way.with_data(cursor, t, lambda evaluate, is_new: act(noise, state, evaluate, is_new))


def _look(way: Way, noise: Any, state: State, evaluate: Evaluate, is_new: bool | jax.Array) -> Looked:
    algorithm: Any = way.algorithm
    state = refresh(state, evaluate, is_new)
    proposal = algorithm.propose(noise, state)
    evaluation = evaluate(proposal.x)
    info = algorithm.decide(noise, state, proposal, evaluation)[1]
    return Looked(info.is_accepted, info.is_finite, state.loss, evaluation.loss)


def _step(way: Way, looked: Looked, noise: Any, state: State, evaluate: Evaluate, is_new: bool | jax.Array) -> State:
    """Make the step that has been looked at, perhaps by another device.

    Its losses are known; lambda is not, and is computed again, so that it need not be sent.
    """
    algorithm: Any = way.algorithm
    has_lambda = bool(way.program.objective.signal_norm)
    state = refresh(state, evaluate, is_new if has_lambda else False)._replace(loss=looked.loss)
    proposal = algorithm.propose(noise, state)
    evaluation = Evaluation(looked.loss_new)
    if has_lambda:
        lam = lax.cond(looked.is_accepted, lambda: evaluate(proposal.x).lam, lambda: state.lam)
        evaluation = evaluation._replace(lam=lam)
    return algorithm.decide(noise, state, proposal, evaluation)[0]
