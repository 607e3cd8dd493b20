"""The fan-in sum of squares of each product with a weight, averaged over data and positions.

Paper: Sec. III B, Eq. (17), the bracket: mean over data of the sum over the neuron's inputs of S_i^2.
"""

from collections import defaultdict
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn

from gradless.jaxprs import Array, Shape, shape_of
from gradless.signal_norm.links import Link, Links, pull_back

# XLA on a CPU adds up to 32 rows in one vectorised kernel, and more rows by a slower tree of kernels. Blocks of 32 rows
# of 1,000 numbers stay in the cache. (MNIST's net: 4% of a step; one plain sum per layer at depth 128: 45%.)
MAX_ROWS, MAX_COLUMNS = 32, 1024
FOLDS = 8  # a vector of samples is added up so far at once: less to write and to read again
NARROW = 8  # so few inputs are added up sample by sample, which every layout of them allows


def square(x: Array) -> Array:
    """|x|^2 in float32 or wider, whatever the precision of the activations."""
    x = jnp.abs(x) if jnp.iscomplexobj(x) else x
    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return x * x


def largest_divisor(size: int, limit: int) -> int:
    """The largest divisor of `size` up to `limit`."""
    return next((k for k in range(limit, 1, -1) if size % k == 0), 1)


def partial_sums(squares: Array) -> Array:
    """A vector with the same sum as the whole array, from one pass over it in the order of memory."""
    if squares.ndim > 1 and squares.shape[-1] <= NARROW:
        sums = squares.sum(axis=-1).ravel()
        return sums.reshape(largest_divisor(sums.size, FOLDS), -1).sum(axis=0)
    num_rows = largest_divisor(squares.size, MAX_ROWS)
    num_columns = largest_divisor(squares.size // num_rows, MAX_COLUMNS)
    return squares.reshape(-1, num_rows, num_columns).sum(axis=1).ravel()


class Use:
    """One product of a weight with its inputs: the sum of squares that its pre-activation receives.

    `own` comes from this product's inputs, `extras` from others that are added to the same pre-activation.
    """

    def __init__(self, shape: Shape, scale: float, parts: Array = None, own: Array = None) -> None:
        self.shape, self.scale, self.parts, self._own = shape, scale, parts, own
        self.extras: list[Array] = []
        self.targets: list[tuple[Any, Links]] = []  # (sink, links from it to this product's output)

    def own(self) -> Array:
        if self._own is None:
            self.set_own(jnp.sum(self.parts) * self.scale)
        return self._own

    def set_own(self, mean: Array) -> None:
        self._own = mean.reshape((1,) * len(self.shape))

    def is_open(self) -> bool:
        return self._own is None

    def gain(self, amount: Array, links: Links) -> None:
        """Add the sum of squares of another product that joins this pre-activation at the end of `links`."""
        self.extras.append(pull_back(links, amount))

    def total(self) -> Array:
        return sum(self.extras, start=self.own())


def add_up(uses: list[Use]) -> None:
    """Finish all partial sums together: one reduction per shape instead of one per layer."""
    groups: dict[Any, list[Use]] = defaultdict(list)
    for use in uses:
        if use.is_open():
            groups[use.parts.shape, use.parts.dtype].append(use)
    for group in groups.values():
        totals = jnp.stack([use.parts for use in group]).sum(axis=1)
        means = totals * np.array([use.scale for use in group], totals.dtype)
        for use, mean in zip(group, jnp.unstack(means), strict=True):
            use.set_own(mean)


def dot_use(eqn: JaxprEqn, side: int, inputs: Array) -> Use:
    """The use made by `dot_general` of the weight on `side`; `inputs` is its other operand."""
    contracting, batch = (dims[1 - side] for dims in eqn.params["dimension_numbers"])
    shape = shape_of(eqn.outvars[0])
    kept = [inputs.shape[axis] for axis in batch]
    num_vectors = prod(inputs.shape) // max(1, prod(inputs.shape[axis] for axis in (*contracting, *batch)))
    scale = 1.0 / max(1, num_vectors)
    if not batch:
        return Use(shape, scale, parts=partial_sums(square(inputs)))
    rest = tuple(axis for axis in range(inputs.ndim) if axis not in batch)
    sums = square(inputs).sum(axis=rest).transpose(np.argsort(np.argsort(batch)))
    return Use(shape, scale, own=scale * sums.reshape(kept + [1] * (len(shape) - len(kept))))


def dot_link(eqn: JaxprEqn, side: int) -> Link:
    """From the weight of a `dot_general` to its output: axes of the weight that the output keeps."""
    contracting, batch = (dims[side] for dims in eqn.params["dimension_numbers"])
    rank, rank_out = len(shape_of(eqn.invars[side])), len(shape_of(eqn.outvars[0]))
    free = [axis for axis in range(rank) if axis not in contracting and axis not in batch]
    first = len(batch) if side == 0 else rank_out - len(free)
    kept = [*range(len(batch)), *range(first, first + len(free))]
    order = [*batch, *free, *contracting]

    def pull(s: Array) -> Array:
        s = s.mean(axis=tuple(a for a in range(rank_out) if a not in kept), keepdims=True)
        s = s.reshape([s.shape[a] for a in kept] + [1] * len(contracting))
        return s.transpose(np.argsort(order))

    return Link(pull)


def conv_use(eqn: JaxprEqn, inputs: Array) -> Use:
    """The use made by `conv_general_dilated` of its kernel: the mean receptive-field sum of squares, per group."""
    params, spec, shape = eqn.params, eqn.params["dimension_numbers"], shape_of(eqn.outvars[0])
    groups, kernel = params["feature_group_count"], shape_of(eqn.invars[1])
    squares = square(inputs).transpose(spec.lhs_spec)
    num_images, _, *image = squares.shape
    squares = squares.reshape(num_images, groups, -1, *image).sum(axis=(0, 2))[None]
    window = jnp.ones((groups, 1, *(kernel[axis] for axis in spec.rhs_spec[2:])), squares.dtype)
    fields = lax.conv_general_dilated(
        squares,
        window,
        params["window_strides"],
        params["padding"],
        params["lhs_dilation"],
        params["rhs_dilation"],
        feature_group_count=groups,
        precision=lax.Precision.HIGHEST,
    )
    num_positions = max(1, num_images * prod(fields.shape[2:]))
    sums = fields.sum(axis=(0, *range(2, fields.ndim))) / num_positions
    compact = [1] * len(shape)
    if groups > 1:
        feature = spec.out_spec[1]
        compact[feature] = shape[feature]
        sums = jnp.repeat(sums, shape[feature] // groups)
    return Use(shape, 1.0, own=sums.reshape(compact))


def conv_link(eqn: JaxprEqn) -> Link:
    """From the kernel of a convolution to its output: only the output features are kept."""
    spec = eqn.params["dimension_numbers"]
    feature_out, feature_kernel = spec.out_spec[1], spec.rhs_spec[0]
    rank, rank_out = len(shape_of(eqn.invars[1])), len(shape_of(eqn.outvars[0]))

    def pull(s: Array) -> Array:
        s = s.mean(axis=tuple(a for a in range(rank_out) if a != feature_out))
        return s.reshape([s.size if a == feature_kernel else 1 for a in range(rank)])

    return Link(pull)
