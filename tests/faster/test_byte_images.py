"""Bytes go into a product as they are, with the scale in the weights, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradless.faster import faster, multiplies_bytes

IMAGES = np.random.default_rng(0).integers(0, 256, (100, 4, 3)).astype(np.uint8)
W = jax.random.normal(jax.random.key(0), (12, 20))


def divided(images):
    return jnp.tanh((images.reshape(100, 12).astype(jnp.float32) / 255) @ W)


def multiplied_first(images):
    return (0.5 * images.astype(jnp.float32)).reshape(100, 12) @ W


def whole(images):
    return jnp.asarray(images.reshape(100, 12), jnp.float32) @ W


def in_a_function_of_its_own(images):
    return jax.jit(lambda pixels: pixels / 255 @ W)(images.reshape(100, 12).astype(jnp.float32))


@pytest.mark.parametrize("function", [divided, multiplied_first, whole, in_a_function_of_its_own])
def test_a_product_takes_the_bytes(function):
    assert multiplies_bytes(function, IMAGES)
    found, expected = jax.jit(faster(function))(IMAGES), function(IMAGES)
    assert found.dtype == expected.dtype
    # Twelve products of order 255 at most, each rounded to float32.
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def shifted(images):
    return ((images.reshape(100, 12).astype(jnp.float32) - 33) / 255) @ W


def scaled_by_pixel(images):
    return (images.reshape(100, 12).astype(jnp.float32) * jnp.arange(12.0)) @ W


def scaled_twice(images):
    return (images.reshape(100, 12).astype(jnp.float32) / 255 / 0.3) @ W


def divided_by_them(images):
    return (1 / (1 + images.reshape(100, 12).astype(jnp.float32))) @ W


def in_half_precision(images):
    return (images.reshape(100, 12).astype(jnp.float16) / 255 @ (W / 255).astype(jnp.float16)).astype(jnp.float32)


@pytest.mark.parametrize("function", [shifted, scaled_by_pixel, scaled_twice, divided_by_them, in_half_precision])
def test_what_is_no_multiple_of_the_bytes_is_left_alone(function):
    assert not multiplies_bytes(function, IMAGES)
    # Sums of twelve products of up to 255 squared, in float32.
    np.testing.assert_allclose(jax.jit(faster(function))(IMAGES), function(IMAGES), rtol=1e-5, atol=1e-4)
