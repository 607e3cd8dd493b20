"""Compiled programs: kept while they are used, made anew when what they compute has changed, and forgotten."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.engine import run
from gradless.jaxprs import fingerprint

SCALE = 1.0
TARGET = np.ones(2, np.float32)


def loss(x):
    return SCALE * jnp.sum((x - TARGET) ** 2)


def train():
    """Train by `loss`; return the result, and how many programs were compiled for it."""
    before = run.advance.kept.copy()
    result = gl.train(gl.amc(sigma=0.1), loss, np.zeros(2, np.float32), steps=50)
    return result, len(run.advance.kept.keys() - before.keys())


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
