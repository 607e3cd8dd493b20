"""Narrow layers computed with the neurons on the first axis: the same numbers up to rounding, in about half the time.

A layer of a few neurons on many samples, h @ W with h of shape (samples, fan_in), is too small for a matrix product,
and its last axis too short to compute with vectors of numbers. Written instead as a sum of W[k] * h[k] over the few
inputs k, with the samples along the last axis, it fuses with the activation behind it. Any traced loss can be
evaluated in that way: what is elementwise between two narrow layers keeps the layout, all else sees the usual one.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var

from gradless.signal_norm.calls import inner_jaxpr, opened
from gradless.signal_norm.layout import Array, shape_of
from gradless.signal_norm.walk import ELEMENTWISE, bind, literal_array
from gradless.small_images import convolved, is_small_image

MAX_BYTES = 32  # of the inputs of one neuron: eight float32, four float64; beyond, a matrix product is faster
MAX_FAN_OUT = 16
MIN_ROWS = 64  # samples; below, there is nothing to gain
SAME_SHAPE = {*ELEMENTWISE, "convert_element_type", "copy", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not"}
REDUCTIONS = {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or"}


class Laid(NamedTuple):
    """An array, and whether its last axis lies first in memory."""

    array: Array
    is_first: bool = False

    @property
    def usual(self) -> Array:
        """The array in the layout that the program means."""
        return jnp.moveaxis(self.array, 0, -1) if self.is_first else self.array

    @property
    def first(self) -> Array:
        """The array with its last axis first."""
        return self.array if self.is_first or self.array.ndim < 2 else jnp.moveaxis(self.array, -1, 0)


def dtype_of(atom: Any) -> Any:
    """The dtype of a variable or number of a program."""
    return atom.aval.dtype


def has_faster_form(jaxpr: Jaxpr) -> bool:
    """Return whether a program holds a product that is worth the other layout, or a convolution of a small image."""
    inner = (inner_jaxpr(eqn) for eqn in jaxpr.eqns)
    is_here = any(is_narrow(eqn) or is_small_image(eqn) for eqn in jaxpr.eqns)
    return is_here or any(has_faster_form(opened(one)[0]) for one in inner if one is not None)


def is_narrow(eqn: JaxprEqn) -> bool:
    """Return whether an equation is a product of many samples with a few weights: (..., fan_in) @ (fan_in, fan_out)."""
    if eqn.primitive.name != "dot_general":
        return False
    samples, weight = (jax.ShapeDtypeStruct(shape_of(atom), dtype_of(atom)) for atom in eqn.invars)
    is_layer = eqn.params["dimension_numbers"] == (((samples.ndim - 1,), (0,)), ((), ())) and weight.ndim == 2
    if not is_layer or samples.ndim < 2 or not jnp.issubdtype(samples.dtype, jnp.floating):
        return False
    fan_in, fan_out = weight.shape
    is_small = fan_in * samples.dtype.itemsize <= MAX_BYTES and fan_out <= MAX_FAN_OUT
    return is_small and samples.size >= MIN_ROWS * max(fan_in, 1)


def features_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, a pure function of pytrees of arrays, with its narrow layers in the faster layout.

    Convolutions of images smaller than their kernel are written as products on the way.
    The derivative rules that a function brings along (`jax.custom_jvp`) are lost on the way: not for gradients.
    """

    def evaluated(*args: Any) -> Any:
        program, shape = jax.make_jaxpr(function, return_shape=True)(*args)
        if not has_faster_form(program.jaxpr):
            return function(*args)
        # Between the barriers the pass is compiled alike in every program: elsewhere a product and a sum that follows
        # may be contracted into one operation or not, and a replay would not find the same loss.
        leaves = jax.lax.optimization_barrier(jax.tree.leaves(args))
        outs = _run(program.jaxpr, [Laid(const) for const in program.consts], [Laid(leaf) for leaf in leaves])
        outs = jax.lax.optimization_barrier([out.usual for out in outs])
        return jax.tree.unflatten(jax.tree.structure(shape), outs)

    return evaluated


def _run(jaxpr: Jaxpr, consts: Sequence[Laid], args: Sequence[Laid]) -> list[Laid]:
    env: dict[Var, Laid] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))

    def read(atom: Any) -> Laid:
        return Laid(literal_array(atom)) if isinstance(atom, Literal) else env[atom]

    for eqn in jaxpr.eqns:
        env.update(zip(eqn.outvars, _step(eqn, [read(atom) for atom in eqn.invars]), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _step(eqn: JaxprEqn, inputs: list[Laid]) -> list[Laid]:
    is_any_first = any(one.is_first for one in inputs)
    if (inner := inner_jaxpr(eqn)) is not None:
        jaxpr, consts = opened(inner)
        if is_any_first or has_faster_form(jaxpr):
            return _run(jaxpr, [Laid(const) for const in consts], inputs)
    if is_narrow(eqn):
        return [Laid(_product(inputs[0].first, inputs[1].usual).astype(dtype_of(eqn.outvars[0])), is_first=True)]
    if is_small_image(eqn):
        return [Laid(convolved(eqn, *(one.usual for one in inputs)))]
    if is_any_first and eqn.primitive.name in SAME_SHAPE and _is_of_one_shape(eqn):
        return [Laid(out, is_first=True) for out in bind(eqn, [one.first for one in inputs])]
    if is_any_first and eqn.primitive.name in REDUCTIONS:
        return [_reduced(eqn, inputs[0].array)]
    return [Laid(out) for out in bind(eqn, [one.usual for one in inputs])]


def _is_of_one_shape(eqn: JaxprEqn) -> bool:
    return len({shape_of(atom) for atom in eqn.invars} - {()}) == 1  # numbers go with every layout


def _product(h: Array, weight: Array) -> Array:
    """Return the sum of W[k] * h[k] over the inputs k, all neurons first; the order of the sum is fixed."""
    to_samples = (slice(None),) + (None,) * (h.ndim - 1)
    total = weight[0][to_samples] * h[0][None]
    for k in range(1, weight.shape[0]):
        total = total + weight[k][to_samples] * h[k][None]
    return total


def _reduced(eqn: JaxprEqn, array: Array) -> Laid:
    """Return a reduction over some axes of an array whose last axis lies first."""
    last = array.ndim - 1
    axes = eqn.params["axes"]
    moved = tuple(sorted(0 if axis == last else axis + 1 for axis in axes))
    out = eqn.primitive.bind(array, **{**eqn.params, "axes": moved})
    return Laid(out, is_first=last not in axes and out.ndim > 1)
