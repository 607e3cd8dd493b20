"""Where a chain starts: the ways to draw a layer's first weights and biases.

A scheme draws one layer: ``scheme(key, shape, fan_in, gain, dtype) -> {"weight": ..., "bias": ...}``. ``shape`` is that
of the weight, outputs last; the bias has one number per output. ``fan_in`` is the number of inputs of one neuron, and
``gain`` makes up for what the activation takes from the signal.

Weights are drawn in one row and then shaped: the same numbers, but JAX compiles its generator anew for every shape, and
for the four axes of a convolution's kernel three times as long as for one.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

Layer = dict[str, jax.Array]
Scheme = Callable[[jax.Array, tuple[int, ...], int, float, jnp.dtype], Layer]

CHOICES = "gaussian:SIGMA (for example gaussian:0.01), pytorch, kaiming"


def gaussian(sigma: float) -> Scheme:
    """Every weight and bias is drawn from N(0, sigma^2).

    Paper: Sec. II E, x_i ~ N(0, sigma_0^2).
    """
    if not (math.isfinite(sigma) and sigma >= 0):
        raise ValueError(f"sigma of the gaussian init must be a finite number, zero or more, got {sigma}")

    def draw(key: jax.Array, shape: tuple[int, ...], fan_in: int, gain: float, dtype: jnp.dtype) -> Layer:
        key_weight, key_bias = jax.random.split(key)
        return {
            "weight": sigma * jax.random.normal(key_weight, (math.prod(shape),), dtype).reshape(shape),
            "bias": sigma * jax.random.normal(key_bias, shape[-1:], dtype),
        }

    return draw


def pytorch(key: jax.Array, shape: tuple[int, ...], fan_in: int, gain: float, dtype: jnp.dtype) -> Layer:
    """Weights and biases are uniform in +-1/sqrt(fan_in), PyTorch's default for linear layers.

    This is what we take the paper's "Kaiming initialization" to be, see docs/notation.md.
    """
    key_weight, key_bias = jax.random.split(key)
    bound = 1 / math.sqrt(fan_in)
    return {
        "weight": jax.random.uniform(key_weight, (math.prod(shape),), dtype, -bound, bound).reshape(shape),
        "bias": jax.random.uniform(key_bias, shape[-1:], dtype, -bound, bound),
    }


def kaiming(key: jax.Array, shape: tuple[int, ...], fan_in: int, gain: float, dtype: jnp.dtype) -> Layer:
    """Weights are drawn from N(0, gain^2/fan_in), so that the signal keeps its variance in depth; biases are 0."""
    return {
        "weight": gain / math.sqrt(fan_in) * jax.random.normal(key, (math.prod(shape),), dtype).reshape(shape),
        "bias": jnp.zeros(shape[-1:], dtype),
    }


def named_scheme(name: str) -> Scheme:
    """Finds the scheme that a name such as ``gaussian:0.01``, ``pytorch`` or ``kaiming`` stands for."""
    kind, colon, number = name.partition(":")
    if kind == "gaussian" and colon:
        try:
            sigma = float(number)
        except ValueError:
            raise ValueError(f"init must be one of {CHOICES}; SIGMA must be a number, got {name!r}") from None
        return gaussian(sigma)
    schemes: dict[str, Scheme] = {"pytorch": pytorch, "kaiming": kaiming}
    if name not in schemes:
        raise ValueError(f"init must be one of {CHOICES}, got {name!r}")
    return schemes[name]


def parameter_dtype(dtype: DTypeLike | None = None) -> jnp.dtype:
    """Settles the floating-point type of new parameters; JAX's own default where none is asked for."""
    chosen = jnp.dtype(jnp.result_type(float) if dtype is None else dtype)
    if not jnp.issubdtype(chosen, jnp.floating):
        raise ValueError(f"dtype must be a floating-point type, got {chosen}")
    if chosen == jnp.float64 and jnp.result_type(float) != jnp.float64:
        raise ValueError("dtype must be float32 or smaller unless JAX has jax_enable_x64 on, got float64")
    return chosen


def count(shapes: object) -> int:
    """Adds up the sizes of all leaves of a pytree of arrays or shapes."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
