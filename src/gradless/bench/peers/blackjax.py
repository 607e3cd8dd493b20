"""blackjax: its random-walk Metropolis, compiled; a sampler, here at a temperature near 0."""

from typing import Any

import jax

from gradless.bench.peers.peer import Peer
from gradless.bench.peers.search import Compiled
from gradless.bench.peers.task import Task
from gradless.engine.precision import precision_of
from gradless.types import Key

TEMPERATURE = 1e-6  # of exp(-U/T): small against every change of U that matters


def _search(task: Task) -> Compiled:
    # additive_step_random_walk with a normal step, as in the documentation of blackjax.mcmc.random_walk.
    import blackjax

    def walk(data: Any) -> Any:
        step = blackjax.mcmc.random_walk.normal(task.sigma)
        return blackjax.additive_step_random_walk(lambda params: -task.loss(params, data) / TEMPERATURE, step)

    def step(key: Key, state: Any, data: Any) -> Any:
        return walk(data).step(key, state)[0]

    with precision_of(task.dtype):
        state = jax.jit(lambda params, data: walk(data).init(params))(task.start, task.held)
    return Compiled(task, step, state, task.held, lambda state: state.position, population=1)


RANDOM_WALK = Peer("blackjax random walk", "blackjax", "blackjax", f"the problem's sigma, T = {TEMPERATURE:g}", _search)
