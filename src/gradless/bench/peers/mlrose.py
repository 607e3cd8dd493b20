"""mlrose (mlrose-ky): simulated annealing of one parameter at a time."""

import numpy as np

from gradless.bench.peers.peer import Peer
from gradless.bench.peers.search import Called
from gradless.bench.peers.task import Task

REACH = 1e10  # the bound on weights that its own neural nets have by default
STEP = 0.1  # of one parameter at a time, its default
ATTEMPTS = 10**9  # its default of 10 rejections in a row would end a walk at once


def _search(task: Task) -> Called:
    import mlrose_ky

    def minimise(loss: Called, x0: np.ndarray) -> None:
        fitness = mlrose_ky.CustomFitness(loss, "continuous")
        problem = mlrose_ky.ContinuousOpt(len(x0), fitness, False, -REACH, REACH, STEP)
        with np.errstate(over="ignore"):  # exp(-delta/T) of a great improvement
            mlrose_ky.simulated_annealing(problem, max_attempts=ATTEMPTS, init_state=x0, random_state=task.seed + 1)

    return Called(task, minimise)


ANNEALING = Peer("mlrose annealing", "mlrose_ky", "mlrose-ky", f"step {STEP:g}, the rest default", _search)
