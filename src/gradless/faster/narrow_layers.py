"""Narrow layers computed with the neurons on the first axis, in about half the time.

A layer of a few neurons on many samples, h @ W with h of shape (samples, fan_in), is too small for a matrix product,
and its last axis too short to compute with vectors of numbers. Written instead as a sum of W[k] * h[k] over the few
inputs k, with the samples along the last axis, it fuses with the activation behind it. What is elementwise between two
narrow layers keeps the layout, all else sees the usual one.
"""

import operator
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import JaxprEqn

from gradless.faster.laid import Laid
from gradless.jaxprs import ELEMENTWISE, Array, bind, dtype_of, shape_of

MAX_BYTES = 32  # of the inputs of one neuron: eight float32, four float64; beyond, a matrix product is faster
MAX_FAN_OUT = 16
MIN_ROWS = 64  # samples; below, there is nothing to gain
SAME_SHAPE = {*ELEMENTWISE, "convert_element_type", "copy"}
PIECES = {"split", "slice", "concatenate"}
REDUCTIONS = {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or"}


def is_narrow(eqn: JaxprEqn) -> bool:
    """Return whether an equation is a product of many samples with a few weights: (..., fan_in) @ (fan_in, fan_out)."""
    if eqn.primitive.name != "dot_general":
        return False
    samples, weight = (jax.ShapeDtypeStruct(shape_of(atom), dtype_of(atom)) for atom in eqn.invars)
    is_layer = eqn.params["dimension_numbers"] == (((samples.ndim - 1,), (0,)), ((), ())) and weight.ndim == 2
    dtypes = {samples.dtype, weight.dtype, dtype_of(eqn.outvars[0])}
    # Half precision is left alone: a matrix product sums it in a wider type.
    if not is_layer or samples.ndim < 2 or dtypes not in ({jnp.dtype("float32")}, {jnp.dtype("float64")}):
        return False
    fan_in, fan_out = weight.shape
    is_small = fan_in * samples.dtype.itemsize <= MAX_BYTES and fan_out <= MAX_FAN_OUT
    return is_small and samples.size >= MIN_ROWS * max(fan_in, 1)


def is_sum_over_neurons(eqn: JaxprEqn) -> bool:
    """Return whether an equation sums over the last axis of an array, a short one."""
    shape = shape_of(eqn.invars[0]) if eqn.primitive.name == "reduce_sum" else ()
    return bool(shape) and eqn.params["axes"] == (len(shape) - 1,) and 0 < shape[-1] <= MAX_FAN_OUT


def narrow_layer(eqn: JaxprEqn, samples: Laid, weight: Laid) -> Laid:
    """Return the outputs of a narrow layer, neurons first."""
    return Laid(_product(samples.first, weight.usual).astype(dtype_of(eqn.outvars[0])), is_first=True)


def kept_first(eqn: JaxprEqn, inputs: list[Laid]) -> list[Laid] | None:
    """Return an operation behind a narrow layer in the layout of its inputs; None where it needs the usual one."""
    if eqn.primitive.name in SAME_SHAPE and _is_of_one_shape(eqn):
        return [Laid(out, is_first=True) for out in bind(eqn, [one.first for one in inputs])]
    if eqn.primitive.name in REDUCTIONS:
        return [_reduced(eqn, inputs[0].array)]
    if eqn.primitive.name in PIECES:
        return [Laid(out, is_first=True) for out in _pieces(eqn, [one.first for one in inputs])]
    return None


def _is_of_one_shape(eqn: JaxprEqn) -> bool:
    """Return whether the arrays of an operation have the same axes; numbers, and axes of length 1, go with all."""
    ranks = {len(shape_of(atom)) for atom in eqn.invars} - {0}
    return ranks == {len(shape_of(eqn.outvars[0]))}


def _pieces(eqn: JaxprEqn, arrays: list[Array]) -> list[Array]:
    """Return pieces of an array, or arrays put together, whose last axis lies first."""
    last = arrays[0].ndim - 1
    turned: dict[str, Any] = {}
    for name, value in eqn.params.items():
        if name in ("axis", "dimension"):
            turned[name] = 0 if value == last else value + 1
        elif name in ("start_indices", "limit_indices", "strides") and value is not None:
            turned[name] = (value[last], *value[:last])
    return bind(eqn.replace(params={**eqn.params, **turned}), arrays)


def _product(h: Array, weight: Array) -> Array:
    """Return the sum of W[k] * h[k] over the inputs k, all neurons first; the order of the sum is fixed."""
    to_samples = (slice(None),) + (None,) * (h.ndim - 1)
    total = weight[0][to_samples] * h[0][None]
    for k in range(1, weight.shape[0]):
        total = total + weight[k][to_samples] * h[k][None]
    return total


def _reduced(eqn: JaxprEqn, array: Array) -> Laid:
    """Return a reduction over some axes of an array whose last axis lies first."""
    if is_sum_over_neurons(eqn):
        return Laid(reduce(operator.add, list(array)))
    last = array.ndim - 1
    axes = eqn.params["axes"]
    moved = tuple(sorted(0 if axis == last else axis + 1 for axis in axes))
    out = eqn.primitive.bind(array, **{**eqn.params, "axes": moved})
    return Laid(out, is_first=last not in axes and out.ndim > 1)
