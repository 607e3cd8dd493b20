"""The gradient baselines, gradient descent and Adam, behind the same Algorithm as the Monte Carlo kernels."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax

from gradless.kernels.select import refresh
from gradless.proposals import working_dtype
from gradless.settings import BELOW_ONE, POSITIVE, Number, check_settings, setting, settings
from gradless.types import Evaluate, Evaluation, Info, Key, State

ADAM_EPS = 1e-8  # added to sqrt(v), as usual


class GradientState(NamedTuple):
    """What the next step needs."""

    x: jax.Array
    loss: jax.Array  # U(x); on new minibatches U of the point before the last update, as usual
    grad: jax.Array | None  # its gradient
    memory: optax.OptState  # what optax remembers, Adam's moments for instance
    n: jax.Array
    largest_move: jax.Array  # of any parameter, while gradients stay as small; infinite on new batches, which differ


class _Gradient:
    """A step along optax's update; the two baselines differ only in that update."""

    needs_gradient: ClassVar[bool] = True

    def rule(self) -> optax.GradientTransformation:
        raise NotImplementedError

    def largest_move(self, grad: jax.Array, update: jax.Array, memory: optax.OptState) -> jax.Array:
        raise NotImplementedError

    def __post_init__(self) -> None:
        check_settings(self)

    def init(self, x: jax.Array, evaluation: Evaluation) -> GradientState:
        """Start at x."""
        dtype = working_dtype(x)
        memory = self.rule().init(x.astype(dtype))
        n, largest_move = jnp.zeros((), jnp.int32), jnp.full((), jnp.inf, dtype)
        return GradientState(x, evaluation.loss, evaluation.grad, memory, n, largest_move)

    def draw(self, key: Key, x: jax.Array) -> tuple[()]:
        """Draw nothing: these algorithms are deterministic."""
        return ()

    def step(
        self, noise: tuple[()], state: GradientState, evaluate: Evaluate, is_new_batch: bool | jax.Array
    ) -> tuple[GradientState, Info]:
        """Follow the gradient once, with one pass forward and back whatever the batches are."""
        is_fixed = is_new_batch is False
        state = refresh(state, evaluate, not is_fixed)
        grad = jnp.asarray(state.grad, working_dtype(state.x))
        update, memory = self.rule().update(grad, state.memory, state.x)
        largest_move = self.largest_move(grad, update, memory) if is_fixed else state.largest_move
        x = optax.apply_updates(state.x, update)
        state = state._replace(x=x, memory=memory, n=state.n + 1, largest_move=largest_move)
        state = refresh(state, evaluate, is_fixed)  # on a fixed batch the pass at the new point serves the next step
        return state, Info(jnp.ones((), bool), jnp.isfinite(state.loss))

    def reset(self, state: State) -> State:
        """Forget the moments."""
        return state._replace(memory=self.rule().init(state.x.astype(working_dtype(state.x))))

    def evaluations(self, is_new_batch: bool) -> int:
        """One pass, forward and back."""
        return 1


def _clipped(clip: float | None, rule: optax.GradientTransformation) -> optax.GradientTransformation:
    return rule if clip is None else optax.chain(optax.clip_by_global_norm(clip), rule)


@settings
class GradientDescent(_Gradient):
    """Plain gradient descent. Paper: Eq. (3)."""

    name: ClassVar[str] = "gd"

    learning_rate: Number = setting(default=1e-2, doc="learning rate alpha", rule=POSITIVE)
    clip: Number | None = setting(default=None, doc="largest norm of the gradient; none by default", rule=POSITIVE)

    def rule(self) -> optax.GradientTransformation:
        """x -> x - alpha grad U."""
        return _clipped(self.clip, optax.sgd(self.learning_rate))

    def largest_move(self, grad: jax.Array, update: jax.Array, memory: optax.OptState) -> jax.Array:
        """The next steps are as this one, while the gradient is."""
        return jnp.max(jnp.abs(update))


@settings
class Adam(_Gradient):
    """Adam, with the paper's (beta_1, beta_2) = (0.9, 0.999) unless said."""

    name: ClassVar[str] = "adam"

    learning_rate: Number = setting(default=1e-3, doc="learning rate alpha", rule=POSITIVE)
    b1: Number = setting(default=0.9, doc="decay of the first moment", rule=BELOW_ONE)
    b2: Number = setting(default=0.999, doc="decay of the second moment", rule=BELOW_ONE)
    clip: Number | None = setting(default=None, doc="largest norm of the gradient; none by default", rule=POSITIVE)

    def rule(self) -> optax.GradientTransformation:
        """Adam's update."""
        return _clipped(self.clip, optax.adam(self.learning_rate, self.b1, self.b2, eps=ADAM_EPS))

    def largest_move(self, grad: jax.Array, update: jax.Array, memory: optax.OptState) -> jax.Array:
        """alpha |m| / (sqrt(v) + eps), with m as large as it can become and v forgotten: it holds larger gradients."""
        m = optax.tree_utils.tree_get(memory, "mu")
        return self.learning_rate * jnp.max(jnp.maximum(jnp.abs(m), jnp.abs(grad))) / ADAM_EPS
