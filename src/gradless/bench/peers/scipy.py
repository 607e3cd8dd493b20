"""SciPy: dual annealing for any size, Powell and Nelder-Mead where the number of parameters allows."""

from collections.abc import Callable
from typing import Any

import numpy as np

from gradless.bench.peers.peer import Peer
from gradless.bench.peers.search import Called
from gradless.bench.peers.task import Task

REACH = 5.0  # dual annealing asks for bounds; weights of trained nets are of order 1
LARGEST = 1000  # parameters; both methods hold N^2 numbers and look along every axis


def _annealing(task: Task) -> Called:
    from scipy.optimize import dual_annealing

    def minimise(loss: Called, x0: np.ndarray) -> None:
        bounds = [(-REACH, REACH)] * len(x0)
        start = np.clip(x0, -REACH, REACH)
        # The local search follows gradients by finite differences, N + 1 evaluations each: generalised annealing alone.
        dual_annealing(loss, bounds, x0=start, no_local_search=True, maxiter=10**9, maxfun=10**12, rng=task.seed)

    return Called(task, minimise)


def _local(method: str, options: dict[str, Any]) -> Callable[[Task], Called]:
    def search(task: Task) -> Called:
        from scipy.optimize import minimize

        def minimise(loss: Called, x0: np.ndarray) -> None:
            minimize(loss, x0, method=method, options={"maxiter": 10**9, "maxfev": 10**9, **options})

        return Called(task, minimise)

    return search


def _peer(name: str, settings: str, search: Callable[[Task], Called], largest: int | None = None) -> Peer:
    return Peer(f"SciPy {name}", "scipy", "scipy", settings, search, largest)


DUAL_ANNEALING = _peer("dual_annealing", f"without local search, bounds +-{REACH:g}", _annealing)
POWELL = _peer("Powell", "default", _local("Powell", {}), LARGEST)
# `adaptive` is what its documentation offers for many dimensions.
NELDER_MEAD = _peer("Nelder-Mead", "adaptive", _local("Nelder-Mead", {"adaptive": True}), LARGEST)
