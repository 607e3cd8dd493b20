"""evosax: its simulated annealing and hill climbing at population 1, and OpenES."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from gradless.bench.peers.peer import Peer
from gradless.bench.peers.search import Compiled
from gradless.bench.peers.task import Task
from gradless.engine.precision import precision_of
from gradless.types import Key


def _search(task: Task, make: Callable[[], Any], population: int, redraw: bool, by_mean: bool) -> Compiled:
    """Ask, evaluate, tell, compiled as one loop, as the examples of evosax do."""
    with precision_of(task.dtype):
        strategy = make()
        settings = strategy.default_params
        state = strategy.init(jax.random.key(task.seed), task.start, settings)

    def step(key: Key, state: Any, data: Any) -> Any:
        key_ask, key_batch, key_tell = jax.random.split(key, 3)
        batch = task.drawn(key_batch, data) if redraw else data
        members, state = strategy.ask(key_ask, state, settings)
        fitness = jax.vmap(lambda member: task.loss(member, batch))(members)
        return strategy.tell(key_tell, members, fitness, state, settings)[0]

    def net(state: Any) -> Any:
        return strategy.get_mean(state) if by_mean else task.flattening.unflatten(state.best_solution)

    return Compiled(task, step, state, task.all_data if redraw else task.held, net, population)


def _alone(name: str) -> Callable[[Task], Compiled]:
    """Return the search of a strategy at population 1; its own step width of 1 is replaced by the problem's sigma."""

    def search(task: Task) -> Compiled:
        import evosax.algorithms
        import optax

        strategy = getattr(evosax.algorithms, name)
        make = partial(strategy, 1, task.start, std_schedule=optax.constant_schedule(task.sigma))
        return _search(task, make, population=1, redraw=False, by_mean=False)

    return search


def open_es(population: int, batch: int | None, learning_rate: float, std: float, generations: int | None) -> Any:
    """Return the search of OpenES with Adam; in so many generations rate and std fall to 0.1 and 0.2 of the first."""

    def search(task: Task) -> Compiled:
        import evosax.algorithms
        import optax

        task = task.with_batch(batch)
        rate, width = optax.constant_schedule(learning_rate), optax.constant_schedule(std)
        if generations is not None:
            rate = optax.exponential_decay(learning_rate, generations, 0.1)
            width = optax.exponential_decay(std, generations, 0.2)
        with precision_of(task.dtype):
            strategy = evosax.algorithms.Open_ES
            make = partial(strategy, population, task.start, optimizer=optax.adam(rate), std_schedule=width)
        return _search(task, make, population, redraw=True, by_mean=True)

    return search


def _peer(name: str, settings: str, search: Callable[[Task], Compiled]) -> Peer:
    return Peer(f"evosax {name}", "evosax", "evosax", settings, search)


ALONE = "population 1, the problem's sigma as std, the rest default"
ANNEALING = _peer("SimulatedAnnealing", ALONE, _alone("SimulatedAnnealing"))
HILL_CLIMBING = _peer("HillClimbing", ALONE, _alone("HillClimbing"))

# The schedules and sizes of the MNIST part of examples/03_vision.ipynb in evosax's repository.
OPEN_ES = _peer(
    "OpenES",
    "population 256, batch 1024, Adam 0.01 and std 0.05, falling to 0.1 and 0.2 of that in 512 generations",
    open_es(256, 1024, 0.01, 0.05, 512),
)
# The same with a higher rate that does not fall: not tied to a number of generations.
OPEN_ES_STEADY = _peer(
    "OpenES, steady", "population 256, batch 1024, Adam 0.02, std 0.05", open_es(256, 1024, 0.02, 0.05, None)
)
# The same on all of the data, for regressions of a thousand points.
OPEN_ES_FULL = _peer("OpenES", "population 256, full batch, Adam 0.02, std 0.05", open_es(256, None, 0.02, 0.05, None))
