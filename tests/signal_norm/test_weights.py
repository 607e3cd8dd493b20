"""What is a weight, and what is a neuron's output or a constant: lambda by hand where the two are easily confused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl

RTOL = 1e-5  # float32 sums of at most 1e4 squares in blocks, see test_products.py
RNG = np.random.default_rng(3)
X = RNG.normal(size=(30, 6)).astype(np.float32)
NET = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in (("v", (6, 5)), ("b", (5,)), ("w", (5, 2)))}


def expected(inputs) -> float:
    return float(np.mean(np.sum(np.asarray(inputs, np.float64) ** 2, axis=-1)) ** -0.5)


def hidden(p, x):
    return jnp.tanh(x @ p["v"] + p["b"])


def net(p, x):
    return hidden(p, x) @ p["w"]


def check(lam, **inputs):
    """Compare with the sums by hand; all leaves not named have lambda 1."""
    for name, found in lam.items():
        wanted = expected(inputs[name]) if name in inputs else 1.0
        np.testing.assert_allclose(np.ravel(found), wanted, rtol=RTOL, err_msg=name)


def test_a_net_on_inputs_that_the_loss_closes_over_has_the_lambda_of_a_net_on_data():
    check(gl.signal_norm(lambda p: jnp.mean(net(p, X) ** 2), NET), v=X, w=hidden(NET, X))


def test_a_net_on_a_grid_beside_data_has_the_lambda_of_a_net_on_data():
    y = np.ones((30, 2), np.float32)
    check(gl.signal_norm(lambda p, y: jnp.mean((net(p, X) - y) ** 2), NET, y), v=X, w=hidden(NET, X))


def test_a_grid_of_one_coordinate_times_a_row_of_weights_is_no_weight():
    grid = X[:, :1]
    params = {"v": NET["v"][0], "b": NET["b"], "w": NET["w"]}

    def units(p):
        return jnp.tanh(grid * p["v"] + p["b"])

    check(gl.signal_norm(lambda p: jnp.mean((units(p) @ p["w"]) ** 2), params), w=units(params))


def test_a_bias_beside_a_weight_whose_lambda_is_given_by_hand_has_lambda_1():
    lam = gl.signal_norm(lambda p: jnp.mean(net(p, X) ** 2), NET, overrides={"v": 0.5})
    assert np.ravel(lam["v"]) == 0.5
    assert np.ravel(lam["b"]) == 1


@pytest.mark.parametrize(
    "binary",
    [
        lambda v: jnp.where(v > 0, 1.0, -1.0),
        lambda v: (v > 0) * 2.0 - 1,
        lambda v: ((v > 0) & (v < 1)).astype(jnp.float32),
        lambda v: jnp.zeros((6, 5)).at[jnp.arange(6)].add(v),
    ],
    ids=["where", "product", "logic", "added to zeros"],
)
def test_weights_made_by_comparison_or_addition_are_weights(binary):
    loss = lambda p, x: jnp.mean(net({**p, "v": binary(p["v"])}, x) ** 2)  # noqa: E731
    check(gl.signal_norm(loss, NET, X), v=X, w=hidden({**NET, "v": binary(NET["v"])}, X))


def cell(p, x, h):
    return jnp.tanh(x @ p["v"] + h @ p["r"] + p["b"])


@pytest.mark.parametrize("is_scanned", [False, True])
def test_a_first_state_that_is_learnt_is_no_weight(is_scanned):
    p = {"v": NET["v"], "b": NET["b"], "r": np.eye(5, dtype=np.float32), "h": NET["b"][::-1].copy()}
    xs = np.stack([X, -X, 2 * X])

    def loss(p, xs):
        h = jnp.broadcast_to(p["h"], (30, 5))
        if is_scanned:
            return jnp.mean(jax.lax.scan(lambda h, x: (cell(p, x, h), None), h, xs)[0] ** 2)
        for x in xs:
            h = cell(p, x, h)
        return jnp.mean(h**2)

    states = [np.broadcast_to(p["h"], (30, 5))]
    for x in xs[:-1]:
        states.append(np.asarray(cell(p, x, states[-1])))
    both = np.concatenate([xs, np.stack(states)], axis=-1)
    check(gl.signal_norm(loss, p, xs), v=both, r=both)


@pytest.mark.parametrize("leaf", [np.array([1, 0, 1, 1, 0, 1], np.int32), jax.random.key(3)], ids=["mask", "key"])
def test_a_leaf_that_is_not_trained_may_touch_the_data(leaf):
    def masked(p, x):
        mask = p["leaf"] if leaf.dtype == np.int32 else jax.random.bernoulli(p["leaf"], 0.7, x.shape)
        return x * mask

    params = {**NET, "leaf": leaf}
    result = gl.train(
        gl.amc(signal_norm=True), lambda p, x: jnp.mean(net(p, masked(p, x)) ** 2), params, data=X, steps=3
    )
    assert result.steps == 3
    seen = masked(params, X)
    lam = gl.signal_norm(lambda p, x: jnp.mean(net(p, masked(p, x)) ** 2), params, X)
    check(lam, v=seen, w=hidden(NET, seen))
