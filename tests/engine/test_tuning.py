"""Short trial chains over a grid of sigma, and the best of them."""

import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl


def quadratic(x):
    return jnp.sum(x**2)


def test_the_sigma_of_the_lowest_loss_is_chosen():
    # From |x| = 10 in one dimension with 50 steps: moves of 1e-3 get nowhere near 0 (at most 50 * a few 1e-3), moves
    # of 1e4 are accepted only if they land within 10 of 0, about once in a thousand.
    tuning = gl.tune_sigma(gl.metropolis(sigma=1.0), quadratic, np.array([10.0]), sigmas=[1e-3, 1.0, 1e4], steps=50)
    assert tuning.sigma == 1.0
    assert tuning.losses[1] < 10 < tuning.losses[0]
    assert tuning.acceptances[0] > tuning.acceptances[1] > tuning.acceptances[2]
    assert tuning.steps == 50
    np.testing.assert_array_equal(tuning.sigmas, [1e-3, 1.0, 1e4])


def test_a_trial_is_the_chain_that_train_would_run_alone():
    tuning = gl.tune_sigma(gl.metropolis(sigma=1.0), quadratic, np.array([10.0]), sigmas=[0.1, 1.0], steps=40, seed=5)
    alone = gl.train(gl.metropolis(sigma=1.0), quadratic, np.array([10.0]), steps=40, seed=5, chains=[1])
    trace = alone.trace.loss
    assert tuning.losses[1] == trace[len(trace) // 2 :].mean()
    assert tuning.acceptances[1] == alone.acceptance


def test_a_trial_that_ends_at_its_target_wins():
    tuning = gl.tune_sigma(
        gl.metropolis(sigma=1.0), quadratic, np.array([10.0]), sigmas=[1e-3, 1.0], steps=400, target_loss=1.0
    )
    assert tuning.sigma == 1.0
    assert 0 <= tuning.losses[1] <= 1 < tuning.losses[0]


@pytest.mark.parametrize("sigmas", [[0.1], 0.1])
def test_a_single_sigma_may_be_tried(sigmas):
    tuning = gl.tune_sigma(gl.metropolis(sigma=1.0), quadratic, np.array([10.0]), sigmas=sigmas, steps=20)
    assert tuning.sigma == 0.1
    assert tuning.sigmas.shape == tuning.losses.shape == tuning.acceptances.shape == (1,)


def test_the_rest_of_the_algorithm_is_kept():
    cold = gl.amc(sigma=1.0, epsilon=0.1, n_s=2, sigma_decay=0.5)
    other = gl.amc(sigma=1.0, epsilon=0.0, n_s=2, sigma_decay=0.5)
    same = [gl.tune_sigma(one, quadratic, np.ones(3), sigmas=[0.1, 0.2], steps=60).losses for one in (cold, cold)]
    np.testing.assert_array_equal(*same)
    assert (same[0] != gl.tune_sigma(other, quadratic, np.ones(3), sigmas=[0.1, 0.2], steps=60).losses).any()


def test_a_gradient_baseline_has_no_sigma_to_tune():
    with pytest.raises(ValueError, match="sigma can be tuned for Monte Carlo algorithms, got gd"):
        gl.tune_sigma(gl.gradient_descent(learning_rate=0.1), quadratic, np.ones(2))


def test_what_is_no_algorithm_is_refused():
    with pytest.raises(ValueError, match=r"algorithm must be made by gl\.amc, gl\.metropolis or the like, got 'amc'"):
        gl.tune_sigma("amc", quadratic, np.ones(2))


def test_the_number_of_chains_is_that_of_the_grid():
    with pytest.raises(ValueError, match="chains must not be given: there is one for each sigma, got 3"):
        gl.tune_sigma(gl.metropolis(), lambda x: x @ x, np.ones(2), chains=3)


def test_a_wrong_grid_is_refused():
    with pytest.raises(ValueError, match=r"sigma must be positive, got -1\.0"):
        gl.tune_sigma(gl.metropolis(sigma=1.0), quadratic, np.ones(2), sigmas=[1.0, -1.0])
