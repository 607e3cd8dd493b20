"""The net of an estimator: its first weights, its outputs, and its weights in other units of the targets."""

from functools import partial
from typing import Any

import jax
import numpy as np

from gradless.engine.precision import precision_of
from gradless.models.mlp import ACTIVATIONS, MLP, Params
from gradless.sklearn.samples import Units

NUM_ROWS = 256  # passed through the net at once: one compiled program serves every number of rows


def first_params(net: MLP, dtype: Any, key: jax.Array) -> Params:
    """Draw weights from N(0, gain^2/fan_in) and set biases to 0, by NumPy from the bits of a JAX key.

    Differs: from `MLP.init(key, "kaiming")` in the random numbers alone; NumPy has nothing to compile for a new shape.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    num_layers = len(net.widths) - 1
    layers = []
    for i in range(num_layers):
        fan_in, fan_out = net.widths[i : i + 2]
        gain = ACTIVATIONS[net.activation].gain if i < num_layers - 1 else 1.0
        weight = gain / np.sqrt(fan_in) * rng.standard_normal((fan_in, fan_out))
        layers.append({"weight": weight.astype(dtype), "bias": np.zeros(fan_out, dtype)})
    return {"layers": layers}


def outputs_for(net: MLP, params: Params, x: np.ndarray, units: Units | None = None) -> np.ndarray:
    """Return what the net says of each row of x; with units as targets, in float64."""
    dtype = params["layers"][0]["weight"].dtype
    parts = []
    with precision_of(dtype):
        for begin in range(0, len(x), NUM_ROWS):
            rows = x[begin : begin + NUM_ROWS].astype(dtype)
            filled = np.concatenate([rows, np.zeros((NUM_ROWS - len(rows), x.shape[1]), dtype)])
            parts.append(np.asarray(_apply(net, params, filled))[: len(rows)])
    outputs = np.concatenate(parts)
    # float32 has no digits left for a target that is 1e8 plus a little; units are float64.
    return outputs if units is None else outputs * units.spread + units.centre


@partial(jax.jit, static_argnames=("net",))
def _apply(net: MLP, params: Params, x: jax.Array) -> jax.Array:
    return net.apply(params, x)


def in_other_units(params: Params, old: Units, new: Units) -> Params:
    """Return the net that says in the new units of the targets what `params` says in the old ones."""
    *hidden, last = params["layers"]
    dtype, ratio = last["weight"].dtype, old.spread / new.spread
    weight, bias = last["weight"] * ratio, last["bias"] * ratio + (old.centre - new.centre) / new.spread
    return {"layers": [*hidden, {"weight": weight.astype(dtype), "bias": bias.astype(dtype)}]}


def as_params(coefs: list[np.ndarray], intercepts: list[np.ndarray]) -> Params:
    """Return weights and biases as scikit-learn keeps them, as the net's own pytree."""
    return {"layers": [{"weight": w, "bias": b} for w, b in zip(coefs, intercepts, strict=True)]}
