"""How a run is to be made: checked where it is given, stored and read back."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.engine.plan import LARGEST, Plan, chain_numbers, parse_metric


def error(params, batch):
    return 0.0


@pytest.mark.parametrize(
    "batches",
    [gl.full_batch(), gl.minibatch(7), gl.minibatch(7, sampling="iid", hold=3), gl.progressive(5, error, 0.2, 3)],
)
def test_a_plan_comes_back_from_json_as_it_was(batches):
    plan = Plan(
        steps=1234,
        batches=batches,
        chains=(2, 5),
        seed=7,
        precision="float64",
        target_loss=0.5,
        target_metric="accuracy >= 0.9",
        time_budget=3.0,
        stop_when_frozen=True,
        select_every=10,
        select_fraction=0.5,
        checkpoint_every=2.0,
    )
    assert Plan.from_json(json.loads(json.dumps(plan.to_json())), error) == plan


def test_numbers_of_jax_and_numpy_are_stored_as_plain_ones():
    plan = Plan(steps=5, target_loss=jnp.float32(0.5), time_budget=np.float64(3), select_fraction=jnp.array(0.25))
    assert json.loads(json.dumps(plan.to_json()))["target_loss"] == 0.5


def test_a_growing_batch_needs_its_error_function_again():
    table = Plan(steps=5, batches=gl.progressive(5, error)).to_json()
    assert "error" not in table["batches"]
    with pytest.raises(ValueError, match="give their error function again"):
        Plan.from_json(table)


def test_there_are_about_a_thousand_records_whatever_the_number_of_steps():
    assert [Plan(steps=steps).record_every for steps in (1, 999, 1000, 5000, 1_000_000)] == [1, 1, 1, 5, 1000]
    assert Plan(steps=5000, record_every=7).record_every == 7


def test_a_run_that_ends_by_the_clock_has_a_record_at_least_every_thousand_steps():
    assert [Plan(steps=steps, time_budget=1.0).record_every for steps in (999, 5000, LARGEST)] == [1, 5, 1000]
    assert Plan(steps=LARGEST, time_budget=1.0, record_every=5000).record_every == 5000


def test_records_stay_where_they_were_when_the_target_grows():
    table = Plan(steps=5000).to_json()
    assert Plan.from_json(table | {"steps": 50_000}).record_every == 5


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"steps": 0}, f"steps must be a whole number from 1 to {LARGEST}, got 0"),
        ({"steps": 2.5}, "steps must be a whole number"),
        ({"steps": True}, "steps must be a whole number"),
        ({"steps": LARGEST + 1}, "steps must be a whole number"),
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"record_every": 0}, "record_every must be a whole number from 1"),
        ({"precision": "float16"}, 'precision must be "float32" or "float64", got \'float16\''),
        ({"time_budget": 0.0}, "time_budget must be positive, got 0.0"),
        ({"time_budget": float("nan")}, "time_budget must be positive, got nan"),
        ({"checkpoint_every": 0.0}, "checkpoint_every must be positive"),
        ({"target_loss": [0.1, 0.2]}, r"target_loss must be one number, got shape \(2,\)"),
        ({"checkpoint_every": None}, "checkpoint_every must be positive, got None"),
        ({"select_fraction": None}, "select_fraction must be above 0 and at most 0.5, got None"),
        ({"select_fraction": 5}, "select_fraction must be above 0 and at most 0.5, got 5"),
        ({"stop_when_frozen": "no"}, "stop_when_frozen must be True or False, got 'no'"),
        ({"stop_when_frozen": 1}, "stop_when_frozen must be True or False, got 1"),
        ({"target_metric": "accuracy"}, "target_metric must look like"),
        ({"target_metric": 0.9}, 'target_metric must look like "accuracy >= 0.9", got 0.9'),
        ({"batches": 32}, r"batches must be made by gl.full_batch\(\), gl.minibatch\(size\) or .*, got 32"),
        ({"batches": 0}, "batches must be made by gl.full_batch"),
        ({"batches": gl.minibatch}, "batches must be made by gl.full_batch"),
    ],
)
def test_a_wrong_setting_is_refused_with_name_rule_and_value(setting, words):
    with pytest.raises(ValueError, match=words):
        Plan(**{"steps": 10, **setting})


def test_chains_are_a_number_or_a_list():
    assert chain_numbers(3) == (0, 1, 2)
    assert chain_numbers(np.int64(2)) == (0, 1)
    assert chain_numbers([4, 1]) == (4, 1)


@pytest.mark.parametrize("chains", [0, -1, True, 1.5, "2", [], [1, 1], [-1], [0.5], None])
def test_chains_that_are_neither_are_refused(chains):
    with pytest.raises(ValueError, match="chains must be a whole number of at least 1, or a list of different ones"):
        chain_numbers(chains)


def test_a_target_is_a_name_a_sense_and_a_number():
    assert parse_metric("accuracy >= 0.9") == ("accuracy", ">=", 0.9)
    assert parse_metric(" top-5.error<=-1e-3 ") == ("top-5.error", "<=", -1e-3)


@pytest.mark.parametrize(
    "target", ["", "accuracy", "accuracy > 0.9", ">= 0.9", "accuracy >= x", "a b >= 1", "a >= 1 2"]
)
def test_a_target_that_is_not_is_refused(target):
    with pytest.raises(ValueError, match="target_metric must look like"):
        parse_metric(target)


def test_the_number_of_a_chain_has_an_end():
    assert chain_numbers([0, LARGEST]) == (0, LARGEST)
    with pytest.raises(ValueError, match=f"chains must be a whole number from 0 to {LARGEST}, got {LARGEST + 1}"):
        chain_numbers([0, LARGEST + 1])
