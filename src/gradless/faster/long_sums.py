"""Products that sum over very many samples, as the gradient of a first layer does, as the sum of a few shorter ones.

X.T @ g with X of shape (60,000, 784) takes XLA on a CPU twice as long in one piece as in four, and twice the work.
"""

from jax import lax
from jax.extend.core import JaxprEqn

from gradless.jaxprs import Array, are_floating, shape_of

PARTS = 4
MIN_ROWS = 8_000  # samples
MIN_WIDTH = 512  # inputs; the product for narrower ones is as fast in one piece


def is_long_sum(eqn: JaxprEqn) -> bool:
    """Return whether an equation is such a product: (samples, fan_out) with (samples, fan_in), over the samples."""
    if eqn.primitive.name != "dot_general" or eqn.params["dimension_numbers"] != (((0,), (0,)), ((), ())):
        return False
    if not are_floating(eqn):  # the sum of the parts would be of another type
        return False
    shapes = [shape_of(atom) for atom in eqn.invars]
    rows = shapes[0][0]
    is_large = all(len(shape) == 2 for shape in shapes) and rows >= MIN_ROWS and shapes[1][1] >= MIN_WIDTH
    return is_large and rows % PARTS == 0


def summed_in_parts(eqn: JaxprEqn, left: Array, right: Array) -> Array:
    """Return the product, from those of four equal parts of the samples."""
    left, right = (array.reshape(PARTS, -1, array.shape[1]) for array in (left, right))
    options = {name: eqn.params[name] for name in ("precision", "preferred_element_type")}
    return lax.dot_general(left, right, (((1,), (1,)), ((0,), (0,))), **options).sum(axis=0)
