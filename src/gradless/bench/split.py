"""Where the time of a step goes: the noise alone, the losses alone, and the rest by difference."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from gradless.bench.contestants import SessionChain, started
from gradless.bench.timing import Run, Spread
from gradless.bench.workloads import Workload
from gradless.engine.batches import Minibatch, rows
from gradless.engine.compiling import Compiled
from gradless.engine.precision import precision_of
from gradless.engine.program import Program, key_steps
from gradless.engine.session import Session
from gradless.engine.stepping import block_length
from gradless.types import Algorithm, Evaluation, Key


class Split(NamedTuple):
    """Seconds per step; the three parts add up to the total.

    The rest is moving x, deciding, keeping one of two states, fetching minibatches and the loop itself. It can come
    out a little below zero where the compiler does in one pass what was timed in two.
    """

    total: float
    noise: float
    loss: float

    @property
    def rest(self) -> float:
        """What is neither noise nor loss."""
        return self.total - self.noise - self.loss


def parts(workload: Workload) -> dict[str, Run]:
    """Return what has to be timed, side by side: whole steps, their noise alone, their losses alone."""
    session = started(workload)
    return {"gradless": SessionChain(session), "noise": NoiseAlone(session), "loss": LossAlone(session)}


def split(seconds: dict[str, Spread]) -> Split:
    """Return the split from the times of `parts`."""
    return Split(*(seconds[name].median for name in ("gradless", "noise", "loss")))


class NoiseAlone:
    """Draws the noise of so many steps, in blocks as the loop draws it."""

    def __init__(self, session: Session):
        self.session, chain = session, session.chains[0]
        self.algorithm, self.key, self.x = chain.algorithm, chain.key, session.points[0]

    def __call__(self, steps: int) -> None:
        """Draw the noise of so many steps."""
        with precision_of(self.x.dtype):
            jax.block_until_ready(draw_again(self.algorithm, self.key, self.x, steps))


@jax.jit
def draw_again(algorithm: Algorithm, key: Key, x: jax.Array, steps: jax.Array) -> Any:
    length, key = block_length(x), key_steps(key)

    def block(number: int | jax.Array) -> Any:
        times = number * length + jnp.arange(length)
        return jax.vmap(lambda t: algorithm.draw(jax.random.fold_in(key, t), x))(times)

    # The noise is what the loop carries, so that it is drawn and written down each time.
    return lax.fori_loop(1, (steps + length - 1) // length, lambda number, _: block(number), block(0))


class LossAlone:
    """Evaluates the losses of so many steps, and lambda with them where it is on, at one x and on one batch."""

    def __init__(self, session: Session):
        self.session, chain = session, session.chains[0]
        self.program, self.data = session.work.stage(0)
        self.x, self.per_step = session.points[0], 1
        if isinstance(self.program.batches, Minibatch):
            self.per_step = chain.algorithm.evaluations(True)
            self.data = rows(self.data, jnp.arange(self.program.batches.size))

    def __call__(self, steps: int) -> None:
        """Evaluate the losses of so many steps."""
        with precision_of(self.x.dtype):
            jax.block_until_ready(evaluate_again(self.program, self.x, self.data, steps * self.per_step))


@Compiled
def evaluate_again(program: Program, x: jax.Array, data: Any, times: jax.Array) -> Any:
    evaluate = program.objective.on(data)

    def once(_: Any, kept: tuple[jax.Array, Evaluation]) -> tuple[jax.Array, Evaluation]:
        # Each x is made from the loss before, or the compiler would evaluate once and for all before the loop.
        x, before = kept
        x = x.at[0].add((0 * before.loss).astype(x.dtype))
        return x, evaluate(x)

    return lax.fori_loop(1, times, once, (x, evaluate(x)))[1]
