"""What a user gives to train is refused in the user's own terms."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradless.engine.checks import check_data, check_loss
from gradless.engine.flat import Flattening


def two(params, batch):
    return params


def numpy_inside(params):
    return jnp.float32(np.sin(params).sum())


def branches(params):
    return params[0] if params[0] > 0 else -params[0]


def plain_number(params):
    return params[0] * float(params[1])


def indexes(params):
    return params[0] * [1.0, 2.0][params[1].astype(int)]


class Unreadable:
    """A callable without a signature."""

    __signature__ = 3

    def __call__(self, params):
        return jnp.sum(params)


X = jnp.ones(2)
WRONG = [
    (3.0, False, "loss must be a function, got 3.0"),
    (two, False, r"loss must take the arguments of loss\(params\), since no data was given; this one is \(params, ba"),
    (jnp.sin, True, r"loss must take the arguments of loss\(params, batch\), since data was given"),
    (lambda: 1.0, False, r"loss must take the arguments of loss\(params\)"),
    (lambda p: p, False, r"loss must return one number, got an array of shape \(2,\): take a mean or a sum"),
    (lambda p: p[:1], False, r"loss must return one number, got an array of shape \(1,\)"),
    (lambda p: (p[0], p[1]), False, "loss must return one number, got tuple"),
    (lambda p: None, False, "loss must return one number, got NoneType"),
    (lambda p: jnp.argmax(p), False, "loss must return a floating-point number, got int32"),
    (lambda p: p[0] > 0, False, "loss must return a floating-point number, got bool"),
    (numpy_inside, False, "loss must be written with jax.numpy so that it can be compiled"),
    (branches, False, "loss must be written with jax.numpy"),
    (plain_number, False, "loss must be written with jax.numpy"),
    (indexes, False, "loss must be written with jax.numpy"),
]


@pytest.mark.parametrize(("wrong", "has_data", "message"), WRONG)
def test_a_loss_that_cannot_be_trained_is_refused_in_the_user_s_terms(wrong, has_data, message):
    with pytest.raises(ValueError, match=message):
        check_loss(wrong, Flattening.of(X), X if has_data else None, has_data)


@pytest.mark.parametrize(
    ("right", "has_data"),
    [
        (lambda p: jnp.sum(p), False),
        (lambda p, batch: jnp.sum(p * batch), True),
        (lambda p, batch=None: jnp.sum(p), False),
        (lambda *args: jnp.sum(args[0]), True),
        (functools.partial(lambda scale, p: scale * jnp.sum(p), 2.0), False),
        (jax.jit(lambda p: jnp.sum(p)), False),
        (lambda p: 1.0, False),
        (Unreadable(), False),
    ],
)
def test_any_function_that_gives_a_number_is_a_loss(right, has_data):
    check_loss(right, Flattening.of(X), X if has_data else None, has_data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((np.ones((3, 2)), np.ones(4)), r"data must hold arrays of one common length, got \[3, 4\]"),
        ({"x": np.ones(3), "y": 1.0}, "data must hold arrays with a leading axis over the samples, got a number"),
        (np.ones((0, 2)), "data must hold at least one sample, got 0"),
    ],
)
def test_data_without_a_common_axis_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        check_data(data)


@pytest.mark.parametrize("data", [None, np.ones(3), {"x": np.ones((3, 2)), "y": [np.ones(3), np.arange(3)]}])
def test_any_tree_of_arrays_of_one_length_is_data(data):
    check_data(data)
