"""A sum over many samples in parts is the same sum up to rounding, and is used where it pays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from gradless.faster import faster

RNG = np.random.default_rng(0)


def gradient(weight, images):
    """The gradient of a wide first layer is a product over the samples."""
    return jax.grad(lambda weight: jnp.mean(jnp.tanh(images @ weight) ** 2))(weight)


def arrays(rows, fan_in, fan_out):
    return (
        jnp.asarray(RNG.normal(size=(fan_in, fan_out)), "float32"),
        jnp.asarray(RNG.random((rows, fan_in)), "float32"),
    )


def sums_in_parts(function, *args):
    return "dimension_numbers=(([1], [1]), ([0], [0]))" in str(jax.make_jaxpr(function)(*args))


@pytest.mark.parametrize(
    ("rows", "fan_in", "is_used"),
    [(8_000, 512, True), (7_996, 512, False), (8_000, 511, False), (8_002, 512, False)],
)
def test_it_is_used_where_it_pays(rows, fan_in, is_used):
    assert sums_in_parts(faster(gradient), *arrays(rows, fan_in, 3)) == is_used


def test_the_gradient_is_the_same():
    args = arrays(8_000, 512, 3)
    found, expected = jax.jit(faster(gradient))(*args), gradient(*args)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    # 8,000 numbers of at most 1/8,000 each, added up in another order in float32.
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.abs(expected).max() > 1e-4


def test_whole_numbers_keep_their_type():
    def function(left, right):
        return lax.dot_general(left, right, (((0,), (0,)), ((), ())))

    args = jnp.ones((8_000, 3), jnp.int8), jnp.ones((8_000, 512), jnp.int8)
    found = faster(function)(*args)
    assert found.dtype == jnp.int8
    np.testing.assert_array_equal(found, function(*args))
