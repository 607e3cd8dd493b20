"""How a sum of squares follows a weight back through reshape, transpose, slice and their like.

A *compact* array has the rank of the array it describes and, along each axis, either its full size or 1 where one
number serves the whole axis. A `Link` is one layout operation seen from such an array: `pull` goes from the output
of the operation to its input (the average over copies, zero where nothing was copied), `push` from input to output.
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn

from gradless.jaxprs import Array, Shape, shape_of

SAME_ELEMENTS = {
    "convert_element_type",
    "copy",
    "device_put",
    "layout_constraint",
    "mesh_cast",
    "name",
    "neg",
    "optimization_barrier",
    "reduce_precision",
    "reshard",
    "sharding_constraint",
    "stop_gradient",
}
RESHAPES = {"reshape", "squeeze", "expand_dims"}
SLICES = {"slice", "split"}
TRANSPOSED_BY_JAX = {"pad", "tile", "stack", "unstack", "gather", "scatter", "scatter-add", "dynamic_update_slice"}


class Link(NamedTuple):
    """One layout operation: how compact arrays cross it in either direction."""

    pull: Callable[[Array], Array]
    push: Callable[[Array], Array] | None = None
    is_whole: bool = True  # every element of the input is used, all equally often
    is_copying: bool = False  # elements of the input appear several times in the output


Links = tuple[Link, ...]
IDENTITY = Link(pull=lambda s: s, push=lambda s: s)


def pull_back(links: Links, s: Array) -> Array:
    """Carry a compact array from the end of a row of layout operations to its start."""
    for link in reversed(links):
        s = link.pull(s)
    return s


def read_link(eqn: JaxprEqn, operand: int, output: int, arrays: Sequence[Array]) -> Link | None:
    """The link from one operand of a layout operation to one of its outputs; None if it is no layout operation."""
    name, params = eqn.primitive.name, eqn.params
    old: Shape = shape_of(eqn.invars[operand])
    new: Shape = shape_of(eqn.outvars[output])
    if name in SAME_ELEMENTS:
        return IDENTITY if operand == output else None
    if name in RESHAPES:
        return Link(lambda s: regroup(s, new, old), lambda s: regroup(s, old, new))
    if name == "transpose":
        order = params["permutation"]
        return Link(lambda s: s.transpose(np.argsort(order)), lambda s: s.transpose(order))
    if name == "broadcast_in_dim" and operand == 0:
        return broadcast_link(old, new, params["broadcast_dimensions"])
    if name == "slice":
        return slice_link(old, new, params["start_indices"], params["strides"] or (1,) * len(old))
    if name == "split":
        return slice_link(old, new, split_starts(params, output, len(old)), (1,) * len(old))
    if name == "rev":
        return Link(lambda s: jnp.flip(s, params["dimensions"]))
    if name == "concatenate":
        return concatenate_link(eqn, operand)
    if name == "dynamic_slice" and operand == 0:
        return dynamic_slice_link(old, new, arrays[1:])
    if name in TRANSPOSED_BY_JAX:
        return transposed_link(eqn, operand, output, arrays)
    return None


def matching_axes(old: Shape, new: Shape) -> Iterator[tuple[range, range]]:
    """Runs of axes of two shapes of one size that hold the same elements: (6, 4) and (2, 3, 4) give 0|01 and 1|2."""
    start_old = start_new = i = j = 0
    size_old = size_new = 1
    while i < len(old) or j < len(new):
        if i < len(old) and (size_old <= size_new or j == len(new)):
            size_old, i = size_old * old[i], i + 1
        else:
            size_new, j = size_new * new[j], j + 1
        if size_old == size_new:
            yield range(start_old, i), range(start_new, j)
            start_old, start_new, size_old, size_new = i, j, 1, 1
    if start_old < i or start_new < j:
        yield range(start_old, i), range(start_new, j)


def regroup(s: Array, old: Shape, new: Shape) -> Array:
    """A compact array over `old` as one over `new`, the same elements in another shape."""
    spread, target = [1] * len(old), [1] * len(new)
    for olds, news in matching_axes(old, new):
        if any(s.shape[axis] > 1 for axis in olds):
            for axis in olds:
                spread[axis] = old[axis]
            for axis in news:
                target[axis] = new[axis]
    return jnp.broadcast_to(s, spread).reshape(target)


def broadcast_link(old: Shape, new: Shape, kept: Sequence[int]) -> Link:
    """Copies along new axes, or along axes of size 1: pulling back averages the copies."""
    stretched = tuple(a for a in range(len(new)) if a not in kept or old[kept.index(a)] != new[a])

    def pull(s: Array) -> Array:
        s = s.mean(axis=stretched, keepdims=True)
        return s.reshape([s.shape[axis] for axis in kept])

    def push(s: Array) -> Array:
        shape = [1] * len(new)
        for axis, size in zip(kept, s.shape, strict=True):
            shape[axis] = size
        return s.reshape(shape)

    return Link(pull, push, is_copying=prod(new) > prod(old))


def elementwise_link(eqn: JaxprEqn, operand: int) -> Link | None:
    """From one operand of an elementwise operation to its output; axes of size 1 may be stretched."""
    old, new = shape_of(eqn.invars[operand]), shape_of(eqn.outvars[0])
    if old == new:
        return IDENTITY
    return broadcast_link(old, new, tuple(range(len(new)))) if len(old) == len(new) else None


def split_starts(params: dict[str, Any], output: int, rank: int) -> tuple[int, ...]:
    """Where one output of `split` begins in its operand."""
    starts = [0] * rank
    starts[params["axis"]] = int(sum(params["sizes"][:output]))
    return tuple(starts)


def slice_link(old: Shape, new: Shape, starts: Sequence[int], strides: Sequence[int]) -> Link:
    """A part of the input: what was cut away gets zero."""
    cut = [axis for axis in range(len(old)) if old[axis] != new[axis]]

    def pull(s: Array) -> Array:
        s = jnp.broadcast_to(s, [new[a] if a in cut else s.shape[a] for a in range(len(old))])
        padding = [(0, 0, 0)] * len(old)
        for a in cut:
            after = old[a] - starts[a] - (new[a] - 1) * strides[a] - 1
            padding[a] = (int(starts[a]), int(after), int(strides[a]) - 1)
        return lax.pad(s, jnp.zeros((), s.dtype), padding)

    def push(s: Array) -> Array:
        part = [slice(None)] * len(old)
        for a in cut:
            if s.shape[a] > 1:
                part[a] = slice(starts[a], starts[a] + (new[a] - 1) * strides[a] + 1, strides[a])
        return s[tuple(part)]

    return Link(pull, push, is_whole=not cut)


def concatenate_link(eqn: JaxprEqn, operand: int) -> Link:
    """One operand of a concatenation: pulling back takes its part."""
    axis = eqn.params["dimension"]
    sizes = [shape_of(v)[axis] for v in eqn.invars]
    start = sum(sizes[:operand])

    def pull(s: Array) -> Array:
        return s if s.shape[axis] == 1 else lax.slice_in_dim(s, start, start + sizes[operand], axis=axis)

    return Link(pull)


def dynamic_slice_link(old: Shape, new: Shape, starts: Sequence[Array]) -> Link:
    """A part at a place known at run time, such as the layer of a loop counter."""
    cut = [axis for axis in range(len(old)) if old[axis] != new[axis]]

    def pull(s: Array) -> Array:
        s = jnp.broadcast_to(s, [new[a] if a in cut else s.shape[a] for a in range(len(old))])
        whole = jnp.zeros([old[a] if a in cut else s.shape[a] for a in range(len(old))], s.dtype)
        return lax.dynamic_update_slice(whole, s, [starts[a] if a in cut else 0 for a in range(len(old))])

    return Link(pull, is_whole=not cut)


def transposed_link(eqn: JaxprEqn, operand: int, output: int, arrays: Sequence[Array]) -> Link:
    """Any other linear rearrangement: JAX transposes it at full size."""
    old, new = shape_of(eqn.invars[operand]), shape_of(eqn.outvars[output])

    def pull(s: Array) -> Array:
        def rearrange(x: Array) -> Array:
            others = [
                a.astype(s.dtype) if jnp.issubdtype(a.dtype, jnp.inexact) else a for a in map(jnp.asarray, arrays)
            ]
            others[operand] = x
            out = eqn.primitive.bind(*others, **eqn.params)
            return out[output] if eqn.primitive.multiple_results else out

        back = jax.vjp(rearrange, jnp.zeros(old, s.dtype))[1]
        (total,), (copies,) = back(jnp.broadcast_to(s, new)), back(jnp.ones(new, s.dtype))
        return total / jnp.maximum(copies, 1)

    return Link(pull, is_whole=False, is_copying=prod(new) > prod(old))
