"""The Gaussian move: hand-worked numbers, its law, and rounding that no compiler changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradless.proposals import draw, move, rounded, working_dtype


def test_a_proposal_is_x_plus_the_displacement():
    proposal = move(jnp.array([1.0, 2.0]), jnp.array([0.5, -2.5]))
    np.testing.assert_array_equal(proposal.x, [1.5, -0.5])
    np.testing.assert_array_equal(proposal.eps, [0.5, -2.5])


def test_a_proposal_has_the_precision_of_x_and_its_displacement_that_of_the_noise():
    proposal = move(jnp.array([1.0], jnp.bfloat16), jnp.array([1.0 + 2.0**-20], jnp.float32))
    assert (proposal.x.dtype, proposal.eps.dtype) == (jnp.bfloat16, jnp.float32)
    assert proposal.x == 2
    assert proposal.eps == 1 + 2.0**-20


def test_noise_is_normal_and_independent_from_parameter_to_parameter_and_from_key_to_key():
    num = 40_000
    keys = jax.random.split(jax.random.key(1), num)
    normal = np.asarray(jax.vmap(lambda key: draw(key, jnp.zeros(3), False).normal)(keys), np.float64)
    # Of num normal numbers the mean has a standard error of 1/sqrt(num), the variance sqrt(2/num), the fourth moment
    # sqrt(96/num), and a correlation between pairs 1/sqrt(num).
    assert np.all(np.abs(normal.mean(0)) < 4 / np.sqrt(num))
    assert np.all(np.abs(normal.var(0) - 1) < 4 * np.sqrt(2 / num))
    assert np.all(np.abs((normal**4).mean(0) - 3) < 4 * np.sqrt(96 / num))
    assert np.all(np.abs(np.corrcoef(normal.T)[np.triu_indices(3, 1)]) < 4 / np.sqrt(num))
    assert abs(np.mean(normal[1:, 0] * normal[:-1, 0])) < 4 / np.sqrt(num)


def test_the_move_is_the_same_at_every_temperature():
    cold, warm = (draw(jax.random.key(3), jnp.zeros(5), with_xi) for with_xi in (False, True))
    assert cold.xi is None
    assert warm.xi.shape == ()
    np.testing.assert_array_equal(cold.normal, warm.normal)


def test_another_key_gives_another_move_and_the_same_key_the_same():
    one, again, other = (draw(jax.random.key(seed), jnp.zeros(5), True) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.normal, again.normal)
    assert one.xi == again.xi
    assert not np.any(np.asarray(one.normal) == np.asarray(other.normal))
    assert one.xi != other.xi


def test_xi_is_uniform_above_zero_and_up_to_one():
    """The paper draws xi on (0, 1]: a xi of 0 would accept any rise of the loss, 1 must be possible."""
    num = 20_000
    keys = jax.random.split(jax.random.key(0), num)
    xi = np.asarray(jax.vmap(lambda key: draw(key, jnp.zeros(1), True).xi)(keys), np.float64)
    assert xi.min() > 0
    assert xi.max() <= 1
    # Kolmogorov-Smirnov: sup |F_n - F| exceeds 2.15/sqrt(n) with a probability of 2 exp(-2 * 2.15^2) = 2e-4.
    steps = np.arange(1, num + 1) / num
    assert np.max(np.abs(np.sort(xi) - steps)) < 2.15 / np.sqrt(num)


@pytest.mark.parametrize(("uniform", "xi"), [(0.0, 1.0), (1 - 2.0**-24, 2.0**-24)])
def test_the_ends_of_xi_are_one_and_not_zero(monkeypatch, uniform, xi):
    # JAX draws on [0, 1); its largest float32 is 1 - 2^-24 at most.
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, dtype: jnp.full(shape, uniform, dtype))
    assert draw(jax.random.key(0), jnp.zeros(1), True).xi == np.float32(xi)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_noise_has_the_precision_of_x_but_float32_at_least(dtype):
    with jax.enable_x64(True):
        x = jnp.zeros(3, dtype)
        noise = draw(jax.random.key(0), x, True)
        assert noise.normal.dtype == noise.xi.dtype == working_dtype(x)
        assert working_dtype(x) == ("float64" if dtype == "float64" else "float32")
        assert noise.normal.shape == (3,)


def test_a_product_in_a_compiled_sum_is_rounded_like_one_computed_in_steps():
    """mu + scale z in one fused operation would round once instead of twice and move x elsewhere."""
    keys = jax.random.split(jax.random.key(5), 3)
    mu, scale, normal = (jax.random.normal(key, (10_000,)) for key in keys)
    in_steps = np.asarray(mu) + np.asarray(scale) * np.asarray(normal)  # NumPy rounds after each operation
    compiled = jax.jit(lambda mu, scale, normal: mu + rounded(scale * normal))(mu, scale, normal)
    np.testing.assert_array_equal(compiled, in_steps)


def test_rounding_changes_no_number():
    largest = float(np.finfo(np.float32).max)
    values = jnp.array([0.0, -1.5, 2e-38, largest, -largest], jnp.float32)
    np.testing.assert_array_equal(rounded(values), values)
    assert np.isnan(rounded(jnp.float32(np.nan)))
