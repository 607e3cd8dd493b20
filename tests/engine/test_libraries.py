"""Models of other libraries train as they are, with signal norm and without any glue."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl

THETA = np.linspace(0, 1, 100, dtype=np.float32)[:, None]
DATA = (THETA, np.sin(2 * np.pi * THETA))
ALGORITHM = gl.amc(sigma=1e-2, epsilon=1e-2, n_s=100, signal_norm=True)


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(jnp.tanh(nn.Dense(8)(x)))


def flax_loss(params, batch):
    return jnp.mean((Net().apply(params, batch[0]) - batch[1]) ** 2)


def equinox_loss(model, batch):
    return jnp.mean((jax.vmap(model)(batch[0]) - batch[1]) ** 2)


@pytest.mark.parametrize("chains", [1, 2])
def test_an_equinox_model_trains_and_comes_back_as_one(chains):
    """A module holds functions beside its weights and is itself callable: neither may confuse us."""
    model = eqx.nn.MLP(1, 1, 8, 1, activation=jnp.tanh, key=jax.random.key(0))
    result = gl.train(ALGORITHM, equinox_loss, model, data=DATA, steps=500, chains=chains)
    assert isinstance(result.params, eqx.nn.MLP)
    assert result.params.activation is model.activation
    lead = () if chains == 1 else (chains,)
    assert result.params.layers[0].weight.shape == (*lead, *model.layers[0].weight.shape)
    assert np.all(np.asarray(result.loss) < float(equinox_loss(model, DATA)) / 2)


def test_a_flax_model_trains():
    params = Net().init(jax.random.key(0), THETA)
    result = gl.train(ALGORITHM, flax_loss, params, data=DATA, steps=500)
    assert result.loss < float(flax_loss(params, DATA)) / 2
    assert jax.tree.structure(result.params) == jax.tree.structure(params)
