"""How much work a loss is, counted in its program: operations, transcendental functions, numbers that must be read.

XLA's own cost analysis counts the body of a loop once and the padding of a convolution as work; a limit must not.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend.core import Jaxpr, JaxprEqn

TRANSCENDENTAL = {"tanh", "exp", "exp2", "log", "log1p", "expm1", "logistic", "sin", "cos", "erf_inv", "pow"}


class Operations(NamedTuple):
    """The least that a program has to do, whatever the order in which it does it."""

    flops: float  # of products of matrices and convolutions, two for each multiplication with its addition
    transcendentals: float  # values of tanh, exp and the like
    bytes: float  # of parameters and data, each read once


def work_of(function: Callable[..., Any], *args: Any) -> Operations:
    """Return the work of a call; the arguments may be shapes."""
    program = jax.make_jaxpr(function)(*args)
    flops, transcendentals = _count(program.jaxpr)
    size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(args))
    return Operations(flops, transcendentals, float(size))


def _count(jaxpr: Jaxpr) -> tuple[float, float]:
    flops = transcendentals = 0.0
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name == "dot_general":
            flops += _product_flops(eqn)
        elif name == "conv_general_dilated":
            flops += _convolution_flops(eqn)
        elif name in TRANSCENDENTAL:
            transcendentals += math.prod(_shape(eqn.outvars[0]))
        times = eqn.params["length"] if name == "scan" else 1
        for inner in _programs_in(eqn):
            more_flops, more_transcendentals = _count(inner)
            flops += times * more_flops
            transcendentals += times * more_transcendentals
    return flops, transcendentals


def _programs_in(eqn: JaxprEqn) -> list[Jaxpr]:
    """Return the programs that an equation calls: of a branch the first, of a loop of unknown length one round."""
    if "branches" in eqn.params:
        return [eqn.params["branches"][0].jaxpr]
    held = [eqn.params[name] for name in ("jaxpr", "call_jaxpr", "body_jaxpr") if name in eqn.params]
    return [getattr(one, "jaxpr", one) for one in held]


def _product_flops(eqn: JaxprEqn) -> float:
    (contracted, _), _ = eqn.params["dimension_numbers"]
    left = _shape(eqn.invars[0])
    return 2.0 * math.prod(_shape(eqn.outvars[0])) * math.prod(left[axis] for axis in contracted)


def _convolution_flops(eqn: JaxprEqn) -> float:
    """Return the operations whose inputs lie inside the image: products with the zeros around it are no work."""
    numbers, params = eqn.params["dimension_numbers"], eqn.params
    image, kernel, out = map(_shape, (*eqn.invars, eqn.outvars[0]))
    taps = 1
    for place, (axis_in, axis_kernel, axis_out) in enumerate(
        zip(numbers.lhs_spec[2:], numbers.rhs_spec[2:], numbers.out_spec[2:], strict=True)
    ):
        taps *= _taps_inside(
            image[axis_in],
            kernel[axis_kernel],
            out[axis_out],
            params["window_strides"][place],
            params["padding"][place][0],
        )
    batch, channels = out[numbers.out_spec[0]], out[numbers.out_spec[1]]
    return 2.0 * taps * batch * channels * kernel[numbers.rhs_spec[1]]


def _taps_inside(size: int, kernel: int, out: int, stride: int, margin: int) -> int:
    places: Sequence[int] = [o * stride - margin + k for o in range(out) for k in range(kernel)]
    return sum(0 <= place < size for place in places)


def _shape(atom: Any) -> tuple[int, ...]:
    return atom.aval.shape
