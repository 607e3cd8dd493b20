"""The one loop: many steps of any algorithm on any loss in one compiled call, with thinned records.

A chunk runs from step t to step `until`. Both are data of the compiled program, so that chunks of every length share
it. The random numbers of step t come from `fold_in(key, t)`, and records are taken at steps fixed beforehand: the
result does not depend on where chunks begin and end.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from gradless.engine.ahead.speculate import go_in_rounds, nothing_known
from gradless.engine.batches import num_samples
from gradless.engine.compiling import Compiled
from gradless.engine.objective import call
from gradless.engine.program import (
    AT_TARGET,
    DIVERGED,
    FROZEN,
    GOING,
    MAX_RECORDS,
    MAX_STEPS,
    READY_TO_GROW,
    Carry,
    Chunk,
    Going,
    Limits,
    Program,
    key_batches,
)
from gradless.engine.stepping import Way, go_one_by_one
from gradless.faster import faster
from gradless.kernels.select import renewed
from gradless.types import Algorithm, Evaluation, Key, State

FOR_EVER = 1e9  # steps along a gradient


@Compiled
def start(program: Program, algorithm: Algorithm, key: Key, x: jax.Array, data: Any, test: Any) -> tuple[Carry, Any]:
    """Return the loop's state before its first step, and the record of it."""

    def begin(data: Any, algorithm: Algorithm, key: Key, x: jax.Array, test: Any) -> tuple[Carry, Any]:
        t = jnp.zeros((), jnp.int32)
        carry = Carry(t, algorithm.init(x, _look(program, key, x, t, data)), accepted=t, nonfinite=t, status=t)
        return carry, _record(program, carry, test)

    return program.run(begin, data, algorithm, key, x, test)


@Compiled
def restart(program: Program, algorithm: Algorithm, key: Key, carry: Carry, data: Any) -> Carry:
    """Return the loop's state on a batch that has grown: the same x, everything else as at the start."""
    state = look_again.function(program, key, algorithm.reset(carry.state), carry.t, data)
    return carry._replace(state=state, status=jnp.zeros_like(carry.status))


def _look(program: Program, key: Key, x: jax.Array, t: jax.Array, data: Any) -> Evaluation:
    """Return the evaluation of x on the batch of step t."""
    batches, key = program.batches, key_batches(key)
    cursor = batches.open(num_samples(data))
    return batches.visit(cursor, key, t, data, lambda batch, _: program.objective.on(batch)(x))[1]


@Compiled
def look_again(program: Program, key: Key, state: State, t: jax.Array, data: Any) -> State:
    """Return the state with U(x), and what else a pass tells, on the batch of step t."""

    def again(data: Any, key: Key, state: State, t: jax.Array) -> State:
        return renewed(state, _look(program, key, state.x, t, data))

    return program.run(again, data, key, state, t)


@partial(Compiled, donate=("carry",))
def advance(
    program: Program, algorithm: Algorithm, key: Key, carry: Carry, data: Any, test: Any, limits: Limits
) -> tuple[Carry, Chunk]:
    """Make the steps from carry.t up to limits.until, or until the chain has ended."""
    return program.run(partial(_advance, program), data, algorithm, key, carry, test, limits)


def _advance(
    program: Program, data: Any, algorithm: Algorithm, key: Key, carry: Carry, test: Any, limits: Limits
) -> tuple[Carry, Chunk]:
    way = Way.of(program, algorithm, key, data, carry.t)

    def make_record(carry: Carry, records: Any, num_records: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        record = _record(program, carry, test)
        records = jax.tree.map(lambda all_of, new: all_of.at[num_records].set(new), records, record)
        return records, num_records + 1, _status(program, carry, record, limits)

    def record_if(is_due: jax.Array, carry: Carry, kept: Any) -> tuple[Carry, Any]:
        # What is large, the state and the flags, does not pass through the branch, which would copy it.
        *kept, status = lax.cond(
            is_due, make_record, lambda carry, records, number: (records, number, carry.status), carry, *kept
        )
        carry = carry._replace(
            accepted=jnp.where(is_due, 0, carry.accepted),
            nonfinite=jnp.where(is_due, 0, carry.nonfinite),
            status=status,
        )
        return carry, tuple(kept)

    def look_at_error(carry: Carry) -> jax.Array:
        params = program.objective.flattening.unflatten(carry.state.x)

        def below(batch: Any, _: Any) -> jax.Array:
            error = program.objective.mean_of(program.error.held, params, batch)
            return error < _as_of(error, limits.threshold)

        is_ready = program.batches.visit(way.open(), key_batches(key), carry.t - 1, data, below)[1]
        return jnp.where(is_ready & (carry.status == GOING), READY_TO_GROW, carry.status).astype(carry.status.dtype)

    def stretch(loop: tuple[Going, Any]) -> tuple[Going, Any]:
        """Go to the next step at which something has to be looked at."""
        going, kept = loop
        t = going.carry.t
        next_record = _next_record(t, limits.record_every)
        next_check = _next_multiple(t, limits.check_every)
        end = jnp.minimum(limits.until, jnp.minimum(next_record, next_check))
        if program.speculates:
            going = go_in_rounds(way, limits.ahead, limits.until, end, going)
        else:
            going = go_one_by_one(way, end, going)
        carry, kept = record_if(going.carry.t == next_record, going.carry, kept)
        if program.error.held is not None:
            status = lax.cond(carry.t == next_check, look_at_error, lambda carry: carry.status, carry)
            carry = carry._replace(status=status)
        return going._replace(carry=carry), kept

    zero, flags = jnp.zeros((), jnp.int32), jnp.zeros(MAX_STEPS, bool)
    known = nothing_known(way, carry.state) if program.speculates else ()
    going, (records, num_records) = lax.while_loop(
        lambda loop: (loop[0].carry.t < limits.until) & (loop[0].carry.status == GOING),
        stretch,
        (Going(carry, way.open(), flags, zero, known), (_empty_records(program, carry, test), zero)),
    )
    return going.carry, Chunk(going.flags, records, num_records, going.rounds)


def is_record(t: int, record_every: int) -> bool:
    """Return whether a record is taken after step t: at multiples of `record_every`, and early at powers of two."""
    return t % record_every == 0 or (t < record_every and t & (t - 1) == 0)


def _next_record(t: jax.Array, record_every: jax.Array) -> jax.Array:
    next_multiple = _next_multiple(t, record_every)
    next_power = jnp.left_shift(1, 32 - lax.clz(t))
    return jnp.where(t < record_every, jnp.minimum(next_power, next_multiple), next_multiple).astype(t.dtype)


def _next_multiple(t: jax.Array, every: jax.Array) -> jax.Array:
    """Return the first multiple of `every` after t, or the largest number of 32 bits if it is beyond that."""
    return t + jnp.minimum(every - t % every, jnp.iinfo(t.dtype).max - t)


def _record(program: Program, carry: Carry, test: Any) -> dict[str, jax.Array]:
    state = carry.state
    sigma = getattr(state, "sigma", jnp.full((), jnp.nan))
    record = {
        "step": carry.t,
        "loss": state.loss,
        "accepted": carry.accepted,
        "nonfinite": carry.nonfinite,
        "sigma": sigma,
        "is_frozen": is_frozen(state),
    }
    metrics = {f"metric:{name}": value for name, value in _metrics(program, state.x, test).items()}
    return record | metrics


def _metrics(program: Program, x: jax.Array, test: Any) -> dict[str, jax.Array]:
    if program.metrics.held is None:
        return {}
    unflatten = program.objective.flattening.unflatten
    values = faster(lambda x: call(program.metrics.held, unflatten(x), test, test is not None))(x)
    return {name: jnp.asarray(value) for name, value in values.items()}


@Compiled
def evaluate_loss(program: Program, x: jax.Array, data: Any) -> jax.Array:
    """Return U(x) on all of the data."""
    return program.objective.value(x, data)


evaluate_metrics = Compiled(_metrics)


def is_frozen(state: State) -> jax.Array:
    """Return whether a typical move is below what floating point can resolve at a typical parameter.

    From there on x + eps rounds back to x, U' = U is accepted as a tie, and sigma never changes again. Steps along a
    gradient add up, so they have to be smaller: FOR_EVER of them do not come to a typical parameter.
    """
    if hasattr(state, "largest_move"):
        return FOR_EVER * state.largest_move < _typical(state.x, state.largest_move.dtype)
    if not hasattr(state, "sigma"):
        return jnp.zeros((), bool)
    largest_move = state.sigma * jnp.max(getattr(state, "lam", jnp.ones_like(state.sigma)))
    return largest_move < jnp.finfo(state.x.dtype).eps / 2 * _typical(state.x, state.sigma.dtype)


def _typical(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
    size = jnp.sqrt(jnp.mean(x.astype(dtype) ** 2))
    return jnp.where(jnp.isfinite(size), size, 0)  # what has diverged is not frozen


def _as_of(value: jax.Array, limit: jax.Array) -> jax.Array:
    """Return a limit in the precision of what is compared with it: 0.1 in float32 is not 0.1 in float64."""
    return limit.astype(value.dtype) if jnp.issubdtype(value.dtype, jnp.floating) else limit


def _status(program: Program, carry: Carry, record: dict[str, jax.Array], limits: Limits) -> jax.Array:
    is_at_target = record["loss"] <= _as_of(record["loss"], limits.target_loss)
    if program.metric_target is not None:
        name, sense = program.metric_target
        value = record[f"metric:{name}"]
        target = _as_of(value, limits.target_metric)
        is_at_target |= value >= target if sense == ">=" else value <= target
    status = jnp.where(is_at_target, AT_TARGET, carry.status)
    if program.stop_when_frozen:
        status = jnp.where(record["is_frozen"] & (status == GOING), FROZEN, status)
    if program.objective.needs_gradient:  # a move is rejected there, and goes on from where x is a number
        status = jnp.where(jnp.isfinite(record["loss"]), status, DIVERGED)
    return status.astype(carry.status.dtype)


def _empty_records(program: Program, carry: Carry, test: Any) -> dict[str, jax.Array]:
    shapes = jax.eval_shape(partial(_record, program), carry, test)
    return jax.tree.map(lambda one: jnp.zeros((MAX_RECORDS, *one.shape), one.dtype), shapes)
