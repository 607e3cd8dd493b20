"""Named losses against scikit-learn's own metrics; weights against repetitions; which metrics can be compiled."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics

import gradless as gl
from gradless.models import MLP
from gradless.sklearn.losses import (
    MULTICLASS,
    MULTILABEL,
    POWERS,
    REGRESSION,
    as_number,
    is_traceable,
    named_loss,
    takes_weights,
)
from gradless.sklearn.nets import first_params, outputs_for
from gradless.sklearn.samples import Samples, as_data, units_of

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 3))
WEIGHT = RNG.integers(0, 4, 12).astype(float)
NET = MLP((3, 5, 2))
PARAMS = first_params(NET, np.float64, jax.random.key(1))
CLASSES = RNG.integers(0, 2, (12, 1)).astype(np.int32)
LABELS = RNG.integers(0, 2, (12, 2)).astype(np.int32)
TARGETS = 10 + 3 * RNG.standard_normal((12, 2))


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


def both(task, name, y, metric, of):
    """Compare with a metric of scikit-learn, with and without weights; the sums are of 12 numbers of order 1."""
    units = units_of(Samples(X, y)) if task == REGRESSION else None
    outputs = outputs_for(NET, PARAMS, X)
    for weight in (None, WEIGHT):
        value = named_loss(NET, task, name)(PARAMS, as_data(Samples(X, y, weight), units))
        outputs_in_units = outputs if units is None else outputs * units.spread + units.centre
        expected = metric(y if y.shape[1] > 1 else y[:, 0], of(outputs_in_units), sample_weight=weight)
        unit = 1 if units is None else units.largest ** POWERS[name]
        np.testing.assert_allclose(value * unit, expected, rtol=1e-12)


def softmax(outputs):
    return np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)


def test_classifier_losses():
    both(MULTICLASS, "cross_entropy", CLASSES, metrics.log_loss, softmax)
    both(MULTICLASS, "zero_one", CLASSES, metrics.zero_one_loss, lambda z: z.argmax(axis=1))

    def brier(y, p, sample_weight):
        return np.average(((p - np.eye(2)[y]) ** 2).sum(axis=1), weights=sample_weight)

    both(MULTICLASS, "squared_error", CLASSES, brier, softmax)


def test_multilabel_losses():
    def of_each_label(y, p, sample_weight):
        return sum(metrics.log_loss(y[:, k], p[:, k], sample_weight=sample_weight) for k in range(2))

    both(MULTILABEL, "cross_entropy", LABELS, of_each_label, lambda z: 1 / (1 + np.exp(-z)))
    both(MULTILABEL, "zero_one", LABELS, metrics.zero_one_loss, lambda z: (z > 0).astype(int))


def test_regressor_losses_are_in_powers_of_the_largest_spread():
    both(REGRESSION, "squared_error", TARGETS, metrics.mean_squared_error, lambda z: z)
    both(REGRESSION, "absolute_error", TARGETS, metrics.mean_absolute_error, lambda z: z)


def test_signal_norm_with_weights_is_that_of_repeated_rows():
    loss = named_loss(NET, MULTICLASS, "cross_entropy")
    weighted = gl.signal_norm(loss, PARAMS, as_data(Samples(X, CLASSES, WEIGHT), None))
    repeated = np.repeat(np.arange(12), WEIGHT.astype(int))
    plain = gl.signal_norm(loss, PARAMS, as_data(Samples(X[repeated], CLASSES[repeated]), None))
    unweighted = gl.signal_norm(loss, PARAMS, as_data(Samples(X, CLASSES), None))
    for layer in range(2):
        lam = [each["layers"][layer]["weight"] for each in (weighted, plain, unweighted)]
        np.testing.assert_allclose(lam[0], lam[1], rtol=1e-12)
        assert abs(lam[0] / lam[2] - 1).max() > 1e-3  # the weights do matter here
        assert weighted["layers"][layer]["bias"].max() == 1


def test_a_request_for_the_same_loss_gives_the_same_function():
    assert named_loss(MLP((3, 5, 2)), MULTICLASS, "zero_one") is named_loss(NET, MULTICLASS, "zero_one")


def test_a_metric_that_catches_what_jax_raises_is_not_compiled_to_what_it_returns_then():
    def metric(y, p):
        try:
            return 1 - metrics.roc_auc_score(y, p[:, 1])
        except Exception:
            return 1.0

    assert not is_traceable(metric, CLASSES[:, 0], np.full((12, 2), 0.5))


@pytest.mark.parametrize("value", [0.5, 1, True, np.float32(0.5), jnp.asarray(0.5), Fraction(1, 2)])
def test_one_number_is_a_value(value):
    assert as_number(value) == value


@pytest.mark.parametrize(
    ("value", "words"), [(None, "None"), ("0.5", "'0.5'"), ([0.5, 1], r"an array of shape \(2,\)"), (1j, "1j")]
)
def test_anything_else_is_not(value, words):
    with pytest.raises(ValueError, match=f"^loss must return one number, got {words}$"):
        as_number(value)


def test_what_can_be_compiled_is_found_out():
    y, p = CLASSES[:, 0], np.full((12, 2), 0.5)
    assert is_traceable(lambda y, p: jnp.mean(p[:, 0] - y), y, p)
    assert not is_traceable(lambda y, p: metrics.f1_score(y, p.argmax(1)), y, p)
    assert not is_traceable(lambda y, p: 1.0 if p[0, 0] > 0 else 0.0, y, p)
    assert is_traceable(lambda y, p: jax.jit(jnp.mean)(p.argmax(axis=1) != y), y, p)
    assert not is_traceable(lambda y, p: jnp.mean(y), y, p)
    assert takes_weights(metrics.log_loss)
    assert not takes_weights(lambda y, p: 0.0)
    assert not takes_weights(max)
