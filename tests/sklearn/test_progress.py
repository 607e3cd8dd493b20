"""Where a run ends, and which net it returns."""

import jax
import jax.numpy as jnp
import numpy as np

import gradless as gl
from gradless.engine.plan import Plan
from gradless.engine.train import prepare
from gradless.sklearn.progress import Progress, run_session


def begun(loss, steps, chains=1, **settings):
    plan = Plan(steps=steps, chains=tuple(range(chains)), record_every=1, **settings)
    session = prepare(gl.metropolis(sigma=0.1), loss, lambda key: jax.random.normal(key, (2,)), plan)
    session.begin()
    return session


def square(x):
    return jnp.sum(x**2) + 1


def flat(x):
    return 0 * jnp.sum(x) + 1


def test_the_net_of_the_best_score_is_returned_not_the_last():
    scores, seen = iter([0.1, 0.9, 0.5, 0.7]), []

    def judge(params):
        seen.append(np.array(params))
        return next(scores)

    session = begun(square, steps=40)
    progress = Progress(tol=0.0, patience=100.0, judge=judge)
    progress.stretch = lambda steps: 10  # four looks
    outcome = run_session(session, 40, progress)
    assert progress.scores == [0.1, 0.9, 0.5, 0.7]
    assert (outcome.params == seen[1]).all()
    assert (outcome.params != seen[3]).any()
    np.testing.assert_allclose(outcome.loss, square(outcome.params), rtol=1e-6)  # float32
    assert not outcome.is_converged


def test_without_progress_it_ends_after_its_patience():
    session = begun(flat, steps=1000)
    outcome = run_session(session, 1000, Progress(tol=0.01, patience=50.0))
    assert outcome.is_converged
    assert session.t == 55  # the first look, after 5 steps, has nothing to compare with


def test_progress_below_tol_does_not_count():
    session = begun(square, steps=1000)
    assert run_session(session, 1000, Progress(tol=10.0, patience=50.0)).is_converged
    assert session.t == 55


def test_a_loss_that_cannot_be_lower_ends_it():
    session = begun(flat, steps=1000, chains=2, target_loss=1.0)
    outcome = run_session(session, 1000, Progress(tol=0.01, patience=np.inf))
    assert (outcome.is_converged, outcome.is_frozen) == (True, False)
    assert session.t < 1000
