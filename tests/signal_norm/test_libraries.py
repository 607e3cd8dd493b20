"""lambda of models written in flax (linen and nnx) and equinox, against sums by hand over recorded layer inputs."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gradless.signal_norm import signal_norm

RTOL = 2e-5  # float32: activations computed twice in different order of fusion differ by a few 1e-7, sums by less
RNG = np.random.default_rng(2)
START = np.random.default_rng(7).bit_generator.state


@pytest.fixture(autouse=True)
def _same_numbers_whatever_ran_before():
    RNG.bit_generator.state = START


def normal(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def sum_of_squares(inputs, axes=-1) -> float:
    return float(np.mean(np.sum(np.asarray(inputs, np.float64) ** 2, axis=axes)))


class Block(nn.Module):
    """A transformer block: attention and a two-layer net, each after layer norm and added to the stream."""

    @nn.compact
    def __call__(self, x):
        x = x + nn.MultiHeadDotProductAttention(num_heads=2, name="attention")(nn.LayerNorm(name="norm1")(x))
        h = nn.gelu(nn.Dense(16, name="up")(nn.LayerNorm(name="norm2")(x)))
        return x + nn.Dense(x.shape[-1], name="down")(h)


def test_flax_transformer_block():
    x, model = normal(3, 5, 8), Block()
    params = model.init(jax.random.key(0), x)["params"]
    lam = signal_norm(lambda p, x: jnp.sum(model.apply({"params": p}, x) ** 2), params, x)
    inputs = {}

    def record(next_call, args, kwargs, context):
        inputs["/".join(context.module.path)] = args[0]
        return next_call(*args, **kwargs)

    with nn.intercept_methods(record):
        model.apply({"params": params}, x)
    for name in ("query", "key", "value"):
        wanted = sum_of_squares(inputs[f"attention/{name}"])
        np.testing.assert_allclose(lam["attention"][name]["kernel"].item() ** -2, wanted, rtol=RTOL)
    wanted = sum_of_squares(inputs["attention/out"], (-2, -1))
    np.testing.assert_allclose(lam["attention"]["out"]["kernel"].item() ** -2, wanted, rtol=RTOL)
    for name in ("up", "down"):
        np.testing.assert_allclose(lam[name]["kernel"].item() ** -2, sum_of_squares(inputs[name]), rtol=RTOL)
    rest = [lam["norm1"], lam["norm2"], lam["up"]["bias"], lam["down"]["bias"], lam["attention"]["out"]["bias"]]
    assert all(np.all(leaf == 1) for leaf in jax.tree.leaves(rest))


def test_flax_gru():
    # Cho et al.: r = s(W_ir x + W_hr h), z alike, n = tanh(W_in x + r * (W_hn h)): n's two products stay apart
    x, model = normal(3, 6, 2), nn.RNN(nn.GRUCell(4), return_carry=False)
    params = model.init(jax.random.key(0), x)["params"]
    states = model.apply({"params": params}, x)
    before = np.concatenate([np.zeros((3, 1, 4)), states[:, :-1]], axis=1)
    lam = signal_norm(lambda p, x: jnp.sum(model.apply({"params": p}, x)[:, -1] ** 2), params, x)["cell"]
    i, h = sum_of_squares(x), sum_of_squares(before)
    wanted = {"ir": i + h, "hr": i + h, "iz": i + h, "hz": i + h, "in": i, "hn": h}
    for name, value in wanted.items():
        np.testing.assert_allclose(lam[name]["kernel"].item() ** -2, value, rtol=RTOL)


def test_flax_layers_by_scan():
    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x, _):
            return jnp.tanh(nn.Dense(6, name="dense")(x)), None

    stack = nn.scan(nn.remat(Layer), variable_axes={"params": 0}, split_rngs={"params": True}, length=3)()
    x = normal(10, 6)
    params = stack.init(jax.random.key(0), x, None)["params"]
    lam = signal_norm(lambda p, x: jnp.sum(stack.apply({"params": p}, x, None)[0]), params, x)["dense"]["kernel"]
    assert lam.shape == (3, 1, 1)
    for layer in range(3):
        np.testing.assert_allclose(lam[layer].item() ** -2, sum_of_squares(x), rtol=RTOL)
        x = np.tanh(x @ params["dense"]["kernel"][layer] + params["dense"]["bias"][layer])


def test_nnx_convolution_and_dense():
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.conv = nnx.Conv(1, 4, (3, 3), padding="VALID", rngs=rngs)
            self.head = nnx.Linear(36, 2, rngs=rngs)

        def __call__(self, x):
            return self.head(nnx.relu(self.conv(x)).reshape(len(x), -1))

    graph, params = nnx.split(Net(nnx.Rngs(0)))
    x = normal(7, 5, 5, 1)
    lam = signal_norm(lambda p, x: jnp.sum(nnx.merge(graph, p)(x) ** 2), params, x)
    fields = np.array([x[:, i : i + 3, j : j + 3].reshape(7, -1) for i in range(3) for j in range(3)])
    hidden = nnx.relu(nnx.merge(graph, params).conv(x)).reshape(7, -1)
    np.testing.assert_allclose(lam["conv"]["kernel"][...].item() ** -2, sum_of_squares(fields), rtol=RTOL)
    np.testing.assert_allclose(lam["head"]["kernel"][...].item() ** -2, sum_of_squares(hidden), rtol=RTOL)


class EquinoxBlock(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    net: eqx.nn.MLP
    norm: eqx.nn.LayerNorm

    def __init__(self, key):
        self.attention = eqx.nn.MultiheadAttention(2, 8, key=key)
        self.net = eqx.nn.MLP(8, 8, 16, 1, activation=jnp.tanh, key=key)
        self.norm = eqx.nn.LayerNorm(8)

    def __call__(self, x):
        h = jax.vmap(self.norm)(x)
        x = x + self.attention(h, h, h)
        return x + jax.vmap(self.net)(x)


def test_equinox_transformer_block_under_vmap():
    model, x = EquinoxBlock(jax.random.key(0)), normal(3, 5, 8)
    lam = signal_norm(lambda m, x: jnp.sum(jax.vmap(m)(x) ** 2), model, x)
    h = jax.vmap(jax.vmap(model.norm))(x)
    stream = x + jax.vmap(model.attention)(h, h, h)
    hidden = jnp.tanh(jax.vmap(jax.vmap(model.net.layers[0]))(stream))
    for name in ("query_proj", "key_proj", "value_proj"):
        found = getattr(lam.attention, name).weight.item() ** -2
        np.testing.assert_allclose(found, sum_of_squares(h), rtol=RTOL)
    np.testing.assert_allclose(lam.net.layers[0].weight.item() ** -2, sum_of_squares(stream), rtol=RTOL)
    np.testing.assert_allclose(lam.net.layers[1].weight.item() ** -2, sum_of_squares(hidden), rtol=RTOL)
    assert np.all(lam.norm.weight == 1)
    assert np.all(lam.net.layers[0].bias == 1)
    assert lam.net.activation == 1.0


def test_equinox_gru_shares_sums_gate_by_gate():
    # fused gates (reset, update, new): rows 0-7 of both weights meet in one sum, rows 8-11 do not
    cell, xs = eqx.nn.GRUCell(2, 4, key=jax.random.key(0)), normal(5, 6, 2)

    def states(cell, xs):
        def step(h, x):
            h = jax.vmap(cell)(x, h)
            return h, h

        return jax.lax.scan(step, jnp.zeros((6, 4)), xs)[1]

    before = np.concatenate([np.zeros((1, 6, 4)), states(cell, xs)[:-1]])
    lam = signal_norm(lambda c, xs: jnp.sum(states(c, xs)[-1]), cell, xs)
    i, h = sum_of_squares(xs), sum_of_squares(before)
    for weight, own in ((lam.weight_ih, i), (lam.weight_hh, h)):
        assert weight.shape == (12, 1)
        np.testing.assert_allclose(weight[:8, 0] ** -2, i + h, rtol=RTOL)
        np.testing.assert_allclose(weight[8:, 0] ** -2, own, rtol=RTOL)
