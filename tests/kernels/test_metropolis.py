"""Plain Metropolis Monte Carlo: Sec. II A of the paper, hand-worked, then its laws."""

import math
from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradless.kernels import AMC, Metropolis
from gradless.kernels.metropolis import MetropolisState
from gradless.proposals import Noise
from gradless.types import Evaluation

NORMAL = NormalDist()
STATE = MetropolisState(jnp.array([1.0, 2.0]), jnp.float32(5.0), jnp.float32(0.5), jnp.int32(3))
NOISE = Noise(jnp.array([1.0, -2.0]), None)


def returning(loss):
    return lambda x: Evaluation(jnp.float32(loss))


def one_step_many_times(algorithm, x, evaluate, num, seed):
    """Make `num` independent first steps from x."""
    start = algorithm.init(x, evaluate(x))

    def step(key):
        return algorithm.step(algorithm.draw(key, x), start, evaluate, False)

    return jax.jit(jax.vmap(step))(jax.random.split(jax.random.key(seed), num))


@pytest.mark.parametrize("loss_new", [4.0, 5.0])
def test_a_move_is_accepted_unless_the_loss_rises(loss_new):
    state, info = Metropolis(sigma=0.5).step(NOISE, STATE, returning(loss_new), False)
    assert bool(info.is_accepted)
    np.testing.assert_array_equal(state.x, [1.5, 1.0])  # x + sigma z
    assert (state.loss, state.sigma, state.n) == (loss_new, 0.5, 4)


@pytest.mark.parametrize("loss_new", [5.5, math.nan, math.inf, -math.inf])
def test_a_rise_or_a_loss_that_is_not_finite_is_rejected(loss_new):
    state, info = Metropolis(sigma=0.5).step(NOISE, STATE, returning(loss_new), False)
    assert not info.is_accepted
    assert bool(info.is_finite) == math.isfinite(loss_new)
    np.testing.assert_array_equal(state.x, STATE.x)
    assert (state.loss, state.sigma, state.n) == (5.0, 0.5, 4)


@pytest.mark.parametrize(("xi", "expected"), [(0.3678, True), (0.3680, False)])
@pytest.mark.parametrize("temperature", [2.0, lambda n: 8.0 / (n + 1)])
def test_a_finite_temperature_accepts_a_rise_with_the_boltzmann_factor(xi, expected, temperature):
    """U' - U = 2 at T = 2 (the schedule's value at step 3 too): exp(-1) = 0.36788."""
    noise = NOISE._replace(xi=jnp.float32(xi))
    _, info = Metropolis(sigma=0.5, temperature=temperature).step(noise, STATE, returning(7.0), False)
    assert bool(info.is_accepted) is expected


@pytest.mark.parametrize(("stale", "loss_new", "expected"), [(5.0, 2.0, False), (0.5, 0.75, True)])
def test_a_new_batch_is_judged_against_the_loss_on_that_batch(stale, loss_new, expected):
    def evaluate(x):
        return Evaluation(jnp.where(x[0] == 1.0, 1.0, loss_new))  # U(x) is 1 there

    state, info = Metropolis(sigma=0.5).step(NOISE, STATE._replace(loss=jnp.float32(stale)), evaluate, True)
    assert bool(info.is_accepted) is expected
    assert state.loss == (loss_new if expected else 1.0)


def test_a_reset_changes_nothing():
    assert Metropolis(sigma=1.0).reset(STATE) is STATE


def test_on_a_linear_loss_one_half_is_accepted_and_the_gain_is_sigma_g_over_root_two_pi():
    """The change of loss is sigma |g| u with u ~ N(0, 1): half are accepted, and -E[u; u <= 0] = 1/sqrt(2 pi)."""
    num, sigma = 100_000, 1e-3
    with jax.enable_x64(True):
        g = jnp.array([3.0, -4.0, 12.0])  # |g| = 13
        state, info = one_step_many_times(
            Metropolis(sigma=sigma), jnp.array([1.0, 2.0, 3.0]), lambda x: Evaluation(x @ g), num, seed=0
        )
        gain = 31.0 - np.asarray(state.loss)  # U at the start is 3 - 8 + 36
    assert abs(np.mean(info.is_accepted) - 0.5) < 4 * 0.5 / math.sqrt(num)
    # Var[min(u, 0)] = 1/2 - 1/(2 pi).
    error = sigma * 13 * math.sqrt((0.5 - 0.5 / math.pi) / num)
    assert abs(gain.mean() - sigma * 13 / math.sqrt(2 * math.pi)) < 4 * error


def test_a_small_step_is_a_langevin_step():
    """Drift sigma/sqrt(2 pi) along -grad U, noise of variance sigma^2/2, the same in all directions. Paper: Eq. (2)."""
    num, sigma = 100_000, 1e-2
    with jax.enable_x64(True):
        g = np.array([1.0, -2.0, 2.0])  # |g| = 3
        state, _ = one_step_many_times(
            Metropolis(sigma=sigma), jnp.zeros(3), lambda x: Evaluation(x @ jnp.asarray(g)), num, seed=1
        )
        dx = np.asarray(state.x) / sigma
    # dx is z on the half space z.g <= 0 and 0 elsewhere. The half space holds exactly half of every even moment:
    # E[dx_i dx_j] = delta_ij/2, E[dx_i^4] = 3/2, E[dx_i^2 dx_j^2] = 1/2.
    drift = -g / 3 / math.sqrt(2 * math.pi)
    assert np.all(np.abs(dx.mean(0) - drift) < 4 * np.sqrt((0.5 - drift**2) / num))
    second = dx.T @ dx / num
    assert np.all(np.abs(np.diag(second) - 0.5) < 4 * math.sqrt((3 / 2 - 1 / 4) / num))
    assert np.all(np.abs(second[np.triu_indices(3, 1)]) < 4 * math.sqrt(0.5 / num))


def test_on_a_quadratic_loss_acceptance_falls_as_predicted_and_0_27_is_best():
    """With s = sigma tr(H)/(2 |g|) acceptance is Phi(-s); the gain sigma |g| (phi(s) - s Phi(-s)) is largest at 0.27.

    In N dimensions tr(H) is felt with a relative spread of sqrt(2/N), which changes Phi(-s) by at most
    s^3 phi(s)/N + s |s^2 - 1| phi(s)/N < 1e-3 at N = 500: far below the standard errors.
    """
    num, size = 8_000, 500
    x = jnp.ones(size) * 2.0  # U = |x|^2/2, g = x, H = 1
    g, gains = 2.0 * math.sqrt(size), []
    for s in (0.3, 0.612, 1.2):
        sigma = 2 * g * s / size
        # The sum is taken relative to the start, U = (|x'|^2 - |x|^2)/2, so that float32 resolves it.
        state, info = one_step_many_times(
            Metropolis(sigma=sigma), x, lambda y: Evaluation(jnp.sum((y - 2) * (y + 2)) / 2), num, seed=2
        )
        acceptance = NORMAL.cdf(-s)
        assert abs(np.mean(info.is_accepted) - acceptance) < 4 * math.sqrt(acceptance * (1 - acceptance) / num) + 1e-3
        gain = -np.asarray(state.loss, np.float64) / (sigma * g)
        # Half of E[u^2] = 1 bounds the variance of a gain in units of sigma |g|; the change of Phi(-s) adds its part.
        assert abs(gain.mean() - (NORMAL.pdf(s) - s * acceptance)) < 4 * math.sqrt(0.5 / num) + 1e-3
        gains.append(gain.mean() * sigma)
    assert abs(NORMAL.cdf(-0.612) - 0.27) < 0.001
    assert gains[1] > gains[0]
    assert gains[1] > gains[2]


@pytest.mark.parametrize("make", [Metropolis, lambda **settings: AMC(n_s=math.inf, **settings)], ids=["mc", "amc"])
def test_at_a_finite_temperature_a_quadratic_well_is_sampled_with_variance_t_over_k(make):
    """The Boltzmann distribution of U = k x^2/2 is normal with variance T/k."""
    chains, steps, k, temperature = 20_000, 100, 4.0, 0.5
    algorithm = make(sigma=0.8, temperature=temperature)  # about 2.3 widths, so that 100 steps forget the start

    def evaluate(x):
        return Evaluation(k * x[0] ** 2 / 2)

    def run(key):
        def step(state, t):
            noise = algorithm.draw(jax.random.fold_in(key, t), state.x)
            return algorithm.step(noise, state, evaluate, False)[0], None

        x = jnp.ones(1)
        return jax.lax.scan(step, algorithm.init(x, evaluate(x)), jnp.arange(steps))[0].x[0]

    x = np.asarray(jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), chains)), np.float64)
    # Independent normal numbers: standard errors of the mean, the variance and the fourth moment.
    variance = temperature / k
    assert abs(x.mean()) < 4 * math.sqrt(variance / chains)
    assert abs(x.var() - variance) < 4 * variance * math.sqrt(2 / chains)
    assert abs((x**4).mean() - 3 * variance**2) < 4 * variance**2 * math.sqrt(96 / chains)
