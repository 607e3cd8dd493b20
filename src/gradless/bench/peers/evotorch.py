"""EvoTorch: SNES, as in its pages on supervised learning."""

import itertools
import logging
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from gradless.bench.peers.peer import Peer
from gradless.bench.peers.search import Called
from gradless.bench.peers.task import Task


def snes(batch: int | None = None, many: bool = True, **settings: Any) -> Callable[[Task], Called]:
    """Return the search of SNES; with `many`, a population is evaluated in one compiled call, on one minibatch.

    The loss is the problem's own, compiled by JAX, so that net, data and precision are those of everybody.
    """

    def search(task: Task) -> Called:
        import torch

        Problem, SNES, vectorized = _library()
        task = task.with_batch(batch) if many else task
        dtype = getattr(torch, task.precision)
        key, draw, counter = jax.random.key(task.seed), jax.jit(task.drawn), itertools.count()
        scale = settings if settings else {"stdev_init": task.sigma}

        def minimise(loss: Called, x0: np.ndarray) -> None:
            def evaluate(x: Any) -> Any:
                is_drawn = many and batch is not None
                data = draw(jax.random.fold_in(key, next(counter)), task.all_data) if is_drawn else None
                return torch.tensor(loss(x.numpy(), data), dtype=dtype)

            function = vectorized(evaluate) if many else evaluate
            problem = Problem("min", function, solution_length=len(x0), dtype=dtype, bounds=None, seed=task.seed)
            searcher = SNES(problem, center_init=torch.as_tensor(x0, dtype=dtype), **scale)
            while True:
                searcher.step()
                if batch is not None:  # the best of a lucky minibatch is not what one would hand over
                    loss.center = searcher.status["center"].numpy().copy()

        return Called(task, minimise, many)

    return search


def _library() -> tuple[Any, Any, Any]:
    """Import quietly: it warns of PyTorch's changes, and tells the dtype and device of every problem."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from evotorch import Problem
        from evotorch.algorithms import SNES
        from evotorch.decorators import vectorized
    logging.getLogger("evotorch").setLevel(logging.WARNING)
    return Problem, SNES, vectorized


def _peer(settings: str, search: Callable[[Task], Called]) -> Peer:
    return Peer("EvoTorch SNES", "evotorch", "evotorch", settings, search, largest=1_100_000)


ONE_BY_ONE = _peer("the problem's sigma as stdev, default population, one by one", snes(many=False))
# examples/notebooks/Training_MNIST30K.ipynb in EvoTorch's repository.
MNIST = _peer("population 1000, minibatch 256, stdev 1", snes(256, popsize=1000, stdev_init=1))
# docs.evotorch.ai, user guide, Supervised Neuroevolution.
REGRESSION = _peer("population 50, radius 2.25, full batch", snes(popsize=50, radius_init=2.25))
