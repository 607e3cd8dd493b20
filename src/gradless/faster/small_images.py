"""Convolutions of images that are smaller than the kernel, as one product of matrices: the same numbers up to rounding.

The last layers of a net such as ResNet-18 see images of 2x2 and 1x1 pixels through kernels of 3x3. XLA on a CPU leaves
these to a plain loop, some fifty times slower than a product, and most of the kernel meets only the margin.

Where the kernel does not reach, the matrix has a zero: a pixel that is NaN makes all outputs of its image NaN.
"""

import math
from itertools import product
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn

from gradless.jaxprs import Array, are_floating, shape_of


def is_small_image(eqn: JaxprEqn) -> bool:
    """Return whether an equation is a plain convolution with fewer pixels in the image than in the kernel."""
    if eqn.primitive.name != "conv_general_dilated" or not are_floating(eqn):
        return False
    params = eqn.params
    is_plain = params["feature_group_count"] == params["batch_group_count"] == 1
    is_dilated = any(step != 1 for step in (*params["lhs_dilation"], *params["rhs_dilation"]))
    image, kernel = _spatial(eqn)
    is_whole = math.prod(shape_of(eqn.outvars[0])) > 0
    return is_plain and not is_dilated and is_whole and math.prod(image) < math.prod(kernel)


def convolved(eqn: JaxprEqn, image: Array, kernel: Array) -> Array:
    """Return the convolution, as the product of the image in one row with the kernel laid out for all positions."""
    numbers = eqn.params["dimension_numbers"]
    out_shape = [shape_of(eqn.outvars[0])[axis] for axis in numbers.out_spec]  # samples, channels, positions
    samples, channels, *positions = out_shape
    image = jnp.transpose(image, numbers.lhs_spec).reshape(samples, -1)
    kernel = jnp.transpose(kernel, (*numbers.rhs_spec[1:], numbers.rhs_spec[0]))  # inputs, positions, outputs
    columns = [_kernel_seen_from(eqn, kernel, place) for place in product(*map(range, positions))]
    weight = jnp.stack(columns, axis=-2).reshape(image.shape[1], -1)
    options = {name: eqn.params[name] for name in ("precision", "preferred_element_type")}
    out = lax.dot(image, weight, **options).astype(_dtype(eqn))
    out = jnp.moveaxis(out.reshape(samples, *positions, channels), -1, 1)
    return jnp.transpose(out, [numbers.out_spec.index(axis) for axis in range(out.ndim)])


def _kernel_seen_from(eqn: JaxprEqn, kernel: Array, place: tuple[int, ...]) -> Array:
    """Return the weight with which every pixel enters the output at `place`; 0 where the kernel does not reach."""
    edges = []
    for axis, size in enumerate(_spatial(eqn)[0]):
        before = place[axis] * eqn.params["window_strides"][axis] - eqn.params["padding"][axis][0]
        edges.append((before, size - kernel.shape[1 + axis] - before, 0))  # below zero what lies outside is cut off
    return lax.pad(kernel, jnp.zeros((), kernel.dtype), [(0, 0, 0), *edges, (0, 0, 0)])


def _spatial(eqn: JaxprEqn) -> tuple[list[int], list[int]]:
    """Return height and width, or however many there are, of the image and of the kernel."""
    numbers = eqn.params["dimension_numbers"]
    image, kernel = (shape_of(atom) for atom in eqn.invars)
    return [image[axis] for axis in numbers.lhs_spec[2:]], [kernel[axis] for axis in numbers.rhs_spec[2:]]


def _dtype(eqn: JaxprEqn) -> Any:
    return eqn.outvars[0].aval.dtype  # type: ignore[attr-defined]
