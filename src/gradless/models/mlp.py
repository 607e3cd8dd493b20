"""The fully connected net of most of the paper's figures: any widths, any of six activations, plain or with help."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from gradless.models.initial import count, named_scheme, parameter_dtype

Params = dict[str, Any]


class Activation(NamedTuple):
    """A neuron's response, and the gain that Kaiming initialisation needs to make up for it."""

    respond: Callable[[jax.Array], jax.Array]
    gain: float


def threshold(z: jax.Array) -> jax.Array:
    """A neuron that fires, 1, where its input is positive and is silent, 0, elsewhere: no gradient exists."""
    return (z > 0).astype(z.dtype)


# The gain is 1/sqrt(E[act(z)^2]) for z ~ N(0, 1); for tanh and sigmoid we keep PyTorch's customary 5/3 and 1.
ACTIVATIONS = {
    "tanh": Activation(jnp.tanh, 5 / 3),
    "relu": Activation(jax.nn.relu, math.sqrt(2)),
    "sigmoid": Activation(jax.nn.sigmoid, 1.0),
    "sine": Activation(jnp.sin, math.sqrt(2 / (1 - math.exp(-2)))),
    "step": Activation(threshold, math.sqrt(2)),
    "identity": Activation(lambda z: z, 1.0),
}
HEADS = ("linear", "softmax")


@dataclass(frozen=True)
class MLP:
    """A net of dense layers, h -> act(h W + b), with a linear or softmax last layer.

    Paper: Sec. II A (784-16-16-10), II B (up to a million parameters), II C (1-100-1), II E (depth 2 to 256).
    Claims: F1, F2, F4, F6, F7.
    """

    widths: tuple[int, ...]
    """Neurons per layer, from the inputs to the outputs, such as (784, 16, 16, 10)."""
    activation: str = "tanh"
    """What hidden neurons do: tanh, relu, sigmoid, sine, step (hard threshold) or identity."""
    head: str = "linear"
    """What the outputs are: linear (numbers, or logits) or softmax (probabilities)."""
    skip: bool = False
    """Adds a hidden layer's input to its output, h + act(h W + b), wherever the two widths agree (F6e)."""
    layer_norm: bool = False
    """Normalises what enters each hidden activation over its neurons, with a scale and an offset (F6e)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))
        if len(self.widths) < 2 or any(int(width) != width or width < 1 for width in self.widths):
            raise ValueError(f"widths must be two or more positive whole numbers, got {self.widths}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {self.activation!r}")
        if self.head not in HEADS:
            raise ValueError(f"head must be one of {', '.join(HEADS)}, got {self.head!r}")

    @property
    def num_parameters(self) -> int:
        """N, the number of weights, biases, scales and offsets."""
        return count(jax.eval_shape(lambda key: self.init(key, "pytorch"), jax.random.key(0)))

    def init(self, key: jax.Array, scheme: str, *, dtype: DTypeLike | None = None) -> Params:
        """Draws parameters ``{"layers": [{"weight": (fan_in, fan_out), "bias": (fan_out,)}, ...]}``.

        ``scheme`` is a name of `initial`. With layer norm a hidden layer also holds "scale" = 1 and "offset" = 0
        whatever the scheme: a scale drawn near zero would undo the layer norm.
        """
        draw, dtype = named_scheme(scheme), parameter_dtype(dtype)
        num_layers = len(self.widths) - 1
        layers = []
        for i, (fan_in, fan_out) in enumerate(pairwise(self.widths)):
            is_hidden = i < num_layers - 1
            gain = ACTIVATIONS[self.activation].gain if is_hidden else 1.0
            layer = draw(jax.random.fold_in(key, i), (fan_in, fan_out), fan_in, gain, dtype)
            if is_hidden and self.layer_norm:
                layer |= {"scale": jnp.ones(fan_out, dtype), "offset": jnp.zeros(fan_out, dtype)}
            layers.append(layer)
        return {"layers": layers}

    def apply(self, params: Params, x: jax.Array) -> jax.Array:
        """Runs the net on inputs (..., features), in the precision of the parameters."""
        *hidden, last = params["layers"]
        h = jnp.asarray(x).astype(last["weight"].dtype)
        respond = ACTIVATIONS[self.activation].respond
        for layer in hidden:
            z = h @ layer["weight"] + layer["bias"]
            if self.layer_norm:
                z = normalise(z, axes=-1) * layer["scale"] + layer["offset"]
            h = h + respond(z) if self.skip and h.shape == z.shape else respond(z)
        outputs = h @ last["weight"] + last["bias"]
        return jax.nn.softmax(outputs) if self.head == "softmax" else outputs


def normalise(z: jax.Array, axes: int | tuple[int, ...]) -> jax.Array:
    """Shifts and scales z to mean 0 and variance 1 over the given axes: layer norm without its parameters."""
    deviation = z - jnp.mean(z, axes, keepdims=True)
    variance = jnp.mean(deviation**2, axes, keepdims=True)
    return deviation * jax.lax.rsqrt(variance + 1e-5)
