"""nevergrad: OnePlusOne, one evaluation after the other."""

import numpy as np

from gradless.bench.peers.peer import Peer
from gradless.bench.peers.search import Called
from gradless.bench.peers.task import Task


def _search(task: Task) -> Called:
    import nevergrad

    def minimise(loss: Called, x0: np.ndarray) -> None:
        # Its documentation asks to set the scale of the mutation where it is not 1.
        array = nevergrad.p.Array(init=x0).set_mutation(sigma=task.sigma)
        array.random_state.seed(task.seed)
        optimizer = nevergrad.optimizers.OnePlusOne(parametrization=array)
        while True:
            candidate = optimizer.ask()
            optimizer.tell(candidate, loss(candidate.value))

    return Called(task, minimise)


ONE_PLUS_ONE = Peer(
    "nevergrad OnePlusOne", "nevergrad", "nevergrad", "the problem's sigma as mutation, the rest default", _search
)
