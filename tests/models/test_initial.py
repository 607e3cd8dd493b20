"""Initial parameters: their laws, and the errors for wrong names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradless.models import initial

SHAPE, FAN_IN, GAIN = (400, 500), 400, 5 / 3
NUM = 400 * 500


def draw(name, shape=SHAPE):
    scheme = initial.named_scheme(name)
    return scheme(jax.random.key(1), shape, FAN_IN, GAIN, jnp.dtype("float32"))


# The standard deviation of n normal numbers is known to 1/sqrt(2n), of uniform ones to 0.45/sqrt(n), the mean to
# sd/sqrt(n). We allow five of these: 5 * 0.71 / sqrt(200000) = 0.8% and 5/sqrt(200000) = 1.1% of sd; for 500 biases
# 16% and 22%.
@pytest.mark.parametrize(
    ("name", "sd_weight", "sd_bias"),
    [
        ("gaussian:0.01", 0.01, 0.01),
        ("pytorch", 1 / np.sqrt(3 * FAN_IN), 1 / np.sqrt(3 * FAN_IN)),
        ("kaiming", GAIN / np.sqrt(FAN_IN), 0.0),
    ],
)
def test_mean_and_width(name, sd_weight, sd_bias):
    layer = draw(name)
    assert layer["weight"].shape == SHAPE
    assert layer["bias"].shape == (500,)
    weight, bias = np.asarray(layer["weight"], float), np.asarray(layer["bias"], float)
    np.testing.assert_allclose(weight.std(), sd_weight, rtol=0.008)
    np.testing.assert_allclose(weight.mean(), 0, atol=0.011 * sd_weight)
    np.testing.assert_allclose(bias.std(), sd_bias, rtol=0.16)
    np.testing.assert_allclose(bias.mean(), 0, atol=0.22 * sd_bias)


def test_pytorch_is_uniform_and_kaiming_normal():
    # Fourth moment over squared second: 9/5 for uniform, 3 for normal; standard errors 0.003 and sqrt(24/n) = 0.011.
    for name, kurtosis, error in (("pytorch", 1.8, 0.02), ("kaiming", 3.0, 0.055), ("gaussian:1", 3.0, 0.055)):
        weight = np.asarray(draw(name)["weight"], float)
        np.testing.assert_allclose((weight**4).mean() / (weight**2).mean() ** 2, kurtosis, atol=error)
    assert np.abs(draw("pytorch")["weight"]).max() <= 1 / np.sqrt(FAN_IN)


def test_weight_and_bias_are_independent_draws():
    for name in ("gaussian:1", "pytorch"):
        layer = draw(name, shape=(1, 500))
        # Correlation of 500 pairs has standard error 0.045; we allow five.
        assert abs(np.corrcoef(layer["weight"][0], layer["bias"])[0, 1]) < 0.22


def test_gaussian_of_width_zero_is_the_zero_net():
    assert not np.any(draw("gaussian:0")["weight"])


@pytest.mark.parametrize("name", ["xavier", "gaussian", "gaussian:wide", "gaussian:", "kaiming:2", "", "Pytorch"])
def test_a_wrong_name_is_refused_with_the_choices(name):
    with pytest.raises(ValueError, match=r"init must be one of gaussian:SIGMA .*pytorch, kaiming.*got '") as caught:
        initial.named_scheme(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("number", ["-1", "nan", "inf"])
def test_a_wrong_width_is_refused(number):
    with pytest.raises(ValueError, match=r"sigma of the gaussian init must be a finite number.*got"):
        initial.named_scheme(f"gaussian:{number}")


def test_the_precision_of_new_parameters():
    with jax.enable_x64(False):
        assert initial.parameter_dtype() == jnp.float32
        assert initial.parameter_dtype("bfloat16") == jnp.bfloat16
        with pytest.raises(ValueError, match=r"jax_enable_x64 on, got float64"):
            initial.parameter_dtype("float64")
    with jax.enable_x64(True):
        assert initial.parameter_dtype() == jnp.float64
        assert initial.parameter_dtype("float32") == jnp.float32
    with pytest.raises(ValueError, match=r"dtype must be a floating-point type, got int32"):
        initial.parameter_dtype("int32")


def test_weights_are_the_numbers_that_jax_draws_in_their_own_shape():
    key, shape = jax.random.key(3), (2, 3, 4)
    expected = jax.random.normal(key, shape, "float32") * np.float32(0.5)  # gain 1 over the root of a fan-in of 4
    np.testing.assert_array_equal(initial.kaiming(key, shape, 4, 1.0, jnp.dtype("float32"))["weight"], expected)
    key_weight, _ = jax.random.split(key)
    one = jax.random.uniform(key_weight, shape, "float32", -0.5, 0.5)
    np.testing.assert_array_equal(initial.pytorch(key, shape, 4, 1.0, jnp.dtype("float32"))["weight"], one)
    two = jax.random.normal(key_weight, shape, "float32") * np.float32(0.25)
    np.testing.assert_array_equal(initial.gaussian(0.25)(key, shape, 4, 1.0, jnp.dtype("float32"))["weight"], two)
