"""The Gaussian move: hand-worked numbers, its law, and rounding that no compiler changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradless.proposals import displace, draw, rounded


def test_a_displacement_is_mu_plus_scale_times_the_normal_number():
    mu, scale, normal = jnp.array([0.25, -0.5]), jnp.array([0.25, 1.0]), jnp.array([1.0, -2.0])
    np.testing.assert_array_equal(displace(mu, scale, normal), [0.5, -2.5])


def test_displacements_have_mean_mu_and_variance_scale_squared():
    """eps_i ~ N(mu_i, scale_i^2), Eqs. (8) and (9)."""
    num = 40_000
    mu, scale = np.array([0.0, 3.0, -1.0]), np.array([1.0, 0.5, 2.0])
    x = jnp.zeros(3)
    keys = jax.random.split(jax.random.key(1), num)
    eps = jax.vmap(lambda key: displace(jnp.asarray(mu), jnp.asarray(scale), draw(key, x, False).normal))(keys)
    eps = np.asarray(eps, np.float64)
    # The mean of num samples has a standard error scale/sqrt(num), their variance one of scale^2 sqrt(2/num).
    assert np.all(np.abs(eps.mean(0) - mu) < 4 * scale / np.sqrt(num))
    assert np.all(np.abs(eps.var(0) - scale**2) < 4 * scale**2 * np.sqrt(2 / num))
    # Parameters move independently: a correlation of num pairs has a standard error of 1/sqrt(num).
    assert np.all(np.abs(np.corrcoef(eps.T)[np.triu_indices(3, 1)]) < 4 / np.sqrt(num))


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


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_noise_has_the_type_of_x(dtype):
    noise = draw(jax.random.key(0), jnp.zeros(3, dtype), True)
    assert noise.normal.dtype == noise.xi.dtype == dtype
    assert noise.normal.shape == (3,)


def test_a_compiled_displacement_is_rounded_like_one_computed_in_steps():
    """mu + scale z in one fused operation would round once instead of twice and move x elsewhere."""
    keys = jax.random.split(jax.random.key(5), 3)
    mu, scale, normal = (jax.random.normal(key, (10_000,)) for key in keys)
    in_steps = np.asarray(mu) + np.asarray(scale) * np.asarray(normal)  # NumPy rounds after each operation
    np.testing.assert_array_equal(jax.jit(displace)(mu, scale, normal), in_steps)


def test_rounding_changes_no_number():
    largest = float(np.finfo(np.float32).max)
    values = jnp.array([0.0, -1.5, 2e-38, largest, -largest], jnp.float32)
    np.testing.assert_array_equal(rounded(values), values)
    assert np.isnan(rounded(jnp.float32(np.nan)))
