"""What is used again is kept in memory, not computed again.

A compiler merges cheap operations into everything that uses their result. Between matrix products, whose inputs and
outputs are in memory anyway, that saves time. Narrow layers are no products any more: behind a sum that is used twice,
the h + f(h) of a skip connection for one, each layer would compute all layers before it again.
"""

from collections import Counter
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.extend.core import Jaxpr, JaxprEqn, Var

from gradless.apart import unknown_zero
from gradless.faster.laid import Laid
from gradless.faster.narrow_layers import PIECES, SAME_SHAPE, is_narrow, is_sum_over_neurons
from gradless.jaxprs import Array, inner_jaxpr, shape_of

MAX_AGAIN = 3  # operations per number that may be done again; more cost more than a pass through memory

ARITHMETIC = {"add", "add_any", "sub", "mul", "neg", "abs", "square", "max", "min", "clamp", "sign", "floor", "ceil"}
ARITHMETIC |= {"round", "select_n", "convert_element_type", "copy", "eq", "ne", "lt", "le", "gt", "ge", "and", "or"}
ARITHMETIC |= {"not", "integer_pow"}
MOVES = {"broadcast_in_dim", "reshape", "squeeze"}
NEVER_AGAIN = {"tanh", "exp", "exp2", "expm1", "log", "log1p", "logistic", "pow", "div", "sqrt", "rsqrt"}
SERIES = 30  # operations of any other function: the compiler writes it out as a series, and that it does compute again


def work_of(eqn: JaxprEqn, inputs: list[Laid]) -> int:
    """Return how many operations it takes to compute one number of an equation's result from what is in memory."""
    name = eqn.primitive.name
    if name in NEVER_AGAIN:
        return 0
    before = sum(one.work for one in inputs)
    if is_narrow(eqn) or is_sum_over_neurons(eqn):
        return shape_of(eqn.invars[0])[-1] * (2 + before)
    if name in SAME_SHAPE:
        return before + (1 if name in ARITHMETIC else SERIES)
    return before if name in MOVES | PIECES else 0


def uses_of(jaxpr: Jaxpr) -> Counter[Var]:
    """Return how often the operations that the compiler would merge need a number of each variable."""
    uses: Counter[Var] = Counter()
    for atoms, times in [(jaxpr.outvars, 1), *map(_needs, jaxpr.eqns)]:
        for atom in atoms:
            if isinstance(atom, Var):  # not a number, which has no hash
                uses[atom] += times
    return uses


def _needs(eqn: JaxprEqn) -> tuple[list[Any], int]:
    """Return which variables an operation would compute again, and how often for one number of its own."""
    if is_narrow(eqn) or is_sum_over_neurons(eqn):
        return eqn.invars[:1], shape_of(eqn.invars[0])[-1]
    return eqn.invars, int(eqn.primitive.name in SAME_SHAPE | PIECES or inner_jaxpr(eqn) is not None)


def kept(laid: Laid, uses: int, witness: Array | None) -> Laid:
    """Return an array whose neurons come first, kept in memory where its uses would compute too much again."""
    is_worth_it = laid.is_first and laid.work * (uses - 1) > MAX_AGAIN
    if witness is None or not is_worth_it or not jnp.issubdtype(laid.array.dtype, jnp.floating):
        return laid
    return laid._replace(array=_divided_by_one(laid.array, witness), work=0)


def _divided_by_one(array: Array, witness: Array) -> Array:
    """Return an array as it is, by a division: of all that leaves a number as it is, what no compiler does twice.

    The ones are made of the array's own bits. One number for all, and the compiler would multiply by its inverse.
    """
    dtype = array.dtype
    bits = jnp.dtype(f"uint{8 * dtype.itemsize}")
    nothing = lax.bitcast_convert_type(array, bits) & unknown_zero(witness).astype(bits)
    one = lax.bitcast_convert_type(jnp.ones((), dtype), bits)
    return array / lax.bitcast_convert_type(nothing | one, dtype)
