"""Compiled programs: kept while they are used, made anew when what they compute has changed, and forgotten."""

import gc
import weakref
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.engine import loop
from gradless.jaxprs import fingerprint

SCALE = 1.0
TARGET = np.ones(2, np.float32)


def loss(x):
    return SCALE * jnp.sum((x - TARGET) ** 2)


def train():
    """Train by `loss`; return the result, and how many programs were compiled for it."""
    before = loop.advance.kept.copy()
    result = gl.train(gl.amc(sigma=0.1), loss, np.zeros(2, np.float32), steps=50)
    return result, len(loop.advance.kept.keys() - before.keys())


def test_the_same_loss_is_compiled_once_and_with_other_numbers_again(monkeypatch):
    """It is the loss of now that is trained: a number or an array that it has from outside may have changed."""
    train()
    assert train()[1] == 0
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    result, new = train()
    assert new == 1
    assert result.loss == loss(result.params)
    TARGET[:] = -2
    result, new = train()
    TARGET[:] = 1
    assert new == 1
    np.testing.assert_allclose(result.trace.loss[0], 3 * 2 * 2**2)


def test_metrics_are_those_of_now(monkeypatch):
    def metrics(x):
        return {"scaled": SCALE * jnp.sum(x)}

    def square(x):
        return jnp.sum(x**2)

    for scale in (1.0, 5.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        result = gl.train(gl.metropolis(), square, np.ones(2, np.float32), steps=1, metrics=metrics)
        assert result.trace.scaled[0] == 2 * scale


def test_a_temperature_is_that_of_now(monkeypatch):
    hot = gl.amc(sigma=0.1, n_s=float("inf"), temperature=lambda n: SCALE + 0.0 * n)

    def square(x):
        return jnp.sum(x**2)

    for scale, is_all in ((0.0, False), (1e9, True)):
        monkeypatch.setitem(globals(), "SCALE", scale)
        result = gl.train(hot, square, np.ones(2, np.float32), steps=50)
        assert (result.acceptance == 1) == is_all


def test_a_loss_is_forgotten_after_some_others(monkeypatch):
    monkeypatch.setattr("gradless.engine.compiling.MAX_PROGRAMS", 2)

    def train_another():
        held = jnp.arange(3.0)

        def own(x):
            return jnp.sum((x - held) ** 2)

        gl.train(gl.amc(), own, np.zeros(3, np.float32), steps=2)
        return weakref.ref(own)

    losses = [train_another() for _ in range(4)]
    gc.collect()
    assert [one() is None for one in losses] == [True, True, False, False]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (lambda x: jax.nn.relu(x) + 1, lambda x: jax.nn.relu(x) + 1, True),
        (lambda x: x + 1, lambda x: x + 2, False),
        (lambda x: x + np.ones(3), lambda x: x + np.ones(3), True),
        (lambda x: x + np.ones(3), lambda x: x + np.arange(3.0), False),
        (lambda x: x + jnp.ones(3, jnp.bfloat16), lambda x: x + jnp.zeros(3, jnp.bfloat16), False),
        (lambda x: x + jnp.sum(np.ones((2, 0))), lambda x: x + jnp.sum(np.ones((2, 0))), True),
        (jax.jit(lambda x: x * np.ones(3)), jax.jit(lambda x: x * np.arange(3.0)), False),
        (
            lambda x: jax.lax.scan(lambda c, _: (c * np.ones(3), None), x, None, 2)[0],
            lambda x: jax.lax.scan(lambda c, _: (c * np.arange(3.0), None), x, None, 2)[0],
            False,
        ),
        (
            lambda x: x + jax.random.normal(jax.random.key(0), (3,)),
            lambda x: x + jax.random.normal(jax.random.key(1), (3,)),
            False,
        ),
    ],
)
def test_a_fingerprint_is_of_the_program_and_its_numbers(one, other, is_same):
    prints = [fingerprint(jax.make_jaxpr(function)(np.zeros(3, np.float32))) for function in (one, other)]
    assert (prints[0] == prints[1]) is is_same


def called_back(function):
    def loss(x):
        return jax.pure_callback(function, jax.ShapeDtypeStruct((), jnp.float32), x)

    return loss


def squared_distance(place):
    def simulate(x):
        return np.float32(np.sum((np.asarray(x) - place) ** 2))

    return simulate


SIMULATE = squared_distance(1.0)


def simulated(x):
    return jax.pure_callback(lambda x: SIMULATE(x), jax.ShapeDtypeStruct((), jnp.float32), x)


def simulated_directly(x):
    return jax.pure_callback(SIMULATE, jax.ShapeDtypeStruct((), jnp.float32), x)


@pytest.mark.parametrize("loss", [simulated, simulated_directly])
def test_another_function_behind_a_callback_is_called_as_a_notebook_s_cell_run_again_expects(loss, monkeypatch):
    def train():
        return gl.train(gl.metropolis(sigma=0.1), loss, np.zeros(2, np.float32), steps=20)

    assert train().trace.loss[0] == 2
    monkeypatch.setitem(globals(), "SIMULATE", squared_distance(10.0))
    assert train().trace.loss[0] == 200


def test_programs_that_call_back_are_told_apart_by_what_is_called():
    def of(function):
        return fingerprint(jax.make_jaxpr(called_back(function))(jnp.zeros(2)))

    near, far = squared_distance(1.0), squared_distance(10.0)
    assert of(near) == of(near) == of(squared_distance(1.0))  # a function written anew at each tracing
    assert len({of(near), of(far), of(partial(np.sum, axis=0)), of(partial(np.sum, axis=1)), of(np.sum)}) == 5
    assert of(np.zeros(2).dot) != of(np.ones(2).dot)

    def counts_down(x):
        return counts_down(x - 1) if np.sum(x) > 0 else np.float32(0)

    def even(x):
        return odd(x - 1) if np.sum(x) > 0 else np.float32(0)

    def odd(x):
        return even(x - 1) if np.sum(x) > 0 else np.float32(1)

    assert of(counts_down) == of(counts_down)
    assert of(even) == of(even) != of(odd)
