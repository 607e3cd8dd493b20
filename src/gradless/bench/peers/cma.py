"""pycma: CMA-ES, with the whole covariance matrix where it fits and its diagonal where it does not."""

from collections.abc import Callable
from typing import Any

import numpy as np

from gradless.bench.peers.peer import Peer
from gradless.bench.peers.search import Called
from gradless.bench.peers.task import Task

LARGEST_MATRIX = 1000  # parameters; the time to decompose a matrix of N^2 numbers grows as N^3
LARGEST = 1_100_000  # parameters; a population of about 45 of them in float64 is 400 MB


def cma_es(sigma: float | None = None, many: bool = False) -> Callable[[Task], Called]:
    """Return the search of CMA-ES; with `many`, a population is evaluated in one compiled call."""

    def search(task: Task) -> Called:
        import cma

        def minimise(loss: Called, x0: np.ndarray) -> None:
            is_large = len(x0) > LARGEST_MATRIX
            quiet: dict[str, Any] = {"verbose": -9, "verb_log": 0, "seed": task.seed + 1}
            strategy = cma.CMAEvolutionStrategy(x0, sigma or task.sigma, quiet | {"CMA_diagonal": is_large})
            while not strategy.stop():  # it then begins again from the best point
                members = strategy.ask()
                losses = loss(np.asarray(members)) if many else [loss(member) for member in members]
                strategy.tell(members, list(losses))

        return Called(task, minimise, many)

    return search


ONE_BY_ONE = Peer(
    "pycma", "cma", "cma", "the problem's sigma, default population, one by one", cma_es(), largest=LARGEST
)
# The documentation asks for a sigma such that the optimum lies within some sigma of the start: weights are of order 1.
POPULATION = Peer(
    "pycma",
    "cma",
    "cma",
    "sigma 0.5, default population, full covariance, restarted from its best point",
    cma_es(0.5, many=True),
    largest=LARGEST_MATRIX,
)
