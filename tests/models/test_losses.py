"""Losses against numbers worked by hand and the answers of trivial predictors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradless.data import functions
from gradless.models import accuracy, cross_entropy, mse, zero_one_error


def test_mse_sums_or_averages_over_outputs():
    outputs, targets = jnp.array([[1.0, 2.0], [3.0, 5.0]]), jnp.array([[0.0, 2.0], [1.0, 2.0]])
    # Squares: 1, 0 and 4, 9.
    assert mse(outputs, targets) == 7.0
    assert mse(outputs, targets, per="output") == 3.5


@pytest.mark.parametrize(("per", "expected"), [("sample", 0.9), ("output", 0.09)])
def test_uniform_probabilities_have_the_known_error(per, expected):
    targets = jax.nn.one_hot(jnp.arange(10), 10)
    # 0.9^2 + 9 * 0.1^2 = 0.9; a sum of at most 100 terms, each with a float32 rounding of 6e-8.
    np.testing.assert_allclose(mse(jnp.full((10, 10), 0.1), targets, per=per), expected, rtol=1e-5)


# Sums of 1000 float64 terms in any order: relative error below 1000 * 1.1e-16.
@pytest.mark.parametrize(
    ("make", "predict", "expected"),
    [
        (functions.sine, lambda theta: 0 * theta, 0.4995),
        (functions.step, lambda theta: 0 * theta, 0.0625),
        (functions.step, lambda theta: 0 * theta + 0.125, 0.046875),
        (functions.log_sine, functions.log_term, 0.004995),
    ],
)
def test_trivial_predictors_have_the_known_losses(make, predict, expected):
    with jax.enable_x64(True):
        theta, target = make(1000)
        loss = mse(jnp.asarray(predict(theta)), target)
        assert loss.dtype == jnp.float64
        np.testing.assert_allclose(loss, expected, rtol=2e-13)


def test_cross_entropy_of_equal_logits_is_ln_of_the_number_of_classes():
    np.testing.assert_allclose(cross_entropy(jnp.zeros((5, 2)), jnp.array([0, 1, 1, 0, 1])), np.log(2), rtol=1e-6)


def test_cross_entropy_by_hand_and_one_hot():
    logits = jnp.array([[0.0, np.log(3.0)], [np.log(4.0), 0.0]])
    labels = jnp.array([1, 1])
    # p = 3/4 and 1/5; three float32 operations on numbers near 1.
    expected = -(np.log(3 / 4) + np.log(1 / 5)) / 2
    np.testing.assert_allclose(cross_entropy(logits, labels), expected, rtol=1e-6)
    np.testing.assert_allclose(cross_entropy(logits, jax.nn.one_hot(labels, 2)), expected, rtol=1e-6)


def test_cross_entropy_survives_huge_logits():
    assert cross_entropy(jnp.array([[1e30, 0.0]]), jnp.array([0])) == 0.0


@pytest.mark.parametrize("label", [2, -1])
def test_cross_entropy_of_a_label_that_is_no_class_is_not_a_number(label):
    assert jnp.isnan(cross_entropy(jnp.zeros((2, 2)), jnp.array([0, label])))


def test_accuracy_and_zero_one_error_for_both_kinds_of_label():
    outputs = jnp.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.0, 0.1, 0.9], [0.6, 0.4, 0.0]])
    labels = jnp.array([1, 0, 2, 1])
    for given in (labels, jax.nn.one_hot(labels, 3)):
        assert accuracy(outputs, given) == 0.75
        assert zero_one_error(outputs, given) == 0.25


def test_the_mean_is_in_double_precision_where_it_is_enabled():
    # A million and one samples, one of error 2^24 and the rest 1: float32 cannot count beyond 2^24 by ones.
    outputs = np.ones((2**20 + 1, 1), np.float32)
    outputs[0] = 2.0**12
    zeros = np.zeros_like(outputs)
    with jax.enable_x64(True):
        loss = mse(jnp.asarray(outputs), jnp.asarray(zeros))
        assert loss.dtype == jnp.float64
        assert loss == (2**24 + 2**20) / (2**20 + 1)  # both sums are exact in float64, so only the division rounds
        assert cross_entropy(jnp.zeros((2, 2), jnp.float32), jnp.array([0, 1])).dtype == jnp.float64
        assert accuracy(jnp.zeros((2, 2), jnp.float32), jnp.array([0, 1])).dtype == jnp.float64


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_mean_keeps_the_precision_of_the_outputs_otherwise(dtype):
    with jax.enable_x64(False):
        outputs = jnp.ones((4, 2), dtype)
        assert mse(outputs, np.zeros((4, 2))).dtype == dtype
        assert cross_entropy(outputs, jnp.zeros(4, int)).dtype == dtype


def test_a_difference_in_the_last_digits_is_seen_in_double_precision():
    # The mean of 2^12 float32 errors, one of which grew by one part in 2^20: a relative change of 2^-32 of the loss.
    outputs = np.ones((2**12, 1), np.float32)
    moved = outputs.copy()
    moved[7] = 1 + 2.0**-20
    with jax.enable_x64(True):
        before, after = (mse(jnp.asarray(y), np.zeros_like(y)) for y in (outputs, moved))
        assert after > before


def test_wrong_arguments_are_refused_in_words():
    with pytest.raises(ValueError, match=r"per must be sample or output, got 'pixel'"):
        mse(jnp.zeros((2, 2)), jnp.zeros((2, 2)), per="pixel")
    with pytest.raises(ValueError, match=r"targets must have the shape of outputs, \(2, 1\), got \(2,\)"):
        mse(jnp.zeros((2, 1)), jnp.zeros(2))
    with pytest.raises(ValueError, match=r"labels must be whole numbers of shape \(2,\) or one-hot"):
        accuracy(jnp.zeros((2, 3)), jnp.zeros(3, int))
    with pytest.raises(ValueError, match=r"labels must be whole numbers"):
        cross_entropy(jnp.zeros((2, 3)), jnp.zeros(2))
