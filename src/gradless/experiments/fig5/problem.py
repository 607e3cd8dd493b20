"""The problem mnist-rnn with what panel (c) needs: the norm of the gradient, and a start read from a file."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradless.engine.flat import Flattening
from gradless.problem import Problem
from gradless.problems import mnist_rnn
from gradless.types import Params

PROBLEM = "gradless.experiments.fig5:recurrent"  # as runs have it in their settings


def recurrent(hidden: int = 64, shrink: int = 1, with_norm: bool = False, start: str = "") -> Problem:
    """Return the problem mnist-rnn, with what panel (c) needs.

    with_norm: whether records tell the norm of the gradient too, on the first 256 training images.
    start: a file with the flat parameters to begin with, instead of a random start.
    """
    problem = mnist_rnn(hidden=hidden, shrink=shrink)
    if with_norm:
        problem = _with_norm(problem)
    if not start:
        return problem
    layout = Flattening.of(problem.init(jax.random.key(0)), problem.precision)
    return replace(problem, init=layout.unflatten(jnp.asarray(np.load(start))))


def _with_norm(problem: Problem) -> Problem:
    some = jax.tree.map(lambda rows: rows[:256], problem.data)
    metrics: Callable[..., dict[str, jax.Array]] = problem.metrics  # type: ignore[assignment]

    def with_gradient(params: Params, test: Any) -> dict[str, jax.Array]:
        leaves = jax.tree.leaves(jax.grad(problem.loss)(params, some))
        norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in leaves))
        return {**metrics(params, test), "gradient_norm": norm}

    return replace(problem, metrics=with_gradient)
