"""The gradient baselines, gradient descent and Adam, behind the same Algorithm as the Monte Carlo kernels."""

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from gradless.kernels.select import refresh
from gradless.proposals import working_dtype
from gradless.settings import BELOW_ONE, POSITIVE, Number, check_settings, setting, settings
from gradless.types import Evaluate, Evaluation, Info, Key, State

if TYPE_CHECKING:  # it takes half a second to import, which the Monte Carlo kernels need not wait for
    import optax


class GradientState(NamedTuple):
    """What the next step needs."""

    x: jax.Array
    loss: jax.Array  # U(x); on new minibatches U of the point before the last update, as usual
    grad: jax.Array | None  # its gradient
    memory: Any  # what optax remembers, Adam's moments for instance
    n: jax.Array
    largest_move: jax.Array  # of the last step; infinite where the next may go further: new batches, or Adam


class _Gradient:
    """A step along optax's update; the two baselines differ only in that update."""

    needs_gradient: ClassVar[bool] = True

    def rule(self) -> "optax.GradientTransformation":
        raise NotImplementedError

    def __post_init__(self) -> None:
        import optax  # noqa: F401 not while a step is traced, when the arrays it makes would belong to the trace

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
        import optax

        is_fixed = is_new_batch is False
        state = refresh(state, evaluate, not is_fixed)
        grad = jnp.asarray(state.grad, working_dtype(state.x))
        update, memory = self.rule().update(grad, state.memory, state.x)
        # Where its gradients are below 1e-8, Adam is gradient descent at a rate of alpha/1e-8, which makes rounding
        # errors grow: no step of it is like the next.
        is_like_the_next = is_fixed and not jax.tree.leaves(memory)
        largest_move = jnp.max(jnp.abs(update)) if is_like_the_next else state.largest_move
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


def _clipped(clip: float | None, rule: "optax.GradientTransformation") -> "optax.GradientTransformation":
    import optax

    return rule if clip is None else optax.chain(optax.clip_by_global_norm(clip), rule)


@settings
class GradientDescent(_Gradient):
    """Plain gradient descent. Paper: Eq. (3)."""

    name: ClassVar[str] = "gd"

    learning_rate: Number = setting(default=1e-2, doc="learning rate alpha", rule=POSITIVE)
    clip: Number | None = setting(default=None, doc="largest norm of the gradient; none by default", rule=POSITIVE)

    def rule(self) -> "optax.GradientTransformation":
        """x -> x - alpha grad U."""
        import optax

        return _clipped(self.clip, optax.sgd(self.learning_rate))


@settings
class Adam(_Gradient):
    """Adam, with the paper's (beta_1, beta_2) = (0.9, 0.999) by default."""

    name: ClassVar[str] = "adam"

    learning_rate: Number = setting(default=1e-3, doc="learning rate alpha", rule=POSITIVE)
    b1: Number = setting(default=0.9, doc="decay of the first moment", rule=BELOW_ONE)
    b2: Number = setting(default=0.999, doc="decay of the second moment", rule=BELOW_ONE)
    clip: Number | None = setting(default=None, doc="largest norm of the gradient; none by default", rule=POSITIVE)

    def rule(self) -> "optax.GradientTransformation":
        """Adam's update."""
        import optax

        return _clipped(self.clip, optax.adam(self.learning_rate, self.b1, self.b2))
