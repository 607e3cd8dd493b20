"""A loss as the algorithms see it."""

import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.engine.flat import ByIdentity, Flattening
from gradless.engine.objective import MAX_GATHERED, Objective, _per_parameter

PARAMS = {"w": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)}
BATCH = (jnp.array([[1.0, 0.0], [1.0, 1.0]]), jnp.array([0.0, 2.0]))


def loss(params, batch):
    inputs, targets = batch
    return jnp.mean((inputs @ params["w"] + params["b"] - targets) ** 2)


def objective(**asked):
    return Objective(ByIdentity(loss), Flattening.of(PARAMS), has_data=True, **asked)


def test_an_evaluation_is_the_loss_of_the_tree_behind_x():
    # Outputs 1 + 3 = 4 and 1 + 2 + 3 = 6 against 0 and 2: both squares are 16. x is (b, w1, w2).
    evaluation = objective().on(BATCH)(jnp.array([3.0, 1.0, 2.0]))
    assert evaluation.loss == 16
    assert evaluation.lam is None
    assert evaluation.grad is None


def test_a_gradient_comes_with_the_loss_for_the_algorithms_that_ask():
    # dU/db = mean 2 * 4 = 8; dU/dw = mean of 8 * (1, 0) and 8 * (1, 1) = (8, 4).
    evaluation = objective(needs_gradient=True).on(BATCH)(jnp.array([3.0, 1.0, 2.0]))
    assert evaluation.loss == 16
    np.testing.assert_array_equal(evaluation.grad, [8.0, 8.0, 4.0])


def test_lambda_comes_with_the_loss_when_signal_norm_is_on():
    """lambda = (mean over data of the sum of squared inputs)^(-1/2) for weights, 1 for biases."""
    evaluation = objective(signal_norm=True).on(BATCH)(jnp.array([3.0, 1.0, 2.0]))
    # Sums of squared inputs 1 and 2: lambda = 1.5^(-1/2); one float32 rounding each of the mean and the root.
    np.testing.assert_allclose(evaluation.lam, [1.0, 1.5**-0.5, 1.5**-0.5], rtol=1e-6)
    np.testing.assert_allclose(evaluation.loss, 16, rtol=1e-6)


def test_where_lambda_is_no_number_the_loss_is_none():
    inputs, targets = BATCH
    masked = Objective(
        ByIdentity(lambda params, batch: jnp.nanmean((batch[0] @ params["w"] - batch[1]) ** 2)),
        Flattening.of(PARAMS),
        has_data=True,
        signal_norm=True,
    )
    x = jnp.array([3.0, 1.0, 2.0])
    assert jnp.isfinite(masked.on(BATCH)(x).loss)
    assert jnp.isnan(masked.on((inputs.at[0].set(jnp.nan), targets))(x).loss)  # though nanmean leaves it out


def test_with_signal_norm_a_complex_leaf_rides_along():
    params = PARAMS | {"phase": np.array([1j, 2.0], np.complex64)}
    result = gl.train(gl.amc(signal_norm=True), loss, params, data=BATCH, steps=3)
    assert result.state.lam.shape == (3,)
    np.testing.assert_array_equal(result.params["phase"], params["phase"])


@pytest.mark.parametrize(
    "first",
    [np.ones((2, 3), np.complex64), np.ones((2, 0), np.float32), np.ones(2, bool), np.ones(2, jnp.int4)],
)
def test_with_signal_norm_data_may_begin_with_any_array(first):
    def seen(params, batch):
        return loss(params, batch[1:])

    expected = gl.train(gl.amc(signal_norm=True), loss, PARAMS, data=BATCH, steps=5)
    found = gl.train(gl.amc(signal_norm=True), seen, PARAMS, data=(first, *BATCH), steps=5)
    np.testing.assert_array_equal(found.state.lam, expected.state.lam)


@pytest.mark.parametrize("array", [np.array, jnp.array])
def test_lambda_by_hand_may_be_an_array_run_after_run(array, tmp_path):
    def by_hand():
        return gl.amc(signal_norm={"w": array([0.5, 2.0])})

    given = {"loss": loss, "params": PARAMS, "data": BATCH}
    results = [gl.train(by_hand(), **given, steps=3, run=tmp_path / name) for name in "ab"]
    results.append(gl.resume(tmp_path / "a", **given, steps=5))
    assert [result.state.lam.tolist() for result in results] == [[1.0, 0.5, 2.0]] * 3  # x is (b, w1, w2)


def test_without_data_the_loss_has_one_argument():
    alone = Objective(ByIdentity(lambda params: params**2), Flattening.of(3.0), has_data=False)
    assert alone.on(None)(jnp.array([3.0])).loss == 9


LEAVES = {"a": (2, 3), "b": (3,), "c": (), "d": (2, 2)}
LAM = [np.array([[1.0, 2.0, 3.0]]), np.array([4.0]), np.array(5.0), np.array([[6.0], [7.0]])]
EXPECTED = [1, 2, 3, 1, 2, 3, 4, 4, 4, 5, 6, 6, 7, 7]


@pytest.mark.parametrize("limit", [MAX_GATHERED, 0], ids=["few", "many"])
def test_every_parameter_gets_the_lambda_of_its_leaf(limit, monkeypatch):
    monkeypatch.setattr("gradless.engine.objective.MAX_GATHERED", limit)
    flattening = Flattening.of({name: jnp.zeros(shape) for name, shape in LEAVES.items()}, "float32")
    found = _per_parameter([jnp.asarray(one, jnp.float32) for one in LAM], flattening)
    np.testing.assert_array_equal(found, EXPECTED)
