"""Speculation: several proposals at a time, and the same chain, log and records as with one, bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.engine.ahead.pace import Pace
from gradless.engine.ahead.speculate import MAX_AHEAD
from gradless.models import MLP

X = np.linspace(-1, 1, 24, dtype=np.float32)[:, None]
DATA = (X, np.sin(3 * X))
WIDTHS = np.linspace(-1, 1, 4, dtype=np.float32)
START = {"w": WIDTHS[None], "b": np.zeros(4, np.float32), "v": WIDTHS[::-1, None]}
NORM = gl.amc(sigma=0.1, epsilon=0.1, n_s=3, signal_norm=True)


def loss(params, batch):
    x, y = batch
    return jnp.mean((jnp.tanh(x @ params["w"] + params["b"]) @ params["v"] - y) ** 2)


def often_not_a_number(params, batch):
    value = loss(params, batch)
    return jnp.where(jnp.mod(1e4 * params["b"][0] + 0.5, 1.0) < 0.2, jnp.nan, value)


def train(algorithm, loss=loss, **settings):
    return gl.train(algorithm, loss, START, data=DATA, **{"steps": 2000} | settings)


def assert_same(one, other):
    """Assert that two runs have the same states and the same trace, but for the clock."""
    for left, right in zip(jax.tree.leaves(one.state), jax.tree.leaves(other.state), strict=True):
        np.testing.assert_array_equal(left, right)
    assert set(one.trace) == set(other.trace)
    for name in set(one.trace) - {"seconds"}:
        np.testing.assert_array_equal(one.trace[name], other.trace[name])
    assert one.acceptance == other.acceptance
    assert one.evaluations == other.evaluations


@pytest.mark.parametrize("speculate", [pytest.param(2, marks=pytest.mark.soak), 8])
def test_every_algorithm_and_batching_leaves_the_record_it_leaves_with_one_proposal_at_a_time(
    case, tmp_path, record_of, speculate
):
    if not case.is_replayable:
        pytest.skip("a gradient baseline has no proposals")
    case.train(tmp_path / "run", speculate=speculate)
    expected, found = record_of(case.whole), record_of(tmp_path / "run")
    assert found["settings"]["plan"].pop("speculate") == speculate
    assert expected["settings"]["plan"].pop("speculate") is None
    assert found == expected


@pytest.mark.parametrize("record_every", [1, 7, 1000])
def test_thousands_of_steps_are_the_same_wherever_records_fall(record_every):
    expected = train(NORM, record_every=record_every)
    for speculate in (2, 5, 8, 40):  # 40 are more than one device looks at in a round
        assert_same(train(NORM, record_every=record_every, speculate=speculate), expected)


@pytest.mark.parametrize(("algorithm", "activation"), [(gl.amc(sigma=0.05, n_s=10), "relu"), (NORM, "sine")])
def test_narrow_layers_and_what_they_keep_in_memory_round_alike(algorithm, activation):
    # A hundred samples, and the layers are computed neurons first: faster/narrow_layers.py and kept.py.
    net = MLP((1, 4, 4, 4, 1), activation=activation, skip=True, layer_norm=True)
    x = np.linspace(-1, 1, 100, dtype=np.float32)[:, None]

    def loss(params, batch):
        return jnp.mean((net.apply(params, batch[0]) - batch[1]) ** 2)

    def train(speculate):
        start = net.init(jax.random.key(0), "pytorch")
        return gl.train(algorithm, loss, start, data=(x, np.sin(3 * x)), steps=1000, speculate=speculate)

    assert_same(train(6), train(None))


@pytest.mark.parametrize("algorithm", [gl.metropolis(sigma=0.05), gl.metropolis(sigma=0.05, temperature=1e-3)])
def test_losses_that_are_no_numbers_are_counted_at_their_step(algorithm):
    expected = train(algorithm, often_not_a_number, record_every=3)
    assert expected.nonfinite > 100
    for speculate in (5, 32):
        found = train(algorithm, often_not_a_number, record_every=3, speculate=speculate)
        assert_same(found, expected)
        assert found.nonfinite == expected.nonfinite


def test_two_parameters_in_double_precision():
    def rosenbrock(x):
        return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2

    expected, found = (
        gl.train(
            gl.amc(sigma=1e-2, epsilon=1e-2, n_s=20), rosenbrock, np.full(2, -1.0), steps=5000, speculate=speculate
        )
        for speculate in (None, 8)
    )
    assert_same(found, expected)


@pytest.mark.parametrize("speculate", [0, -1, 2.5, "often", True])
def test_a_wrong_number_is_refused(speculate):
    with pytest.raises(ValueError, match=r'speculate \(or "auto"\) must be a whole number from 1'):
        train(NORM, speculate=speculate)


def test_an_algorithm_without_proposals_is_refused():
    with pytest.raises(ValueError, match="speculate needs an algorithm with proposals, mc or amc, got gd"):
        train(gl.gradient_descent(learning_rate=0.1), speculate=2)


def told(pace, steps, acceptance, per_round, per_proposal, chunks=8):
    """Let a pace see chunks of known cost, and take its wishes."""
    for _ in range(chunks):
        rejected = 1 - acceptance
        rounds = int(steps * acceptance / (1 - rejected**pace.proposals))
        pace.learn(steps, rounds, int(steps * acceptance), rounds * (per_round + per_proposal * pace.ahead))
        pace.ahead = pace.wish
    return pace.ahead


def test_auto_looks_far_ahead_where_a_round_is_dear_and_moves_are_rejected():
    assert told(Pace.of("auto", 2), 10_000, 0.001, per_round=1e-3, per_proposal=1e-5) == MAX_AHEAD
    assert told(Pace.of("auto", 2), 10_000, 0.5, per_round=1e-6, per_proposal=1e-3) == 1
    # Best k for p = 5% on 2 devices where a round costs as much as a proposal: (1 - 0.95^(2k))/(1 + k) is largest at 3.
    between = told(Pace.of("auto", 2), 10_000, 0.05, per_round=1e-3, per_proposal=1e-3)
    gains = {k: (1 - 0.95 ** (2 * k)) / (1 + k) for k in range(1, MAX_AHEAD + 1)}
    assert between == max(gains, key=gains.__getitem__)


def test_auto_makes_the_same_chain():
    assert_same(train(NORM, speculate="auto"), train(NORM))


def test_a_number_is_rounded_up_to_fill_the_devices():
    assert Pace.of(5, 2).proposals == 6
    assert Pace.of(None, 4).proposals == 4
    assert Pace.of(1, 4).proposals == 4
