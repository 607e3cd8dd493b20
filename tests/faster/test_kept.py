"""What is used again is kept in memory: deep nets cost as much per layer as shallow ones, and say the same."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradless.faster import faster
from gradless.faster.kept import kept
from gradless.faster.laid import Laid
from gradless.models.mlp import normalise

WIDTH, SAMPLES = 4, 100
Layer = Callable[[jax.Array, jax.Array], jax.Array]
LAYERS: dict[str, Layer] = {
    "tanh": lambda h, w: jnp.tanh(h @ w),
    "relu": lambda h, w: jax.nn.relu(h @ w),
    "sine": lambda h, w: jnp.sin(h @ w),
    "silu": lambda h, w: jax.nn.silu(h @ w),  # a program of its own inside the loss, which uses its input twice
    "skip": lambda h, w: h + jnp.tanh(h @ w),
    "scaled skip": lambda h, w: 0.9 * h + 0.5 * jnp.tanh(h @ w),
    "norm": lambda h, w: jnp.tanh(normalise(h @ w, -1)),
    "skip and norm": lambda h, w: h + jax.nn.relu(normalise(h @ w, -1)),
    "norm before": lambda h, w: h + jnp.tanh(normalise(h, -1) @ w),
}


def program(name: str, depth: int, with_gradient: bool) -> tuple[Callable[[jax.Array], Any], jax.Array]:
    """Return the loss of a net of so many layers, or its gradient too, and weights."""
    keys = jax.random.split(jax.random.key(1), 2)
    inputs = jax.random.normal(keys[0], (SAMPLES, WIDTH))
    weights = jax.random.normal(keys[1], (depth, WIDTH, WIDTH)) / WIDTH**0.5

    def loss(weights: jax.Array) -> jax.Array:
        h = inputs
        for layer in range(depth):
            h = LAYERS[name](h, weights[layer])
        return jnp.mean(h**2)

    return jax.value_and_grad(loss) if with_gradient else loss, weights


def operations(function: Callable[..., Any], *args: Any) -> float:
    """Return how many operations the compiled program of a function has, those that it does again included."""
    cost = jax.jit(function).lower(*args).compile().cost_analysis()
    return float(cost["flops"] + cost.get("transcendentals", 0))


@pytest.mark.parametrize(
    ("name", "with_gradient"),
    [*((name, False) for name in LAYERS), ("silu", True), ("scaled skip", True), ("norm before", True)],
)
def test_says_the_same(name: str, with_gradient: bool) -> None:
    with jax.enable_x64(True):
        function, weights = program(name, 4, with_gradient)
        for plain, fast in zip(*(jax.tree.leaves(f(weights)) for f in (function, faster(function))), strict=True):
            np.testing.assert_allclose(fast, plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "with_gradient"),
    [
        *(pytest.param(*one, marks=pytest.mark.soak) for one in (("skip", False), ("scaled skip", True))),
        *(("scaled skip", False), ("skip and norm", False), ("norm before", True)),
    ],
)
def test_twice_the_layers_are_about_twice_the_operations(name: str, with_gradient: bool) -> None:
    few, many = (operations(faster(f), w) for f, w in (program(name, depth, with_gradient) for depth in (12, 24)))
    assert many < 2.4 * few


def test_nets_side_by_side() -> None:
    def of_three(depth: int) -> float:
        function, weights = program("skip", depth, False)
        return operations(jax.vmap(faster(function)), jnp.stack([weights, 2 * weights, 3 * weights]))

    assert of_three(24) < 2.4 * of_three(12)


@pytest.mark.parametrize(("name", "times"), [("tanh", 0), ("relu", 5), ("sine", 5), ("skip", 5)])
def test_what_is_kept(name: str, times: int) -> None:
    # The compiler never computes tanh twice, and a division more per number would be felt; a sine it does.
    function, weights = program(name, 6, False)
    assert str(jax.make_jaxpr(faster(function))(weights)).count("population_count") == times


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_number_is_kept_as_it_is(dtype: str) -> None:
    with jax.enable_x64(True):
        least, largest = jnp.finfo(dtype).tiny, jnp.finfo(dtype).max  # below the least, XLA's arithmetic has only zeros
        numbers = np.array([0.0, -0.0, 1.5, -least, largest, np.inf, -np.inf, np.nan], dtype)
        laid = Laid(jnp.asarray(numbers), is_first=True, work=10)
        out = kept(laid, 2, jnp.ones(1))
        assert out.array is not laid.array
        assert out.work == 0
        np.testing.assert_array_equal(out.array, numbers)
        np.testing.assert_array_equal(np.signbit(out.array), np.signbit(numbers))
