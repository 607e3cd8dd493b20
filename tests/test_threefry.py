"""The normal numbers are JAX's own, bit for bit, and normal: a counter never repeats a number of its neighbour."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from gradless.threefry import normal, threefry


def test_the_published_known_answers():
    # Random123's kat_vectors, threefry2x32 with 20 rounds: counter, key, answer.
    known = [
        ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ]
    for counter, key, answer in known:
        found = threefry(tuple(map(jnp.uint32, key)), tuple(map(jnp.uint32, counter)))
        assert tuple(map(int, found)) == answer


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1,), (1000,), (3, 7), (70_001,)])
def test_they_are_the_numbers_of_jax(dtype, shape):
    with jax.enable_x64(True):
        draw = jax.jit(normal, static_argnums=(1, 2))
        for seed in (0, 1, 2**31):
            key = jax.random.key(seed)
            expected = jax.random.normal(key, shape, dtype)
            np.testing.assert_array_equal(draw(key, shape, dtype), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_they_are_the_same_when_every_operation_is_compiled_by_itself(dtype):
    with jax.enable_x64(True):
        key = jax.random.key(2**31)
        np.testing.assert_array_equal(normal(key, (3, 7), dtype), jax.random.normal(key, (3, 7), dtype))


def test_many_keys_at_once_give_what_each_gives_alone():
    keys = jax.random.split(jax.random.key(3), 5)
    together = jax.vmap(lambda key: normal(key, (11,), "float32"))(keys)
    np.testing.assert_array_equal(together, [normal(key, (11,), "float32") for key in keys])


def test_they_are_normal_and_independent_of_their_neighbours():
    numbers = np.asarray(normal(jax.random.key(0), (1_000_000,), "float32"), np.float64)
    assert stats.kstest(numbers, "norm").pvalue > 1e-3
    # Standard errors of mean, variance, skewness and kurtosis of n normal numbers: sqrt(1, 2, 6, 24 over n).
    moments = (numbers.mean(), numbers.var() - 1, stats.skew(numbers), stats.kurtosis(numbers))
    np.testing.assert_array_less(np.abs(moments), 4 * np.sqrt(np.array([1, 2, 6, 24]) / numbers.size))
    # The correlation at a lag, and between the numbers of two keys, has the standard error 1/sqrt(n).
    other = np.asarray(normal(jax.random.key(1), (1_000_000,), "float32"), np.float64)
    correlations = [np.mean(numbers[lag:] * numbers[: numbers.size - lag]) for lag in (1, 2, 16, 784)]
    assert max(map(abs, [*correlations, np.mean(numbers * other)])) < 4 / np.sqrt(numbers.size - 784)
