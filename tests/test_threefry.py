"""The normal numbers are JAX's own, bit for bit, and normal: a counter never repeats a number of its neighbour."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from gradless.threefry import fold_in, normal, threefry


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
@pytest.mark.parametrize("shape", [(1,), (1000,), (3, 7), (1_273,), (8_193,), (70_001,)])
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


@pytest.mark.parametrize("size", [11, 1_273, 20_001])  # drawn as they are, with some more, and in chunks
def test_many_keys_at_once_give_what_each_gives_alone(size):
    keys = jax.random.split(jax.random.key(3), 5)
    together = jax.vmap(lambda key: normal(key, (size,), "float32"))(keys)
    np.testing.assert_array_equal(together, [normal(key, (size,), "float32") for key in keys])


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


STEPS, NUM, LEAVES = 100, 1_000_000, 10  # a hundred steps of a net with ten leaves of 1e5 numbers
LAGS = (1, 2, 16, 784, 65_536)
NUM_BINS = 1024


@pytest.mark.soak
def test_a_hundred_million_are_normal_and_independent_within_a_step_and_between_steps():
    """Step after step with the keys of neighbouring steps; the numbers of a step are those of all leaves in a row."""
    draw = jax.jit(lambda t: normal(fold_in(jax.random.key(0), t), (NUM,), "float32"))
    edges = stats.norm.ppf(np.arange(1, NUM_BINS) / NUM_BINS)
    powers, counts, p_values, products, before = np.zeros(4), np.zeros(NUM_BINS), [], {}, None
    for t in range(STEPS):
        numbers = np.asarray(draw(t), np.float64)
        p_values.append(stats.kstest(numbers, "norm").pvalue)
        counts += np.bincount(np.searchsorted(edges, numbers, side="right"), minlength=NUM_BINS)
        powers += [np.sum(numbers**power) for power in (1, 2, 3, 4)]
        pairs = {f"lag {lag}": (numbers[lag:], numbers[:-lag]) for lag in LAGS}
        leaves = numbers.reshape(LEAVES, -1)
        pairs["neighbouring leaves"] = (leaves[1:], leaves[:-1])
        if before is not None:
            pairs["neighbouring steps"] = (numbers, before)
        for name, (these, those) in pairs.items():
            total, square, size = products.get(name, (0.0, 0.0, 0))
            # Squares are uncorrelated too; (z^2 - 1) / sqrt(2) has variance 1, so both sums have the variance n.
            square += np.sum((these**2 - 1) * (those**2 - 1)) / 2
            products[name] = (total + np.sum(these * those), square, size + these.size)
        before = numbers

    n = STEPS * NUM
    # The mean of z^k deviates by sqrt((E z^2k - (E z^k)^2) / n): 1, 2, 15, 96 for k = 1 to 4. float32 has no number
    # beyond 5.42; what lies there is below 6e-5 of the fourth moment, whose standard error is 9.8e-4.
    errors = np.sqrt(np.array([1, 2, 15, 96]) / n)
    scores = dict(zip(("z", "z^2", "z^3", "z^4"), (powers / n - [0, 1, 0, 3]) / errors, strict=True))
    for name, (total, square, size) in products.items():
        scores |= {name: total / np.sqrt(size), f"squares, {name}": square / np.sqrt(size)}
    print("\n".join(f"{name}: {score:+.2f} standard errors" for name, score in scores.items()))
    # 18 scores of which one is beyond 4 by chance once in 900 seeds.
    assert max(map(abs, scores.values())) < 4

    # 2^23 equally likely mantissas: a bin is off by one of its 8192 at most, 12 of 97,656 counts, 0.04 of their spread.
    of_bins = stats.chisquare(counts).pvalue
    of_steps = stats.kstest(p_values, "uniform").pvalue
    print(
        f"p-values: {of_bins:.3f} of {NUM_BINS} bins, {of_steps:.3f} of the steps' own, the least {min(p_values):.4f}"
    )
    assert min(of_bins, of_steps, min(p_values) * STEPS) > 1e-3
