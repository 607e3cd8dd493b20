"""Many chains in one call: each makes the moves it makes alone, each with its own settings."""

import math
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.engine.batches import Progressive
from gradless.engine.chains import num_workers
from gradless.engine.plan import Plan
from gradless.engine.train import prepare

AMC = gl.amc(sigma=0.1, epsilon=0.1, n_s=3)
MATRIX = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32)


def loss(params):
    """Products and sums, whose last bits a batched program would change."""
    return jnp.mean(jnp.tanh(MATRIX @ params["w"] + params["b"]) ** 2)


def draw(key):
    return {"w": jax.random.normal(key, (5,)), "b": jnp.ones(())}


def train(algorithm=AMC, params=draw, **settings):
    return gl.train(algorithm, loss, params, **({"steps": 100, "record_every": 10} | settings))


def agree(several, place, alone):
    """Assert that a chain among several has done what it does alone, bit for bit."""
    for one, other in zip(jax.tree.leaves(several.state), jax.tree.leaves(alone.state), strict=True):
        np.testing.assert_array_equal(one[place], other)
    for name in set(alone.trace) - {"seconds", "step"}:
        np.testing.assert_array_equal(several.trace[name][place], alone.trace[name])
    np.testing.assert_array_equal(several.params["w"][place], alone.params["w"])
    assert several.loss[place] == alone.loss
    assert several.sigma[place] == alone.sigma
    assert several.acceptance[place] == alone.acceptance


@pytest.mark.parametrize("number", [0, 2])
def test_a_chain_among_others_makes_the_moves_it_makes_alone(number):
    agree(train(chains=3), number, train(chains=[number]))


def test_chains_may_be_chosen_by_number():
    several = train(chains=[4, 2])
    agree(several, 0, train(chains=[4]))
    agree(several, 1, train(chains=[2]))


def test_one_chain_is_chain_number_0():
    np.testing.assert_array_equal(train().params["w"], train(chains=[0]).params["w"])


def test_chains_differ_from_one_another_in_start_and_moves():
    several = train(chains=3, params=draw(jax.random.key(9)))  # one start for all
    assert len(set(several.trace.loss[:, 0])) == 1
    assert len(set(several.loss.tolist())) == 3
    several = train(chains=3)
    assert len(set(several.trace.loss[:, 0])) == 3


def test_another_seed_is_another_run_and_the_same_seed_the_same():
    one, again, other = (train(seed=seed).params["w"] for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.any(np.asarray(one) == np.asarray(other))


SETTINGS = {
    "sigma": [0.05, 0.1, 0.2],
    "epsilon": np.array([-0.1, 0.1, 0.2]),
    "n_s": (2, 5, 50),
    "sigma_decay": jnp.array([0.5, 0.9, 1.0]),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_an_array_of_settings_is_one_run_for_each(name):
    base = {"sigma": 0.1, "epsilon": 0.1, "n_s": 3}
    several = train(gl.amc(**(base | {name: SETTINGS[name]})), chains=3)
    for place in range(3):
        value = float(np.asarray(SETTINGS[name])[place])
        agree(several, place, train(gl.amc(**(base | {name: value})), chains=[place]))
    assert len(set(several.loss.tolist())) == 3


# A part of the algorithm that is off for one chain and on for another.
@pytest.mark.parametrize(
    "values",
    [{"epsilon": [0.0, 0.1]}, {"temperature": [0.0, 1e-3]}, {"n_s": [math.inf, 3]}],
    ids=["epsilon", "temperature", "n_s"],
)
def test_an_array_of_settings_may_hold_the_value_that_turns_a_part_off(values):
    several = train(gl.amc(**({"sigma": 0.1, "epsilon": 0.1, "n_s": 3} | values)), chains=2)
    (name, both), *_ = values.items()
    for place in range(2):
        alone = train(gl.amc(**({"sigma": 0.1, "epsilon": 0.1, "n_s": 3} | {name: both[place]})), chains=[place])
        np.testing.assert_array_equal(several.params["w"][place], alone.params["w"])
        np.testing.assert_array_equal(several.trace.loss[place], alone.trace.loss)


def test_results_have_the_chain_axis_first():
    one, several = train(), train(chains=3)
    assert one.params["w"].shape == (5,)
    assert one.params["b"].shape == ()
    assert isinstance(one.loss, float)
    assert one.trace.loss.shape == one.trace.step.shape
    assert several.params["w"].shape == (3, 5)
    assert several.params["b"].shape == (3,)
    assert several.loss.shape == several.sigma.shape == several.acceptance.shape == (3,)
    records = len(several.trace.step)
    assert several.trace.step.shape == several.trace.seconds.shape == (records,)
    for name in ("loss", "acceptance", "sigma", "epoch", "evaluations", "samples", "nonfinite"):
        assert several.trace[name].shape == (3, records)
    assert several.evaluations == 3 * one.evaluations == 3 * 101
    np.testing.assert_array_equal(several.trace.loss[:, -1], several.loss.astype(np.float32))


def test_a_chain_that_has_reached_its_target_ends_and_the_others_go_on():
    alone = train(chains=3, record_every=1)
    target = np.sort(alone.trace.loss[:, -1])[1]  # two of three get there
    result = train(chains=3, record_every=1, target_loss=float(target))
    assert result.stopped_by == "steps"
    for place in range(3):
        first = np.argmax(alone.trace.loss[place] <= target)
        if alone.trace.loss[place, -1] <= target:
            assert result.loss[place] == np.float32(alone.trace.loss[place, first])
            assert np.all(np.isnan(result.trace.loss[place, first + 1 :]))
        else:
            assert result.loss[place] == np.float32(alone.trace.loss[place, -1])


@pytest.mark.parametrize("until", [[1, 2, 3, 60], [59, 60], [13, 17, 60], [60]])
def test_a_chain_may_be_advanced_in_pieces_of_any_length(until):
    session = prepare(AMC, loss, draw(jax.random.key(0)), Plan(steps=60, record_every=7))
    session.begin()
    (chain,) = session.chains
    flags = np.concatenate([chain.advance(t) for t in until])
    whole = train(params=draw(jax.random.key(0)), steps=60, record_every=7)
    np.testing.assert_array_equal(chain.carry.state.x, whole.state.x)
    assert flags.shape == (60,)
    assert flags.mean() == whole.acceptance
    assert [row["step"] for row in chain.rows if row["step"] > 0] == whole.trace.step[1:].tolist()


def test_chains_run_one_per_core():
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert num_workers(1) == 1
    assert num_workers(10_000) == cores


@pytest.mark.parametrize("stage", range(6))
def test_a_growing_batch_is_capped_at_the_whole_set(stage):
    assert Progressive(500, loss).size(stage, 60_000) == [500, 1000, 2000, 4000, 8000, 16_000][stage]
    assert Progressive(500, loss, factor=3).size(stage, 5000) == [500, 1500, 4500, 5000, 5000, 5000][stage]


@pytest.mark.parametrize(
    ("values", "chains", "message"),
    [
        ({"sigma": [0.1, 0.2]}, 3, r"sigma must be one number or 3, one per chain, got shape \(2,\)"),
        ({"epsilon": np.zeros((3, 1))}, 3, r"epsilon must be one number or 3, one per chain, got shape \(3, 1\)"),
        ({"n_s": [3, 4]}, 1, r"n_s must be one number, got shape \(2,\): give chains=2 for one each"),
        ({"temperature": gl.anneal([1.0, 2.0, 3.0], 0.1, 10)}, 2, r"start must be one number or 2, one per chain"),
        ({"temperature": gl.anneal(1.0, 0.1, [10, 20])}, 3, r"steps must be one number or 3, one per chain"),
    ],
)
def test_an_array_of_settings_of_the_wrong_length_is_refused(values, chains, message):
    with pytest.raises(ValueError, match=message):
        train(gl.amc(**values), chains=chains)


@pytest.mark.parametrize("name", ["start", "end", "steps"])
def test_a_list_of_numbers_of_a_schedule_is_one_per_chain(name):
    numbers = {"start": 1.0, "end": 0.5, "steps": 40}
    sweep = {name: [numbers[name], numbers[name] / 10]}
    lists = train(gl.amc(sigma=0.1, temperature=gl.anneal(**numbers | sweep)), chains=2)
    arrays = train(gl.amc(sigma=0.1, temperature=gl.anneal(**numbers | {name: np.array(sweep[name])})), chains=2)
    np.testing.assert_array_equal(lists.state.x, arrays.state.x)


@pytest.mark.parametrize("chains", [0, -1, True, 2.0, "3", [], [1, 1], [-1], [0.5], [True], None])
def test_a_wrong_choice_of_chains_is_refused(chains):
    with pytest.raises(ValueError, match="chains must be a whole number of at least 1, or a list of different ones"):
        train(chains=chains)


@pytest.mark.parametrize("algorithm", [AMC, gl.metropolis(sigma=0.1)])
def test_a_session_goes_on_with_the_states_of_another(algorithm):
    def begun(steps):
        return prepare(algorithm, loss, draw, Plan(steps=steps, chains=(0, 1), record_every=10))

    whole, first, second = begun(60), begun(25), begun(60)
    whole.begin()
    whole.go()
    first.begin()
    first.go()
    second.go_on([jax.tree.map(np.asarray, chain.carry.state) for chain in first.chains], first.t)
    second.go()
    for one, other in zip(jax.tree.leaves(whole.result().state), jax.tree.leaves(second.result().state), strict=True):
        np.testing.assert_array_equal(one, other)
    assert second.rows[0]["step"] == 30
    assert [row["loss"] for row in second.rows] == [row["loss"] for row in whole.rows if row["step"] > 25]


def test_a_session_that_goes_on_knows_its_loss_on_its_own_data():
    def squares(params, batch):
        return jnp.mean((batch - params) ** 2)

    def begun(data, steps):
        return prepare(gl.metropolis(sigma=0.1), squares, np.float32([0.5]), Plan(steps=steps), data=data)

    first, second = begun(np.zeros((4, 1), np.float32), 5), begun(np.ones((4, 1), np.float32), 6)
    first.begin()
    first.go()
    state = first.chains[0].carry.state
    second.go_on([state], first.t)
    np.testing.assert_allclose(second.chains[0].carry.state.loss, (1 - state.x[0]) ** 2, rtol=1e-6)  # float32
