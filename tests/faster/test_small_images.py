"""Convolutions of small images: the same numbers, in every layout, and only where the kernel is larger."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from gradless.faster import faster
from gradless.models import ResNet

LAYOUTS = [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("NHWC", "OIHW", "NCHW")]


def image_and_kernel(layout, size, kernel, dtype="float32"):
    rng = np.random.default_rng(0)  # JAX would compile its generator for every shape
    sizes = {"N": 5, "C": 3, "I": 3, "O": 4}
    image = rng.normal(size=[(sizes | dict(zip("HW", size, strict=True)))[axis] for axis in layout[0]])
    weight = rng.normal(size=[(sizes | {"H": kernel, "W": kernel})[axis] for axis in layout[1]])
    return jnp.asarray(image, dtype), jnp.asarray(weight, dtype)


def num_convolutions(function, *args):
    return str(jax.make_jaxpr(function)(*args)).count("conv_general_dilated[")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"),
    [
        ((1, 1), 3, 1, ((1, 1), (1, 1))),
        ((2, 2), 3, 1, ((1, 1), (1, 1))),
        ((2, 2), 3, 2, ((1, 1), (1, 1))),
        ((2, 4), 3, 2, ((1, 1), (0, 2))),
        ((4, 3), 5, 1, ((2, 2), (3, 1))),
        ((4, 4), 7, 2, ((3, 3), (5, 2))),
    ],
)
def test_a_small_image_is_convolved_by_one_product(layout, size, kernel, stride, padding):
    def function(image, weight):
        return lax.conv_general_dilated(image, weight, (stride, stride), padding, dimension_numbers=layout)

    args = image_and_kernel(layout, size, kernel)
    assert num_convolutions(faster(function), *args) == 0
    expected, found = function(*args), jax.jit(faster(function))(*args)
    assert expected.shape == found.shape
    assert expected.dtype == found.dtype
    # Sums of up to 49 x 3 products of order one in another order: a few units in the last place of sqrt(147).
    np.testing.assert_allclose(found, expected, atol=147 * np.finfo(np.float32).eps)


@pytest.mark.parametrize(
    "options",
    [
        {"padding": ((1, 1), (1, 1)), "rhs_dilation": (2, 2)},
        {"padding": ((2, 2), (2, 2)), "lhs_dilation": (2, 2)},
        {"padding": ((1, 1), (1, 1)), "feature_group_count": 3},
    ],
)
def test_a_convolution_of_another_kind_is_left_alone(options):
    image, weight = jnp.ones((5, 2, 2, 3)), jnp.ones((3, 3, 3 // options.get("feature_group_count", 1), 6))

    def function(image, weight):
        return lax.conv_general_dilated(image, weight, (1, 1), dimension_numbers=LAYOUTS[0], **options)

    assert num_convolutions(faster(function), image, weight) == 1
    np.testing.assert_array_equal(faster(function)(image, weight), function(image, weight))


def test_an_image_as_large_as_the_kernel_is_left_alone():
    image, weight = image_and_kernel(LAYOUTS[0], (3, 3), 3)

    def function(image, weight):
        return lax.conv_general_dilated(image, weight, (1, 1), "SAME", dimension_numbers=LAYOUTS[0])

    assert num_convolutions(faster(function), image, weight) == 1


def small_resnet():
    """A ResNet-18 of few channels as a function of its parameters."""
    net = ResNet(channels=(2, 3, 4, 5))
    rng = np.random.default_rng(0)  # JAX would compile its generator for every shape
    shapes = jax.eval_shape(lambda key: net.init(key, "kaiming"), jax.random.key(0))
    params = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype), shapes)
    images = jnp.asarray(rng.normal(size=(3, 28, 28, 1)), "float32")
    return (lambda params: net.apply(params, images)), params


def test_the_last_stages_of_a_resnet_are_products():
    function, params = small_resnet()
    # 20 convolutions; seven 3x3 kernels see images below 3x3: three of stage 3 and all four of stage 4.
    assert num_convolutions(function, params) == 20
    assert num_convolutions(faster(function), params) == 20 - 7
    # Layer norm keeps all values of order one, so that rounding does not grow with depth.
    np.testing.assert_allclose(jax.jit(faster(function))(params), jax.jit(function)(params), atol=1e-4)


@pytest.mark.soak
def test_the_gradient_of_a_resnet_is_the_same():
    function, params = small_resnet()

    def gradient(params):
        return jax.grad(lambda params: jnp.mean(function(params) ** 2))(params)

    found, expected = (jax.tree.leaves(jax.jit(one)(params)) for one in (faster(gradient), gradient))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4 * np.abs(other).max())


def test_whole_numbers_are_left_alone():
    image, weight = jnp.full((5, 2, 2, 3), 100, jnp.int8), jnp.full((3, 3, 3, 6), 100, jnp.int8)

    def function(image, weight):
        options = {"dimension_numbers": LAYOUTS[0], "preferred_element_type": jnp.int32}
        return lax.conv_general_dilated(image, weight, (1, 1), "SAME", **options)

    np.testing.assert_array_equal(faster(function)(image, weight), np.full((5, 2, 2, 6), 12 * 100 * 100))


def test_sums_are_of_the_type_that_is_asked_for():
    image, weight = image_and_kernel(LAYOUTS[0], (2, 2), 3)

    def function(image, weight):
        options = {"dimension_numbers": LAYOUTS[0], "preferred_element_type": jnp.float32}
        return lax.conv_general_dilated(image, weight, (1, 1), "SAME", **options)

    args = image.astype(jnp.bfloat16), weight.astype(jnp.bfloat16)
    assert num_convolutions(faster(function), *args) == 0
    exact = function(*(array.astype(jnp.float32) for array in args))
    # Products of bfloat16 are exact in float32; sums in bfloat16 would be off by 1e-2.
    np.testing.assert_allclose(faster(function)(*args), exact, atol=1e-5)
