"""What a peer is given: the same net, data, start and precision as gradless, as one flat vector or as a pytree."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradless.engine.batches import num_samples, rows
from gradless.engine.flat import Flattening
from gradless.engine.placing import as_device
from gradless.engine.precision import precision_of
from gradless.problem import Problem
from gradless.types import Key, Params

USUAL_SIGMA = 1e-2  # where a problem does not say


@dataclass(frozen=True)
class Task:
    """A problem as the peers see it: a loss to be minimised from a starting point."""

    problem: Problem
    precision: str
    batch: int | None = None  # samples that one evaluation sees; None is all of them
    seed: int = 0

    @classmethod
    def of(cls, workload: Any) -> "Task":
        """Return the task of a workload, which has a problem and may have a precision and a batch of its own."""
        problem = workload.problem
        precision = getattr(workload, "precision", None) or problem.precision
        return cls(problem, precision, getattr(workload, "batch", None))

    @property
    def sigma(self) -> float:
        """The move scale of aMC on this problem; a peer whose own default means another scale is given this one."""
        return float(self.problem.algorithms.get("amc", {}).get("sigma", USUAL_SIGMA))

    @property
    def dtype(self) -> np.dtype:
        """The floating-point type of parameters and data."""
        return np.dtype(self.precision)

    @property
    def samples(self) -> int:
        """How many samples one evaluation of the loss sees; 1 where there are no data."""
        return self.batch or max(num_samples(self.problem.data), 1)

    @cached_property
    def flattening(self) -> Flattening:
        """How the parameters lie in one vector."""
        return Flattening.of(self.start, self.precision)

    @cached_property
    def start(self) -> Params:
        """The parameters from which every contestant starts."""
        init = self.problem.init
        with precision_of(self.dtype):
            params = init(jax.random.key(self.seed)) if callable(init) else init
            return jax.tree.map(lambda leaf: jnp.asarray(leaf, self.dtype), params)

    @cached_property
    def x0(self) -> np.ndarray:
        """The start as one vector."""
        with precision_of(self.dtype):
            return np.asarray(self.flattening.flatten(self.start))

    @cached_property
    def all_data(self) -> Any:
        """The whole data on the device."""
        with precision_of(self.dtype):
            return as_device(self.problem.data, self.dtype)

    @cached_property
    def held(self) -> Any:
        """The data of a loss that is a function of the parameters alone: with minibatches, one that is held."""
        return jax.tree.map(lambda array: array[: self.batch], self.all_data)

    def drawn(self, key: Key, data: Any) -> Any:
        """Return a minibatch of `data`, or all where the task has no minibatches."""
        if self.batch is None:
            return data
        return rows(data, jax.random.randint(key, (self.batch,), 0, num_samples(data)))

    def loss(self, params: Params, data: Any) -> jax.Array:
        """Return U as the problem defines it, to be traced."""
        return self.problem.loss(params) if data is None else self.problem.loss(params, data)

    def compiled(self, many: bool = False) -> Callable[..., np.ndarray]:
        """Return x -> U(x) on NumPy arrays, compiled; with `many`, one U for each row of x."""

        def value(x: jax.Array, data: Any) -> jax.Array:
            return self.loss(self.flattening.unflatten(x), data)

        function = jax.jit(jax.vmap(value, in_axes=(0, None)) if many else value)
        return lambda x, data=None: np.asarray(function(np.asarray(x, self.dtype), self.held if data is None else data))

    def with_batch(self, batch: int | None) -> "Task":
        """Return the same task on minibatches of another size."""
        return dataclasses.replace(self, batch=batch)
