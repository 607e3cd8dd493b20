"""Gradients with respect to the kernel of a convolution, as one product of matrices per pixel of the kernel.

Such a gradient is itself a convolution, of the layer's inputs with what comes back from its outputs, summed over the
samples. Inside a compiled loop XLA on a CPU leaves it to a plain loop, up to a hundred times slower than the products.
"""

import math
from itertools import product

import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn

from gradless.jaxprs import Array, are_floating, dtype_of, shape_of

MAX_PIXELS = 64  # of the kernel, each a product of its own in the program


def is_kernel_gradient(eqn: JaxprEqn) -> bool:
    """Return whether an equation is a plain convolution that sums over the first axis of what it reads."""
    if eqn.primitive.name != "conv_general_dilated" or not are_floating(eqn):
        return False
    numbers = eqn.params["dimension_numbers"]
    is_plain = eqn.params["feature_group_count"] == eqn.params["batch_group_count"] == 1
    return is_plain and numbers.lhs_spec[1] == 0 and 0 < math.prod(_pixels(eqn)) <= MAX_PIXELS


def gradient_by_pixels(eqn: JaxprEqn, inputs: Array, back: Array) -> Array:
    """Return the gradient: for each pixel of the kernel, the inputs that it has met times what came back for them."""
    numbers = eqn.params["dimension_numbers"]
    _, *summed = numbers.lhs_spec  # the samples, then height and width
    dimensions = ((tuple(summed), tuple(numbers.rhs_spec[1:])), ((), ()))
    options = {name: eqn.params[name] for name in ("precision", "preferred_element_type")}
    inputs = _padded(eqn, inputs)
    parts = [
        lax.dot_general(_met_by(eqn, inputs, pixel), back, dimensions, **options)
        for pixel in product(*map(range, _pixels(eqn)))
    ]
    out = jnp.stack(parts, axis=-1).reshape(*parts[0].shape, *_pixels(eqn)).astype(dtype_of(eqn.outvars[0]))
    return jnp.transpose(out, [numbers.out_spec.index(axis) for axis in range(out.ndim)])


def _pixels(eqn: JaxprEqn) -> list[int]:
    """Return height and width, or however many there are, of the kernel whose gradient this is."""
    return [shape_of(eqn.outvars[0])[axis] for axis in eqn.params["dimension_numbers"].out_spec[2:]]


def _padded(eqn: JaxprEqn, inputs: Array) -> Array:
    edges = [(0, 0, 0)] * inputs.ndim
    places = eqn.params["dimension_numbers"].lhs_spec[2:]
    for axis, (low, high), step in zip(places, eqn.params["padding"], eqn.params["lhs_dilation"], strict=True):
        edges[axis] = (low, high, step - 1)
    return lax.pad(inputs, jnp.zeros((), inputs.dtype), edges)


def _met_by(eqn: JaxprEqn, inputs: Array, pixel: tuple[int, ...]) -> Array:
    """Return the inputs under one pixel of the kernel, one for each position of the layer's outputs."""
    numbers, params = eqn.params["dimension_numbers"], eqn.params
    first, last, steps = [0] * inputs.ndim, list(inputs.shape), [1] * inputs.ndim
    for place, axis in enumerate(numbers.lhs_spec[2:]):
        positions = shape_of(eqn.invars[1])[numbers.rhs_spec[2 + place]]
        steps[axis] = params["rhs_dilation"][place]  # of the gradient: the layer's stride
        first[axis] = pixel[place] * params["window_strides"][place]
        last[axis] = first[axis] + (positions - 1) * steps[axis] + 1
    return lax.slice(inputs, first, last, steps)
