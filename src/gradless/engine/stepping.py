"""One step after the other, on data that stay or on data of each step's own."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from gradless.apart import apart
from gradless.engine.batches import num_samples
from gradless.engine.program import Going, Program, key_batches, key_steps
from gradless.threefry import fold_in
from gradless.types import Algorithm, Evaluate, Key

BLOCK_BYTES = 1 << 16  # of noise drawn at once: small nets spend more on starting a draw than on drawing
MAX_BLOCK = 128

Act = Callable[[Evaluate, bool | jax.Array], Any]  # what to do on a batch, given whether it is new


@dataclass(frozen=True)
class Way:
    """What every step of a chunk has in common."""

    program: Program
    algorithm: Algorithm
    key: Key
    data: Any
    key_noise: Key
    fixed: Evaluate | None  # on data that are the same for all steps
    first_step: jax.Array  # of the chunk

    @classmethod
    def of(cls, program: Program, algorithm: Algorithm, key: Key, data: Any, first_step: jax.Array) -> "Way":
        """Compute what depends on fixed data alone."""
        fixed = program.objective.on(data) if program.batches.is_fixed else None
        return cls(program, algorithm, key, data, key_steps(key), fixed, first_step)

    def open(self) -> Any:
        """Return what is remembered of the order of the data, before the chunk's first step."""
        return self.program.batches.open(num_samples(self.data))

    def with_data(self, cursor: Any, t: jax.Array, act: Act) -> tuple[Any, Any]:
        """Let `act` use the data of step t; return what is remembered of them, and what it returns."""

        def use(batch: Any, is_new: bool | jax.Array) -> Any:
            return act(self.fixed or self.program.objective.on(batch), is_new)

        return self.program.batches.visit(cursor, key_batches(self.key), t, self.data, use)

    def noise(self, t: jax.Array, x: jax.Array) -> Any:
        """Return the random numbers of step t."""
        return self.algorithm.draw(fold_in(self.key_noise, t), x)


def stays(way: Way, make_steps: Callable[[Evaluate, jax.Array, Going], Going], end: jax.Array, going: Going) -> Going:
    """Go to `end` from one batch to the next: the data of a batch are fetched once for all the steps that see it."""
    batches = way.program.batches

    def stay(going: Going) -> Going:
        until = batches.stay(going.carry.t, end)
        cursor, stayed = way.with_data(
            going.cursor, going.carry.t, lambda evaluate, _: make_steps(evaluate, until, going)
        )
        return stayed._replace(cursor=cursor)

    return stay(going) if batches.is_fixed else lax.while_loop(lambda going: going.carry.t < end, stay, going)


def go_one_by_one(way: Way, end: jax.Array, going: Going) -> Going:
    """Make the steps up to `end`."""

    def step(noise: Any, going: Going, evaluate: Evaluate, is_new: bool | jax.Array) -> Going:
        state, info = way.algorithm.step(noise, going.carry.state, evaluate, is_new)
        return going.after(state, 1, info.is_accepted, ~info.is_finite, way.first_step)

    def step_on_own(noise: Any, going: Going) -> Going:
        cursor, stepped = way.with_data(going.cursor, going.carry.t, partial(step, noise, going))
        return stepped._replace(cursor=cursor)

    def steps_on(evaluate: Evaluate, until: jax.Array, going: Going) -> Going:
        def step_on(noise: Any, going: Going) -> Going:
            return step(noise, going, evaluate, way.program.batches.is_new(going.carry.t))

        return _blocks(way, step_on, until, going)

    if way.program.batches.is_redrawn:
        return _blocks(way, step_on_own, end, going)
    return stays(way, steps_on, end, going)


def _blocks(way: Way, make_step: Callable[[Any, Going], Going], end: jax.Array, going: Going) -> Going:
    """Make the steps up to `end`, each with its own noise, drawn for a block of them at once."""
    length = block_length(going.carry.state.x)
    if length == 1:  # and then not held beyond the move, which is as long as x
        return lax.while_loop(
            lambda going: going.carry.t < end,
            lambda going: make_step(apart(way.noise, going.carry.t, going.carry.state.x), going),
            going,
        )

    def make_block(going: Going) -> Going:
        begin = going.carry.t // length * length
        steps = begin + jnp.arange(length, dtype=begin.dtype)
        noise = jax.vmap(partial(way.noise, x=going.carry.state.x))(steps)

        def body(going: Going) -> Going:
            here = going.carry.t - begin
            return make_step(jax.tree.map(lambda drawn: drawn[here], noise), going)

        stop = begin + jnp.minimum(end - begin, length)  # not begin + length, which may not fit 32 bits
        return lax.while_loop(lambda going: going.carry.t < stop, body, going)

    return lax.while_loop(lambda going: going.carry.t < end, make_block, going)


def block_length(x: jax.Array) -> int:
    """Return how many steps' noise is drawn at once, a power of two."""
    fitting = max(1, min(MAX_BLOCK, BLOCK_BYTES // (x.size * x.dtype.itemsize)))
    return 1 << (fitting.bit_length() - 1)
