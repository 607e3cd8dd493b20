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

from gradless.apart import apart
from gradless.engine.devices.layout import PROPOSALS, gathered, place_among_proposals
from gradless.engine.program import Going
from gradless.engine.stepping import Way, stays
from gradless.kernels.select import refresh, rejected
from gradless.types import Evaluate, Evaluation, State

MAX_AHEAD = 32  # proposals that one device evaluates in a round, at most: a bit of a word for each


class Looked(NamedTuple):
    """What is known of the proposal of one step."""

    is_accepted: jax.Array
    is_finite: jax.Array
    loss: jax.Array  # U(x), which on a minibatch of the step's own is not known before
    loss_new: jax.Array  # U(x')


class Report(NamedTuple):
    """What a device tells of its proposals in a round: all that travels."""

    turns: jax.Array  # how many it has looked at, up to the first that is accepted
    nonfinite: jax.Array  # a bit for each whose loss was not a number
    last: Looked  # the last of them


class Known(NamedTuple):
    """Steps that have been looked at: all are rejections but the last, which may be one."""

    first: jax.Array
    end: jax.Array  # the step behind the last
    nonfinite: jax.Array  # a word of bits per device
    looked: Looked  # of the last

    def nonfinite_between(self, begin: jax.Array, end: jax.Array) -> jax.Array:
        """Return how many of these steps saw a loss that was not a number."""
        bits = self.nonfinite & self._bits_before(end) & ~self._bits_before(begin)
        return jnp.sum(lax.population_count(bits), dtype=begin.dtype)

    def _bits_before(self, step: jax.Array) -> jax.Array:
        devices = len(self.nonfinite)
        turns = (step - self.first - 1 - jnp.arange(devices)) // devices + 1  # of each device before that step
        return jnp.where(
            turns >= 32, jnp.uint32(0xFFFFFFFF), jnp.left_shift(jnp.uint32(1), turns.astype(jnp.uint32)) - 1
        )


def nothing_known(way: Way, state: State) -> Known:
    """Return what is known before the first round."""
    no, devices = jnp.zeros((), bool), place_among_proposals(way.program.layout)[1]
    looked = Looked(no, ~no, state.loss, state.loss)
    return Known(way.first_step, way.first_step, jnp.zeros(devices, jnp.uint32), looked)


def go_in_rounds(way: Way, ahead: jax.Array, until: jax.Array, end: jax.Array, going: Going) -> Going:
    """Make the steps up to `end`; look ahead beyond it, up to `until`, `ahead` proposals per device and round.

    What has been looked at beyond `end`, where a record is taken, serves when the loop goes on.
    """
    batches = way.program.batches

    def make_steps(evaluate: Evaluate | None, horizon: jax.Array, going: Going) -> Going:
        def body(going: Going) -> Going:
            is_due = going.carry.t >= going.known.end
            if evaluate is not None:
                is_new = batches.is_new(going.carry.t)
                state = refresh(going.carry.state, evaluate, is_new if is_new is False else is_new & is_due)
                going = going._replace(carry=going.carry._replace(state=state))
            cursor, known, rounds = lax.cond(
                is_due,
                lambda going: _look_ahead(way, ahead, evaluate, horizon, going),
                lambda going: (going.cursor, going.known, going.rounds),
                going,
            )
            return _use(way, evaluate, end, going._replace(cursor=cursor, known=known, rounds=rounds))

        stop = jnp.minimum(end, horizon)
        return lax.while_loop(lambda going: going.carry.t < stop, body, going)

    if batches.is_redrawn:
        return make_steps(None, until, going)

    def stay(evaluate: Evaluate, _: jax.Array, going: Going) -> Going:
        return make_steps(evaluate, batches.stay(going.carry.t, until), going)

    return stays(way, stay, end, going)


def _look_ahead(
    way: Way, ahead: jax.Array, evaluate: Evaluate | None, horizon: jax.Array, going: Going
) -> tuple[Any, Known, jax.Array]:
    """Look at the proposals of the coming steps, up to the first that is accepted."""
    first, root = going.carry.t, going.carry.state
    here, devices = place_among_proposals(way.program.layout)
    num = jnp.minimum(ahead * devices, horizon - first)

    def look(loop: tuple[Any, Report]) -> tuple[Any, Report]:
        cursor, report = loop
        cursor, last = _at(way, evaluate, cursor, root, first + report.turns * devices + here, partial(_look, way))
        bit = jnp.left_shift((~last.is_finite).astype(jnp.uint32), report.turns.astype(jnp.uint32))
        return cursor, Report(report.turns + 1, report.nonfinite | bit, last)

    def is_open(loop: tuple[Any, Report]) -> jax.Array:
        report = loop[1]
        return (report.turns < ahead) & (report.turns * devices + here < num) & ~report.last.is_accepted

    no = jnp.zeros((), bool)
    nothing = Report(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.uint32), Looked(no, ~no, root.loss, root.loss))
    cursor, report = lax.while_loop(is_open, look, (going.cursor, nothing))

    everyone = gathered(way.program.layout, PROPOSALS, report)
    ended_at = (everyone.turns - 1) * devices + jnp.arange(devices)
    last = jnp.min(jnp.where(everyone.last.is_accepted, ended_at, num - 1)).astype(first.dtype)
    winner = last % devices  # the device that has looked at it
    looked = jax.tree.map(lambda all_of: all_of[winner], everyone.last)
    return cursor, Known(first, first + last + 1, everyone.nonfinite, looked), going.rounds + 1


def _use(way: Way, evaluate: Evaluate | None, end: jax.Array, going: Going) -> Going:
    """Make the steps that have been looked at, up to `end`."""
    known, t = going.known, going.carry.t
    stop = jnp.minimum(end, known.end)
    is_whole = stop == known.end

    def last_step(noise: Any, state: State, evaluate: Evaluate, is_new: bool | jax.Array) -> State:
        return lax.cond(
            is_whole,
            lambda state: _step(way, known.looked, noise, state, evaluate, is_new),
            lambda state: rejected(way.algorithm, refresh(state, evaluate, is_new)),
            state,
        )

    cursor, state = _at(way, evaluate, going.cursor, going.carry.state, stop - 1, last_step)
    going = going._replace(cursor=cursor)
    is_accepted = known.looked.is_accepted & is_whole
    return going.after(state, stop - t, is_accepted, known.nonfinite_between(t, stop), way.first_step)


def _at(way: Way, evaluate: Evaluate | None, cursor: Any, root: State, t: jax.Array, act: Any) -> tuple[Any, Any]:
    """Let `act` use the noise, the data and the state of step t, if every step from the root to it is rejected."""
    state = lax.while_loop(lambda state: state.n < t, partial(rejected, way.algorithm), root)
    noise = apart(way.noise, t, root.x)
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
    state = refresh(state, evaluate, is_new) if has_lambda else state._replace(loss=looked.loss)
    proposal = algorithm.propose(noise, state)
    evaluation = Evaluation(looked.loss_new)
    if has_lambda:
        unchanged = Evaluation(looked.loss_new, state.lam)
        evaluation = lax.cond(looked.is_accepted, lambda: evaluate(proposal.x), lambda: unchanged)
    return algorithm.decide(noise, state, proposal, evaluation)[0]
