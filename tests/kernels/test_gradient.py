"""The gradient baselines against hand-worked steps and optax itself."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gradless.kernels import Adam, GradientDescent
from gradless.types import Evaluation

X = jnp.array([3.0, -4.0])


def evaluate(x):
    """U = |x|^2/2: its gradient is x."""
    loss, grad = jax.value_and_grad(lambda y: jnp.sum(y**2) / 2)(x)
    return Evaluation(loss, grad=grad)


def test_gradient_descent_goes_down_the_gradient():
    """x -> x - alpha grad U, Eq. (3)."""
    algorithm = GradientDescent(learning_rate=0.25)
    state, info = algorithm.step((), algorithm.init(X, evaluate(X)), evaluate, False)
    np.testing.assert_array_equal(state.x, [2.25, -3.0])
    assert state.loss == (2.25**2 + 9) / 2
    assert bool(info.is_accepted)
    assert state.n == 1


def test_clipping_bounds_the_norm_of_the_gradient():
    algorithm = GradientDescent(learning_rate=1.0, clip=0.5)  # |grad| = 5, cut to a tenth
    state, _ = algorithm.step((), algorithm.init(X, evaluate(X)), evaluate, False)
    np.testing.assert_allclose(state.x, [2.7, -3.6], rtol=1e-6)  # a few float32 roundings
    algorithm = GradientDescent(learning_rate=1.0, clip=5.5)
    state, _ = algorithm.step((), algorithm.init(X, evaluate(X)), evaluate, False)
    np.testing.assert_array_equal(state.x, [0.0, 0.0])


def test_the_first_step_of_adam_is_the_learning_rate_along_the_sign():
    algorithm = Adam(learning_rate=0.125)
    state, _ = algorithm.step((), algorithm.init(X, evaluate(X)), evaluate, False)
    # m/sqrt(v) is 1 up to the division by 1 + 1e-8/|g| and a few float32 roundings.
    np.testing.assert_allclose(state.x, [2.875, -3.875], rtol=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "rule"),
    [
        (GradientDescent(0.1), optax.sgd(0.1)),
        (GradientDescent(0.1, clip=1.0), optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1))),
        (Adam(0.1, b1=0.8, b2=0.99), optax.adam(0.1, b1=0.8, b2=0.99)),
        (Adam(0.1, clip=1.0), optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1))),
    ],
)
@pytest.mark.parametrize("is_new", [False, True])
def test_five_steps_are_those_of_optax(algorithm, rule, is_new):
    state, x, memory = algorithm.init(X, evaluate(X)), X, rule.init(X)
    for _ in range(5):
        state, _ = algorithm.step((), state, evaluate, is_new)
        update, memory = rule.update(evaluate(x).grad, memory, x)
        x = optax.apply_updates(x, update)
    np.testing.assert_array_equal(state.x, x)


@pytest.mark.parametrize("is_new", [False, True, jnp.array(True), jnp.array(False)])
def test_one_step_costs_one_pass_on_any_batch(is_new):
    passes = []

    def counted(x):
        passes.append(1)
        return evaluate(x)

    algorithm = Adam()
    algorithm.step((), algorithm.init(X, evaluate(X)), counted, is_new)
    assert len(passes) == 1 == algorithm.evaluations(True) == algorithm.evaluations(False)


@pytest.mark.parametrize("is_new", [True, jnp.array(True)])
def test_on_a_new_batch_the_gradient_is_that_of_the_new_batch(is_new):
    algorithm = GradientDescent(learning_rate=0.5)
    stale = algorithm.init(X, Evaluation(jnp.float32(0), grad=jnp.array([100.0, 100.0])))
    state, _ = algorithm.step((), stale, evaluate, is_new)
    np.testing.assert_array_equal(state.x, X / 2)


def test_a_reset_forgets_the_moments_and_keeps_x():
    algorithm = Adam(0.1)
    state, _ = algorithm.step((), algorithm.init(X, evaluate(X)), evaluate, False)
    fresh = algorithm.reset(state)
    np.testing.assert_array_equal(fresh.x, state.x)
    assert all(np.all(np.asarray(leaf) == 0) for leaf in jax.tree.leaves(fresh.memory))
    assert any(np.any(np.asarray(leaf) != 0) for leaf in jax.tree.leaves(state.memory))


def test_a_loss_that_is_no_longer_a_number_is_told():
    algorithm = GradientDescent(learning_rate=1.0)
    state = algorithm.init(X, evaluate(X))
    _, info = algorithm.step((), state, lambda x: Evaluation(jnp.float32(jnp.nan), grad=x), False)
    assert not info.is_finite
