"""The other layout gives the same numbers up to rounding, for any function, and is used where it pays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.faster import faster
from gradless.faster.rewrite import has_faster_form
from gradless.models import MLP

ROWS = 200


def rows(width: int, dtype: str = "float32") -> jax.Array:
    return jax.random.normal(jax.random.key(width), (ROWS, width), dtype)


def weight(fan_in: int, fan_out: int) -> jax.Array:
    return jax.random.normal(jax.random.key(fan_in + 10 * fan_out), (fan_in, fan_out))


def dots(function, *args) -> int:
    """How many products are left in the program."""
    return str(jax.make_jaxpr(function)(*args)).count("dot_general")


def softmax_head(x):
    return jax.nn.softmax(jnp.tanh(x @ weight(3, 4)) @ weight(4, 5))


def layer_norm(x):
    z = x @ weight(3, 4)
    z = (z - z.mean(-1, keepdims=True)) / jnp.sqrt(z.var(-1, keepdims=True) + 1e-5)
    return jax.nn.relu(z) @ weight(4, 2)


def wide_between(x):
    return jnp.tanh(jnp.tanh(x @ weight(3, 12)) @ weight(12, 4)) @ weight(4, 2)


def jitted_inside(x):
    layer = jax.jit(lambda h: jnp.where(h > 0, h, 0.1 * h) @ weight(4, 4))
    return layer(layer(x @ weight(3, 4)))


def sums_over_samples(x):
    h = jnp.tanh(x @ weight(3, 4))
    return h.sum(0), (h**2).sum(), h.max(1), jnp.argmax(h, -1), jnp.concatenate([h, h], 1), h.T


def pieces(x):
    z = x @ weight(3, 8)
    gate, value = jnp.split(z, 2, axis=-1)
    top, rest = jnp.split(z, [50], axis=0)
    return (
        gate * value,
        z[10:30, 1::3],
        z[::7],
        top,
        jnp.concatenate([gate, z, value], -1),
        jnp.concatenate([rest, top]),
    )


def sequences(x):
    return jnp.tanh(x.reshape(20, 10, 3) @ weight(3, 4)) @ weight(4, 2)


def scanned(x):
    return jax.lax.scan(lambda h, _: (jnp.tanh(h @ weight(3, 3)), h.sum()), x @ weight(3, 3), None, length=4)


FUNCTIONS = [softmax_head, layer_norm, wide_between, jitted_inside, sums_over_samples, pieces, sequences, scanned]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_any_function_keeps_its_meaning(function):
    x = rows(3)
    assert has_faster_form(jax.make_jaxpr(function)(x).jaxpr)
    assert dots(faster(function), x) < dots(function, x)
    expected, found = function(x), jax.jit(faster(function))(x)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        # Sums of up to ROWS x 12 products of order 1, added up in another order in float32.
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("dtype", "fan_in", "num_rows", "is_used"),
    [
        ("float32", 8, ROWS, True),
        ("float32", 9, ROWS, False),  # a matrix product is faster
        ("float64", 4, ROWS, True),
        ("float64", 5, ROWS, False),
        ("float32", 4, 10, False),  # too few samples to gain anything
        ("bfloat16", 4, ROWS, False),  # a matrix product sums in a wider type
    ],
)
def test_it_is_used_where_it_pays(dtype, fan_in, num_rows, is_used):
    with jax.enable_x64(True):
        x = rows(fan_in, dtype)[:num_rows]
        w = weight(fan_in, 3).astype(dtype)
        assert (dots(faster(lambda x: x @ w), x) == 0) == is_used


def test_a_program_without_narrow_layers_is_left_alone():
    def wide(x):
        return x @ weight(20, 30)

    x = rows(20)
    assert str(jax.make_jaxpr(faster(wide))(x)) == str(jax.make_jaxpr(wide)(x))


@pytest.mark.parametrize(
    "algorithm", [gl.amc(sigma=1e-2, signal_norm=True), gl.gradient_descent(0.1)], ids=lambda one: one.name
)
def test_training_uses_it_and_finds_the_same_first_moves(monkeypatch, algorithm):
    net = MLP((1, 4, 4, 1))
    theta = jnp.linspace(0, 1, 500)[:, None]

    def loss(params, batch):
        return jnp.mean((net.apply(params, batch) - jnp.sin(batch)) ** 2)

    def first_moves(loss):
        start = net.init(jax.random.key(0), "pytorch")
        return gl.train(algorithm, loss, start, data=theta, steps=50, record_every=1, precision="float64").trace

    fast = first_moves(loss)
    monkeypatch.setattr("gradless.engine.objective.faster", lambda function: function)
    plain = first_moves(lambda params, batch: loss(params, batch))  # a function of its own: compiled anew
    # Rounding differs in the 16th digit and 50 steps do not let it grow; a wrong sum would show at once.
    np.testing.assert_allclose(fast.loss, plain.loss, rtol=1e-9)
    assert not np.array_equal(fast.loss, plain.loss)


def test_a_bias_of_one_row_keeps_the_layout():
    def layer(x):
        return jnp.tanh(x @ weight(3, 4) + jnp.arange(4.0)[None]).sum(-1)

    program = jax.make_jaxpr(faster(layer))(rows(3))
    sums = [eqn.outvars[0].aval.shape for eqn in program.jaxpr.eqns if eqn.primitive.name == "tanh"]
    assert sums == [(4, ROWS)]
    # Four numbers of at most 1, added up in float32.
    np.testing.assert_allclose(faster(layer)(rows(3)), layer(rows(3)), atol=1e-5)


def test_a_sum_over_no_neurons_is_zero():
    found = faster(lambda x, weight: jnp.sum(x @ weight, axis=-1))(jnp.ones((100, 3)), jnp.ones((3, 0)))
    np.testing.assert_array_equal(found, np.zeros(100))
