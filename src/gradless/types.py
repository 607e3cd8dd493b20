"""The words of the project: what a loss, an evaluation and an algorithm are."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

import jax

Key = jax.Array  # a typed JAX random key
Params = Any  # any pytree
Loss = Callable[..., jax.Array]  # loss(params, batch) or loss(params), a scalar


class Evaluation(NamedTuple):
    """What one pass through the data tells of a point x."""

    loss: jax.Array  # U(x)
    lam: jax.Array | None = None  # lambda_i of every parameter, when the algorithm has signal norm
    grad: jax.Array | None = None  # the gradient of U, for the gradient baselines alone


class Info(NamedTuple):
    """What a plot or a log needs to know of one step."""

    is_accepted: jax.Array
    is_finite: jax.Array  # the proposed loss was a number


Evaluate = Callable[[jax.Array], Evaluation]
State = Any  # a NamedTuple of the algorithm's own, with fields x and loss at least


class Algorithm(Protocol):
    """A training algorithm: its settings as fields, its physics as pure functions of one flat vector x.

    Randomness enters only through `draw`, apart from `step`, so that a step can be repeated with noise given from
    outside, and so that the noise of many steps can be drawn together.
    """

    name: ClassVar[str]
    needs_gradient: ClassVar[bool]

    def draw(self, key: Key, x: jax.Array) -> Any:
        """Return all the random numbers of one step."""

    def init(self, x: jax.Array, evaluation: Evaluation) -> State:
        """Return the state before the first step."""

    def step(self, noise: Any, state: State, evaluate: Evaluate, is_new_batch: bool | jax.Array) -> tuple[State, Info]:
        """Make one step on the data behind `evaluate`; `state.loss` is stale when the batch is new."""

    def reset(self, state: State) -> State:
        """Return the state with everything but x as at the start; progressive batches need it."""

    def evaluations(self, is_new_batch: bool) -> int:
        """Return how many passes through the batch one step costs."""


# The names of all that.
PARTS = (*Algorithm.__annotations__, *(name for name in vars(Algorithm) if not name.startswith("_")))
