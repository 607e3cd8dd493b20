"""Settings: wrong values are refused where they are given; numbers are traced, `off` values are known."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.kernels import ALGORITHMS
from gradless.settings import as_json, is_off

POSITIVE, NOT_NEGATIVE = "must be positive", "must be zero or positive"
COUNT = "must be a whole number of at least 1, or inf"
FRACTION = "must be above 0 and at most 1"

WRONG = [
    (gl.amc, {"sigma": -1.0}, f"sigma {POSITIVE}, got -1.0"),
    (gl.amc, {"sigma": 0}, f"sigma {POSITIVE}, got 0"),
    (gl.amc, {"sigma": float("nan")}, f"sigma {POSITIVE}, got nan"),
    (gl.amc, {"sigma": "large"}, f"sigma {POSITIVE}, got 'large'"),
    (gl.amc, {"sigma": True}, f"sigma {POSITIVE}, got True"),
    (gl.amc, {"sigma": np.bool_(True)}, f"sigma {POSITIVE}, got "),
    (gl.amc, {"sigma": [True, True]}, f"sigma {POSITIVE}, got "),
    (gl.amc, {"sigma": np.array(["1"])}, f"sigma {POSITIVE}, got "),
    (gl.amc, {"sigma": np.array([1 + 1j])}, f"sigma {POSITIVE}, got "),
    (gl.amc, {"sigma": float("inf")}, f"sigma {POSITIVE} and finite, got inf"),
    (gl.amc, {"temperature": [1.0, float("inf")]}, f"temperature {NOT_NEGATIVE} and finite, got inf"),
    (gl.adam, {"b1": 1.0}, "b1 must be at least 0 and below 1, got 1.0"),
    (gl.amc, {"sigma": []}, f"sigma {POSITIVE}, got \\[\\]"),
    (gl.amc, {"sigma": None}, f"sigma {POSITIVE}, got None"),
    (gl.amc, {"sigma": len}, f"sigma {POSITIVE}, got "),
    (gl.amc, {"sigma": [0.1, -0.2, 0.3]}, f"sigma {POSITIVE}, got -0.2"),
    (gl.amc, {"sigma": jnp.array([0.1, 0.0])}, f"sigma {POSITIVE}, got 0.0"),
    (gl.amc, {"signal_norm": 1}, 'signal_norm must be True, False or a dict {"path": value}, got 1'),
    (gl.amc, {"signal_norm": {}}, 'signal_norm must be True, False or a dict {"path": value}, got {}'),
    (gl.amc, {"signal_norm": {"w": -1}}, r'signal_norm\["w"\] must be positive, got -1'),
    (gl.amc, {"signal_norm": {"w": "a"}}, r'signal_norm\["w"\] must be positive, got \'a\''),
    (gl.amc, {"epsilon": 1.5}, "epsilon must be between -1 and 1, got 1.5"),
    (gl.amc, {"epsilon": float("nan")}, "epsilon must be between -1 and 1, got nan"),
    (gl.amc, {"n_s": 0}, f"n_s {COUNT}, got 0"),
    (gl.amc, {"n_s": 2.5}, f"n_s {COUNT}, got 2.5"),
    (gl.amc, {"n_s": -float("inf")}, f"n_s {COUNT}, got -inf"),
    (gl.amc, {"temperature": -1e-3}, f"temperature {NOT_NEGATIVE}, got -0.001"),
    (gl.amc, {"sigma_decay": 0.0}, f"sigma_decay {FRACTION}, got 0.0"),
    (gl.amc, {"sigma_decay": 1.01}, f"sigma_decay {FRACTION}, got 1.01"),
    (gl.metropolis, {"sigma": -2}, f"sigma {POSITIVE}, got -2"),
    (gl.metropolis, {"temperature": "warm"}, f"temperature {NOT_NEGATIVE}, got 'warm'"),
    (gl.gradient_descent, {"learning_rate": 0.0}, f"learning_rate {POSITIVE}, got 0.0"),
    (gl.gradient_descent, {"clip": -1.0}, f"clip {POSITIVE}, got -1.0"),
    (gl.adam, {"learning_rate": -1}, f"learning_rate {POSITIVE}, got -1"),
    (gl.adam, {"b1": 2.0}, "b1 must be .*, got 2.0"),
    (gl.adam, {"b2": -0.5}, "b2 must be .*, got -0.5"),
    (gl.anneal, {"start": 0.0, "end": 1.0, "steps": 10}, f"start {POSITIVE}, got 0.0"),
    (gl.anneal, {"start": 1.0, "end": -1.0, "steps": 10}, f"end {POSITIVE}, got -1.0"),
    (gl.anneal, {"start": 1.0, "end": 1.0, "steps": 0}, f"steps {POSITIVE}, got 0"),
]


@pytest.mark.parametrize(("make", "values", "message"), WRONG)
def test_a_wrong_setting_is_refused_with_its_name_the_rule_and_the_value(make, values, message):
    with pytest.raises(ValueError, match=message):
        make(**values)


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (gl.amc, {"n_s": float("inf")}),
        (gl.amc, {"n_s": 1}),
        (gl.amc, {"epsilon": -1}),
        (gl.amc, {"temperature": lambda n: 1.0 / n}),
        (gl.amc, {"temperature": gl.anneal(1.0, 0.1, 100)}),
        (gl.amc, {"sigma_decay": 1.0}),
        (gl.amc, {"sigma": np.array([0.1, 0.2])}),
        (gl.adam, {"clip": None}),
        (gl.adam, {"b1": 0}),
    ],
)
def test_values_at_the_edge_of_a_rule_are_allowed(make, values):
    make(**values)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_settings_cannot_be_changed_afterwards(name):
    algorithm = ALGORITHMS[name]()
    field = dataclasses.fields(algorithm)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(algorithm, field, 1.0)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_setting_has_its_line_of_documentation(name):
    for field in dataclasses.fields(ALGORITHMS[name]):
        assert field.metadata["doc"]


def test_the_defaults_are_those_of_the_paper():
    amc = gl.amc()
    assert amc.sigma_decay == 0.95
    assert amc.temperature == gl.metropolis().temperature == 0
    assert (gl.adam().b1, gl.adam().b2) == (0.9, 0.999)


def test_another_number_is_the_same_program_and_an_off_value_is_not():
    def structure(**values):
        return jax.tree.structure(gl.amc(**values))

    ordinary = structure(sigma=0.1, epsilon=0.1, n_s=10)
    assert structure(sigma=0.2, epsilon=0.3, n_s=20) == ordinary
    assert structure(sigma=np.float32(0.2), epsilon=0.3, n_s=20) == ordinary
    assert structure(sigma=0.1, epsilon=0.0, n_s=10) != ordinary
    assert structure(sigma=0.1, epsilon=0.1, n_s=float("inf")) != ordinary
    assert structure(sigma=0.1, epsilon=0.1, n_s=10, temperature=1.0) != ordinary
    assert structure(sigma=0.1, epsilon=0.1, n_s=10, signal_norm=True) != ordinary


def test_settings_survive_the_way_through_jit():
    algorithm = gl.amc(sigma=0.25, epsilon=0.0, n_s=7, temperature=gl.anneal(1.0, 0.5, 10))
    leaves, structure = jax.tree.flatten(algorithm)
    back = jax.tree.unflatten(structure, leaves)
    assert as_json(back) == as_json(algorithm)
    assert back.epsilon == 0.0
    assert is_off(back.epsilon)
    assert float(jax.jit(lambda a: a.sigma * a.temperature(10))(algorithm)) == 0.125


def test_an_array_is_never_off():
    assert is_off(0.0)
    assert is_off(0)
    assert not is_off(jnp.zeros(()))
    assert not is_off(np.zeros(2))
    assert is_off(float("inf"), float("inf"))


def test_settings_become_plain_values_for_json():
    assert as_json(gl.amc(sigma=np.float32(0.5), n_s=float("inf"), epsilon=np.array([0.5, 0.25]))) == {
        "sigma": 0.5,
        "epsilon": [0.5, 0.25],
        "n_s": "inf",
        "signal_norm": False,
        "temperature": 0.0,
        "sigma_decay": 0.95,
    }
    annealed = as_json(gl.metropolis(sigma=1.0, temperature=gl.anneal(1.0, 0.5, 10)))
    assert annealed["temperature"] == {"name": "anneal", "start": 1.0, "end": 0.5, "steps": 10}


def test_a_switch_of_numpy_is_a_switch():
    assert gl.amc(signal_norm=np.bool_(True)).signal_norm is True
