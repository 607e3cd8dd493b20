"""The one loop: many steps of any algorithm on any loss in one compiled call, with thinned records.

A chunk runs from step t to step `until`. Both are data of the compiled program, so that chunks of every length share
it. Within a chunk the noise of a block of steps is drawn at once (`fold_in(key, t)` for each step t: the numbers are
the same as drawn one by one), and records are taken at steps fixed beforehand: the result does not depend on where
chunks begin and end.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from gradless.engine.batches import FullBatch, Minibatch, num_samples
from gradless.engine.flat import ByIdentity
from gradless.engine.objective import Objective, call
from gradless.features_first import features_first
from gradless.kernels.select import renewed
from gradless.types import Algorithm, Evaluation, Key, State

MAX_STEPS = 1 << 19  # in one chunk: one byte each in the log of accepted steps
MAX_RECORDS = 256  # in one chunk
BLOCK_BYTES = 1 << 16  # of noise drawn at once: small nets spend more on starting a draw than on drawing
MAX_BLOCK = 128

GOING, AT_TARGET, FROZEN, DIVERGED, READY_TO_GROW = range(5)


@dataclass(frozen=True)
class Program:
    """All that is compiled in; what is not here may change without compiling again."""

    objective: Objective
    batches: FullBatch | Minibatch
    metrics: ByIdentity  # of metrics(params, test) -> dict, or of None
    error: ByIdentity  # of error(params, batch) that makes the batch grow, or of None
    metric_target: tuple[str, str] | None = None  # a metric's name and ">=" or "<="
    stop_when_frozen: bool = False


class Limits(NamedTuple):
    """The numbers that a chunk compares with."""

    until: jax.Array  # the chunk ends before this step
    record_every: jax.Array
    check_every: jax.Array  # how often the error of a growing batch is looked at
    threshold: jax.Array  # the error below which it grows
    target_loss: jax.Array
    target_metric: jax.Array


class Carry(NamedTuple):
    """All that the loop needs to go on from step t; a checkpoint holds just this."""

    t: jax.Array
    state: State
    accepted: jax.Array  # since the last record
    nonfinite: jax.Array  # since the last record
    status: jax.Array  # GOING, or why the chain has ended


class Chunk(NamedTuple):
    """What a chunk has to tell."""

    flags: jax.Array  # which of its steps were accepted
    records: Any  # a dict of arrays with one entry per record
    num_records: jax.Array


@partial(jax.jit, static_argnames=("program",))
def start(program: Program, algorithm: Algorithm, key: Key, x: jax.Array, data: Any, test: Any) -> tuple[Carry, Any]:
    """Return the loop's state before its first step, and the record of it."""
    t = jnp.zeros((), jnp.int32)
    carry = Carry(t, algorithm.init(x, look(program, key, x, t, data)), accepted=t, nonfinite=t, status=t)
    return carry, _record(program, carry, test)


@partial(jax.jit, static_argnames=("program",))
def restart(program: Program, algorithm: Algorithm, key: Key, carry: Carry, data: Any) -> Carry:
    """Return the loop's state on a batch that has grown: the same x, everything else as at the start."""
    state = look_again(program, key, algorithm.reset(carry.state), carry.t, data)
    return carry._replace(state=state, status=jnp.zeros_like(carry.status))


def look(program: Program, key: Key, x: jax.Array, t: jax.Array, data: Any) -> Evaluation:
    """Return the evaluation of x on the batch of step t."""
    batches, key = program.batches, key_batches(key)
    cursor = batches.open(key, t, num_samples(data))
    return batches.visit(cursor, key, t, data, lambda batch, _: program.objective.on(batch)(x))[1]


@partial(jax.jit, static_argnames=("program",))
def look_again(program: Program, key: Key, state: State, t: jax.Array, data: Any) -> State:
    """Return the state with U(x), and what else a pass tells, on the batch of step t."""
    return renewed(state, look(program, key, state.x, t, data))


@partial(jax.jit, static_argnames=("program",), donate_argnames=("carry",))
def advance(
    program: Program, algorithm: Algorithm, key: Key, carry: Carry, data: Any, test: Any, limits: Limits
) -> tuple[Carry, Chunk]:
    """Make the steps from carry.t up to limits.until, or until the chain has ended."""
    batches, num_data = program.batches, num_samples(data)
    key_of_batches, key_of_steps = key_batches(key), key_steps(key)
    cursor = batches.open(key_of_batches, carry.t, num_data)
    fixed = program.objective.on(data) if batches.is_fixed else None
    block = block_length(carry.state.x)
    first_step = carry.t

    def step(noise: Any, t: jax.Array, state: State, cursor: Any) -> tuple[Any, Any]:
        def act(batch: Any, is_new: bool | jax.Array) -> Any:
            evaluate = fixed or program.objective.on(batch)
            return algorithm.step(noise, state, evaluate, is_new)

        return batches.visit(cursor, key_of_batches, t, data, act)

    def make_step(noise: Any, loop: tuple[Carry, Any, jax.Array]) -> tuple[Carry, Any, jax.Array]:
        carry, cursor, flags = loop
        cursor, (state, info) = step(noise, carry.t, carry.state, cursor)
        flags = lax.dynamic_update_index_in_dim(flags, info.is_accepted, carry.t - first_step, 0)
        carry = carry._replace(
            t=carry.t + 1,
            state=state,
            accepted=carry.accepted + info.is_accepted,
            nonfinite=carry.nonfinite + ~info.is_finite,
        )
        return carry, cursor, flags

    def make_block(end: jax.Array, loop: tuple[Carry, Any, jax.Array]) -> tuple[Carry, Any, jax.Array]:
        begin = loop[0].t // block * block
        steps = begin + jnp.arange(block, dtype=begin.dtype)
        x = loop[0].state.x
        noise = jax.vmap(lambda t: algorithm.draw(jax.random.fold_in(key_of_steps, t), x))(steps)

        def body(loop: tuple[Carry, Any, jax.Array]) -> tuple[Carry, Any, jax.Array]:
            here = loop[0].t - begin
            return make_step(jax.tree.map(lambda drawn: drawn[here], noise), loop)

        stop = jnp.minimum(end, begin + block)
        return lax.while_loop(lambda loop: loop[0].t < stop, body, loop)

    def make_record(carry: Carry, kept: Any, num_records: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        record = _record(program, carry, test)
        records = jax.tree.map(lambda all_of, new: all_of.at[num_records].set(new), kept, record)
        return records, num_records + 1, _status(program, carry, record, limits)

    def record_if(is_due: jax.Array, carry: Carry, chunk: Chunk) -> tuple[Carry, Chunk]:
        # What is large, the state and the flags, does not pass through the branch, which would copy it.
        records, num_records, status = lax.cond(
            is_due,
            make_record,
            lambda carry, kept, num_records: (kept, num_records, carry.status),
            carry,
            chunk.records,
            chunk.num_records,
        )
        carry = carry._replace(
            accepted=jnp.where(is_due, 0, carry.accepted),
            nonfinite=jnp.where(is_due, 0, carry.nonfinite),
            status=status,
        )
        return carry, chunk._replace(records=records, num_records=num_records)

    def look_at_error(carry: Carry) -> jax.Array:
        params = program.objective.flattening.unflatten(carry.state.x)

        def below(batch: Any, _: Any) -> jax.Array:
            return program.error.held(params, batch) < limits.threshold

        is_ready = batches.visit(cursor, key_of_batches, carry.t - 1, data, below)[1]
        return jnp.where(is_ready & (carry.status == GOING), READY_TO_GROW, carry.status).astype(carry.status.dtype)

    def stretch(loop: tuple[Carry, Any, Chunk]) -> tuple[Carry, Any, Chunk]:
        """Go to the next step at which something has to be looked at."""
        carry, cursor, chunk = loop
        next_record = _next_record(carry.t, limits.record_every)
        next_check = (carry.t // limits.check_every + 1) * limits.check_every
        end = jnp.minimum(limits.until, jnp.minimum(next_record, next_check))
        carry, cursor, flags = lax.while_loop(
            lambda loop: loop[0].t < end, partial(make_block, end), (carry, cursor, chunk.flags)
        )
        carry, chunk = record_if(carry.t == next_record, carry, chunk._replace(flags=flags))
        if program.error.held is not None:
            status = lax.cond(carry.t == next_check, look_at_error, lambda carry: carry.status, carry)
            carry = carry._replace(status=status)
        return carry, cursor, chunk

    empty = Chunk(jnp.zeros(MAX_STEPS, bool), _empty_records(program, carry, test), jnp.zeros((), jnp.int32))
    carry, _, chunk = lax.while_loop(
        lambda loop: (loop[0].t < limits.until) & (loop[0].status == GOING), stretch, (carry, cursor, empty)
    )
    return carry, chunk


def is_record(t: int, record_every: int) -> bool:
    """Return whether a record is taken after step t: at multiples of `record_every`, and early at powers of two."""
    return t % record_every == 0 or (t < record_every and t & (t - 1) == 0)


def _next_record(t: jax.Array, record_every: jax.Array) -> jax.Array:
    next_multiple = (t // record_every + 1) * record_every
    next_power = jnp.left_shift(1, 32 - lax.clz(t))
    return jnp.where(t < record_every, jnp.minimum(next_power, next_multiple), next_multiple).astype(t.dtype)


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
    values = features_first(lambda x: call(program.metrics.held, unflatten(x), test, test is not None))(x)
    return {name: jnp.asarray(value) for name, value in values.items()}


@partial(jax.jit, static_argnames=("program",))
def evaluate_loss(program: Program, x: jax.Array, data: Any) -> jax.Array:
    """Return U(x) on all of the data."""
    return program.objective.value(x, data)


evaluate_metrics = jax.jit(_metrics, static_argnames=("program",))


def is_frozen(state: State) -> jax.Array:
    """Return whether a typical move is below what floating point can resolve at a typical parameter.

    From there on x + eps rounds back to x, U' = U is accepted as a tie, and sigma never changes again.
    """
    if not hasattr(state, "sigma"):
        return jnp.zeros((), bool)
    largest_move = state.sigma * jnp.max(getattr(state, "lam", jnp.ones_like(state.sigma)))
    typical_x = jnp.sqrt(jnp.mean(state.x.astype(state.sigma.dtype) ** 2))
    return largest_move < jnp.finfo(state.x.dtype).eps / 2 * typical_x


def _status(program: Program, carry: Carry, record: dict[str, jax.Array], limits: Limits) -> jax.Array:
    is_at_target = record["loss"] <= limits.target_loss
    if program.metric_target is not None:
        name, sense = program.metric_target
        value = record[f"metric:{name}"]
        is_at_target |= value >= limits.target_metric if sense == ">=" else value <= limits.target_metric
    status = jnp.where(is_at_target, AT_TARGET, carry.status)
    if program.stop_when_frozen:
        status = jnp.where(record["is_frozen"] & (status == GOING), FROZEN, status)
    return jnp.where(jnp.isfinite(record["loss"]), status, DIVERGED).astype(carry.status.dtype)


def _empty_records(program: Program, carry: Carry, test: Any) -> dict[str, jax.Array]:
    shapes = jax.eval_shape(partial(_record, program), carry, test)
    return jax.tree.map(lambda one: jnp.zeros((MAX_RECORDS, *one.shape), one.dtype), shapes)


def block_length(x: jax.Array) -> int:
    """Return how many steps' noise is drawn at once, a power of two."""
    fitting = max(1, min(MAX_BLOCK, BLOCK_BYTES // (x.size * x.dtype.itemsize)))
    return 1 << (fitting.bit_length() - 1)


def key_steps(key: Key) -> Key:
    """Return the key from which the noise of step t comes by `fold_in(key, t)`."""
    return jax.random.fold_in(key, 1)


def key_batches(key: Key) -> Key:
    """Return the key from which the order of the data comes."""
    return jax.random.fold_in(key, 2)
