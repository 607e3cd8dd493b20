"""The compiled loop against a plain Python loop, and the steps at which it takes its records."""

import math
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.engine import loop, session
from gradless.engine.plan import LARGEST, Plan
from gradless.engine.stepping import block_length
from gradless.engine.train import prepare
from gradless.types import Evaluation

MC = gl.metropolis(sigma=0.1)
AMC = gl.amc(sigma=0.1, epsilon=0.1, n_s=3)
WARM = gl.amc(sigma=0.1, n_s=3, temperature=0.05)
START = np.array([0.25, -0.75], np.float32)


def loss(params):
    """A loss without sums or products: its bits do not depend on the program around it."""
    return jnp.max(jnp.abs(params - 1))


def train(algorithm, start=START, **settings):
    return gl.train(algorithm, loss, start, **({"steps": 300, "record_every": 1} | settings))


def plain_loop(algorithm, start, steps, seed=0):
    """Make the same steps one by one, the noise of step t drawn with fold_in(key, t)."""
    key = jax.random.fold_in(jax.random.key(seed), 1)  # of chain 0
    key_steps = jax.random.fold_in(key, 1)
    algorithm = jax.tree.map(jnp.float32, algorithm)

    def evaluate(x):
        return Evaluation(loss(x))

    @jax.jit
    def step(state, t):
        noise = algorithm.draw(jax.random.fold_in(key_steps, t), state.x)
        return algorithm.step(noise, state, evaluate, False)

    states, accepted = [algorithm.init(jnp.asarray(start), evaluate(start))], []
    for t in range(steps):
        state, info = step(states[-1], t)
        states.append(state)
        accepted.append(bool(info.is_accepted))
    return states, accepted


@pytest.mark.parametrize("algorithm", [MC, AMC, WARM], ids=["mc", "amc", "warm"])
def test_the_loop_makes_the_steps_of_a_plain_loop_with_noise_drawn_one_by_one(algorithm):
    states, accepted = plain_loop(algorithm, START, 300)  # two blocks of 128 and a part of a third
    result = train(algorithm)
    np.testing.assert_array_equal(result.params, states[-1].x)
    for one, other in zip(jax.tree.leaves(result.state), jax.tree.leaves(states[-1]), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(result.trace.loss, [float(state.loss) for state in states])
    np.testing.assert_array_equal(result.trace.sigma, [float(state.sigma) for state in states])
    np.testing.assert_array_equal(result.trace.acceptance[1:], np.asarray(accepted, float))
    assert math.isnan(result.trace.acceptance[0])
    assert result.acceptance == np.mean(accepted)
    assert 0 < result.acceptance < 1


def test_many_parameters_whose_noise_is_drawn_in_short_blocks_make_the_same_steps():
    start = np.linspace(0, 2, 5000, dtype=np.float32)
    assert block_length(start) == 2
    states, _ = plain_loop(gl.amc(sigma=1e-3, epsilon=0.1, n_s=3), start, 11)
    result = train(gl.amc(sigma=1e-3, epsilon=0.1, n_s=3), start, steps=11)
    np.testing.assert_array_equal(result.params, states[-1].x)


@pytest.mark.parametrize(("size", "length"), [(1, 128), (128, 128), (129, 64), (16_384, 1), (10**7, 1)])
def test_blocks_of_noise_hold_at_most_64_kb_and_a_power_of_two_of_steps(size, length):
    assert block_length(jax.ShapeDtypeStruct((size,), np.float32)) == length


@pytest.mark.parametrize("temperature", [0.0, 0.05])
def test_mc_is_amc_with_epsilon_zero_and_infinite_n_s_bit_for_bit(temperature):
    """Standard Metropolis Monte Carlo is the limit epsilon = 0, n_s = infinity, lambda = 1. Paper: Sec. III A."""
    mc = train(gl.metropolis(sigma=0.1, temperature=temperature))
    amc = train(gl.amc(sigma=0.1, epsilon=0, n_s=math.inf, temperature=temperature))
    np.testing.assert_array_equal(mc.params, amc.params)
    for name in set(mc.trace) - {"seconds"}:
        np.testing.assert_array_equal(mc.trace[name], amc.trace[name])
    assert not np.array_equal(mc.params, START)


@pytest.mark.parametrize("algorithm", [MC, AMC, WARM], ids=["mc", "amc", "warm"])
@pytest.mark.parametrize("round_seconds", [1e-12, 1e-3, 1e9])
def test_where_chunks_begin_and_end_changes_nothing(monkeypatch, algorithm, round_seconds):
    """Rounds of no time make chunks of one step; rounds without end make chunks of 1, 4, 16, 64 and 215 steps."""
    lengths = []
    expected = train(algorithm)
    monkeypatch.setattr(session, "ROUND_SECONDS", round_seconds)
    found = train(algorithm, callback=lambda row: lengths.append(row["step"]))
    if round_seconds == 1e-12:
        assert lengths == list(range(301))
    if round_seconds == 1e9:
        assert lengths == [0, 1, 5, 21, 85, 300]
    for one, other in zip(jax.tree.leaves(found.state), jax.tree.leaves(expected.state), strict=True):
        np.testing.assert_array_equal(one, other)
    for name in set(expected.trace) - {"seconds"}:
        np.testing.assert_array_equal(found.trace[name], expected.trace[name])


def test_a_chunk_never_runs_out_of_space_for_its_records(monkeypatch):
    monkeypatch.setattr(session, "ROUND_SECONDS", 1e9)
    result = train(MC, steps=3000)
    np.testing.assert_array_equal(result.trace.step, np.arange(3001))
    assert np.all(result.trace.loss[1:] <= result.trace.loss[:-1])
    # Early records at powers of two come on top.
    result = train(MC, steps=100_000, record_every=64)
    np.testing.assert_array_equal(result.trace.step[:9], [0, 1, 2, 4, 8, 16, 32, 64, 128])
    np.testing.assert_array_equal(result.trace.step[7:], np.arange(64, 100_001, 64))


@pytest.mark.parametrize("record_every", [1, 2, 3, 7, 64, 100, 1000])
def test_records_come_at_powers_of_two_early_and_at_multiples_later(record_every):
    late = range(record_every, 2001, record_every)
    expected = sorted({1 << power for power in range(11) if 1 << power < record_every} | set(late))
    assert [t for t in range(1, 2001) if loop.is_record(t, record_every)] == expected
    t, found = 0, []
    while True:
        t = int(loop._next_record(jnp.int32(t), jnp.int32(record_every)))
        if t > 2000:
            break
        found.append(t)
    assert found == expected


@pytest.mark.parametrize("record_every", [1, 10, LARGEST // 1000, LARGEST // 512])
def test_the_longest_run_goes_on_to_its_end(record_every):
    """The next record lies ahead, also where its step is none of 32 bits; else the loop would stand still for ever."""
    for t in (LARGEST - 1, LARGEST - LARGEST % record_every):
        following = (t // record_every + 1) * record_every
        expected = min(following, np.iinfo(np.int32).max)
        assert int(loop._next_record(jnp.int32(t), jnp.int32(record_every))) == expected > t


@pytest.mark.parametrize(
    "batches", [gl.full_batch(), pytest.param(gl.minibatch(7), marks=pytest.mark.soak), gl.minibatch(7, hold=5)]
)
def test_the_last_steps_that_32_bits_can_count_are_made(batches):
    session = prepare(
        MC, lambda x, batch: jnp.sum((batch @ x) ** 2), START, Plan(LARGEST, batches), data=np.ones((20, 2))
    )
    session.begin()
    session.go_on([session.chains[0].carry.state], LARGEST - 200)
    session.go()
    assert session.t == session.chains[0].t == LARGEST


def test_a_trace_has_about_a_thousand_records_unless_asked_otherwise():
    result = gl.train(MC, loss, START, steps=20_000)
    assert result.trace.step[0] == 0
    np.testing.assert_array_equal(result.trace.step[1:7], [1, 2, 4, 8, 16, 20])
    np.testing.assert_array_equal(result.trace.step[6:], np.arange(20, 20_001, 20))


def test_acceptance_is_that_of_the_window_since_the_last_record():
    every = train(AMC)
    thinned = train(AMC, record_every=50)
    accepted = every.trace.acceptance[1:]
    steps = thinned.trace.step
    windows = [accepted[a:b].mean() for a, b in pairwise(steps)]
    # Both are quotients of whole numbers up to 50, in float64.
    np.testing.assert_allclose(thinned.trace.acceptance[1:], windows, rtol=1e-14)
    np.testing.assert_array_equal(thinned.trace.loss, every.trace.loss[steps])


def broken(params):
    """Not a number right of 1, infinite left of -1."""
    x = params[0]
    return jnp.where(x > 1, jnp.nan, jnp.where(x < -1, -jnp.inf, jnp.abs(x - 3)))


def test_proposals_whose_loss_is_not_finite_are_rejected_and_counted():
    result = gl.train(gl.metropolis(sigma=2.0), broken, jnp.zeros(1), steps=200, record_every=1)
    assert result.nonfinite > 50
    assert np.isfinite(result.loss)
    assert np.all(np.isfinite(result.trace.loss))
    assert result.trace.nonfinite[-1] == result.nonfinite
    assert np.all(np.diff(result.trace.nonfinite) >= 0)
    rejected = np.sum(result.trace.acceptance[1:] == 0)
    assert result.nonfinite <= rejected
    # Thinned records know of every one, also of those since the last record.
    assert gl.train(gl.metropolis(sigma=2.0), broken, jnp.zeros(1), steps=200, record_every=7).nonfinite == (
        result.nonfinite
    )


def flat(params):
    """A plateau on which sigma falls: the start is the only point at loss 0."""
    return jnp.where(params[0] == 1.0, 0.0, 1.0)


def test_a_chain_whose_moves_no_longer_change_x_is_frozen_and_can_be_stopped():
    """Below half a rounding of x, x + eps is x, U' = U is a tie, and sigma never changes again.

    In float32 that is at sigma = 2^-24 |x|: from sigma_0 = 1 with a factor 1/2 per rejection it takes about 24
    rejections; later ones grow rare, as most moves round to nothing.
    """
    algorithm = gl.amc(sigma=1.0, n_s=1, sigma_decay=0.5)
    with pytest.warns(UserWarning, match="frozen") as told:
        result = gl.train(algorithm, flat, jnp.ones(1), steps=5000, record_every=10, stop_when_frozen=True)
    assert len(told) == 1
    assert result.stopped_by == "frozen"
    assert result.steps < 5000
    assert result.sigma < 2.0**-24
    assert "frozen" in result.advice
    with pytest.warns(UserWarning, match="frozen") as told:
        result = gl.train(algorithm, flat, jnp.ones(1), steps=5000, record_every=10)
    assert len(told) == 1  # said once, though hundreds of records say so
    assert result.stopped_by == "steps"


def test_gradient_descent_is_frozen_where_a_billion_steps_would_not_bring_it_on():
    """U = (x - 1)^2/2 from x = 0: n steps of alpha = 1/4 leave 0.75^n to go, and the next goes a quarter of it."""

    def bowl(params, batch=0.0):
        return jnp.sum((params - 1 - batch) ** 2) / 2

    start, descent = np.zeros(1), {"steps": 500, "record_every": 1, "stop_when_frozen": True}
    with pytest.warns(UserWarning, match="frozen: a billion steps") as told:
        result = gl.train(gl.gradient_descent(0.25), bowl, start, **descent)
    assert len(told) == 1
    assert result.stopped_by == "frozen"
    assert "the gradient has vanished" in result.advice
    assert result.steps == math.ceil(math.log(4e-9) / math.log(0.75)) + 1
    # Adam's steps can become larger again, and on minibatches the next batch may have another gradient.
    assert gl.train(gl.adam(0.1), bowl, start, **descent).stopped_by == "steps"
    halves = gl.train(gl.gradient_descent(0.25), bowl, start, data=np.zeros(2), batches=gl.minibatch(1), **descent)
    assert halves.stopped_by == "steps"


def test_in_float64_the_same_chain_is_not_frozen_so_soon():
    algorithm = gl.amc(sigma=1.0, n_s=1, sigma_decay=0.5)
    result = gl.train(algorithm, flat, np.ones(1), steps=40, record_every=10, stop_when_frozen=True)
    assert result.stopped_by == "steps"
    assert 2.0**-53 < result.sigma < 2.0**-30
