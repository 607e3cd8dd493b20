"""Gradients of kernels as products: the same numbers, for every layout, stride and margin."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from gradless.faster import faster

LAYOUTS = [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("NHWC", "OIHW", "NCHW")]


def image_and_kernel(layout, size, kernel, groups=1, dtype="float32"):
    rng = np.random.default_rng(0)
    sizes = {"N": 5, "C": 4, "I": 4 // groups, "O": 6}
    image = rng.normal(size=[(sizes | dict(zip("HW", size, strict=True)))[axis] for axis in layout[0]])
    weight = rng.normal(size=[(sizes | dict(zip("HW", kernel, strict=True)))[axis] for axis in layout[1]])
    return jnp.asarray(image, dtype), jnp.asarray(weight, dtype)


def gradient_of(layout, **options):
    def loss(weight, image):
        return jnp.sum(jnp.sin(lax.conv_general_dilated(image, weight, dimension_numbers=layout, **options)))

    return lambda image, weight: jax.grad(loss)(weight, image)


def num_convolutions(function, *args):
    return str(jax.make_jaxpr(function)(*args)).count("conv_general_dilated[")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("size", "kernel", "options"),
    [
        ((7, 7), (3, 3), {"window_strides": (1, 1), "padding": "SAME"}),
        ((7, 6), (3, 2), {"window_strides": (1, 1), "padding": "VALID"}),
        ((8, 7), (3, 3), {"window_strides": (2, 2), "padding": ((1, 1), (1, 1))}),
        ((9, 9), (7, 5), {"window_strides": (2, 1), "padding": ((3, 3), (0, 4))}),
        ((6, 6), (1, 1), {"window_strides": (2, 2), "padding": "VALID"}),  # the last row and column are never met
        ((9, 9), (3, 3), {"window_strides": (1, 1), "padding": "SAME", "rhs_dilation": (2, 3)}),
        ((5, 5), (3, 3), {"window_strides": (1, 1), "padding": ((2, 1), (1, 1)), "lhs_dilation": (2, 2)}),
    ],
)
def test_the_gradient_of_a_kernel_is_products(layout, size, kernel, options):
    function, args = gradient_of(layout, **options), image_and_kernel(layout, size, kernel)
    assert num_convolutions(function, *args) == 2  # forward, and the gradient of the kernel
    assert num_convolutions(faster(function), *args) == 1
    expected, found = function(*args), jax.jit(faster(function))(*args)
    assert expected.shape == found.shape
    assert expected.dtype == found.dtype
    # Sums of up to 5 x 81 products of order one in another order: some units in the last place of their number.
    np.testing.assert_allclose(found, expected, atol=405 * np.finfo(np.float32).eps)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ((3, 3), {"feature_group_count": 2}),
        ((9, 9), {}),  # more products than a program should have
    ],
)
def test_the_gradient_of_another_kind_is_left_alone(kernel, options):
    function = gradient_of(LAYOUTS[0], window_strides=(1, 1), padding="SAME", **options)
    args = image_and_kernel(LAYOUTS[0], (12, 12), kernel, options.get("feature_group_count", 1))
    assert num_convolutions(faster(function), *args) == 2


def test_half_precision_is_summed_in_the_type_that_a_convolution_sums_it_in():
    function, args = (
        gradient_of(LAYOUTS[0], window_strides=(1, 1), padding="SAME"),
        image_and_kernel(LAYOUTS[0], (7, 7), (3, 3), dtype="bfloat16"),
    )
    expected, found = function(*args), faster(function)(*args)
    assert found.dtype == expected.dtype == jnp.bfloat16
    # A unit in the last place of bfloat16, 2^-8, of numbers up to 30.
    np.testing.assert_allclose(found.astype(jnp.float32), expected.astype(jnp.float32), atol=30 * 2.0**-7)
