"""What this machine can do at most, measured, and how much of it a step uses."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gradless.bench.work import Operations, work_of
from gradless.bench.workloads import Workload

SIDE = 2048  # of the matrices whose product is timed
STREAM_BYTES = 1 << 28  # read at once: far more than any cache holds
TANH_SIZE = 1 << 16  # fits into a cache, so that the memory does not count
TRIES = 5


class Machine(NamedTuple):
    """The best rates that this machine has shown."""

    flops: float  # per second, of a large product in float32
    bandwidth: float  # bytes read per second
    transcendentals: float  # tanh per second, in float32

    def seconds(self, work: Operations) -> float:
        """Return the time that `work` takes at least: reading can hide behind computing, and the other way round."""
        computing = work.flops / self.flops + work.transcendentals / self.transcendentals
        return max(computing, work.bytes / self.bandwidth)


def measure_machine(tries: int = TRIES, scale: int = 1) -> Machine:
    """Return the rates of this machine; `scale` divides the sizes, for tests."""
    side, length = SIDE // scale, STREAM_BYTES // 4 // scale
    square = jnp.full((side, side), 0.5, jnp.float32)
    stream = jnp.ones(length, jnp.float32)
    small = jnp.linspace(-2, 2, TANH_SIZE, dtype=jnp.float32)
    rounds = max(1, 256 // scale)
    many_tanh = jax.jit(lambda h: jax.lax.fori_loop(0, rounds, lambda _, h: jnp.tanh(h), h))
    return Machine(
        2 * side**3 / _best(jax.jit(jnp.matmul), tries, square, square),
        4 * length / _best(jax.jit(jnp.sum), tries, stream),
        rounds * TANH_SIZE / _best(many_tanh, tries, small),
    )


def _best(function: Callable[..., Any], tries: int, *args: Any) -> float:
    """Return the shortest of several times: what disturbs a measurement only ever lengthens it."""
    jax.block_until_ready(function(*args))
    seconds = []
    for _ in range(tries):
        began = time.perf_counter()
        jax.block_until_ready(function(*args))
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def work_per_step(workload: Workload) -> Operations:
    """Return the work of the losses of one step."""
    loss, dtype = workload.problem.loss, workload.dtype
    params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype), workload.start())
    batch = jax.tree.map(
        lambda array: jax.ShapeDtypeStruct((workload.samples_per_loss, *array.shape[1:]), _type(array, dtype)),
        workload.problem.data,
    )
    work = work_of(loss, params) if batch is None else work_of(loss, params, batch)
    return Operations(*(workload.losses_per_step * number for number in work))


def _type(array: Any, dtype: np.dtype) -> np.dtype:
    return dtype if np.issubdtype(np.asarray(array).dtype, np.floating) else np.asarray(array).dtype
