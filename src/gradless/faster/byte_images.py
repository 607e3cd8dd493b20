"""Images of bytes multiplied with weights as they are, in two thirds of the time.

(b / 255) @ W, with b bytes turned into floating-point numbers, is written as b @ (W / 255): the division is of the few
weights and not of the many pixels, and XLA's product on a CPU then reads the bytes themselves.
"""

import jax.numpy as jnp
from jax.extend.core import JaxprEqn

from gradless.faster.laid import Laid, Scaled
from gradless.jaxprs import Array, bind, dtype_of, shape_of


def is_made_of_bytes(eqn: JaxprEqn) -> bool:
    """Return whether an equation turns an array of bytes into floating-point numbers."""
    if eqn.primitive.name != "convert_element_type" or len(shape_of(eqn.invars[0])) < 2:
        return False
    dtype = dtype_of(eqn.outvars[0])
    # float16 has no room below: small weights divided by 255 would lose digits.
    return dtype_of(eqn.invars[0]) == jnp.uint8 and jnp.issubdtype(dtype, jnp.floating) and dtype != jnp.float16


def bytes_of(eqn: JaxprEqn, inputs: list[Laid]) -> Scaled | None:
    """Return the bytes of which the result of an equation is made, where it is a number times them."""
    name, (one, *others) = eqn.primitive.name, inputs
    if is_made_of_bytes(eqn):
        return Scaled(one.usual)
    if name == "mul" and one.made_of is None:
        one, *others = reversed(inputs)
    if one.made_of is None:
        return None
    if name == "add":
        return _sum_of(one.made_of, others[0].made_of)
    if name == "reshape":
        return one.made_of._replace(array=bind(eqn, [one.made_of.array])[0])
    is_scaling = name in ("mul", "div") and one.made_of.operation is None and others[0].array.ndim == 0
    return Scaled(one.made_of.array, name, others[0].array) if is_scaling else None


def _sum_of(one: Scaled, other: Scaled | None) -> Scaled | None:
    """Return b m + b n as b (m + n), where both are of the same bytes."""
    if other is None or other.array is not one.array or not one.operation == other.operation == "mul":
        return None
    return Scaled(one.array, "mul", one.number + other.number)


def is_product_of_bytes(eqn: JaxprEqn, inputs: list[Laid]) -> bool:
    """Return whether an equation is the product of a large array made of bytes with fewer weights."""
    if eqn.primitive.name != "dot_general" or inputs[0].made_of is None or inputs[1].made_of is not None:
        return False
    return inputs[1].array.size < inputs[0].array.size


def product_of_bytes(eqn: JaxprEqn, samples: Laid, weight: Laid) -> Array:
    """Return the product, with the scale in the weights."""
    array, operation, number = samples.made_of or Scaled(samples.usual)
    scaled = {None: lambda w: w, "mul": lambda w: w * number, "div": lambda w: w / number}[operation](weight.usual)
    return bind(eqn, [array.astype(samples.array.dtype), scaled])[0]
