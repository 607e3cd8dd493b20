"""Images as the bytes they came from: a quarter of the memory, and of what a step has to read.

Data of float32 that are whole numbers from 0 to 255, or these divided by 255, lose nothing as bytes. They are made
float32 again where a loss asks for them, the same numbers to the last bit; `gradless.faster` then multiplies the bytes
themselves with the weights.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradless.engine.compiling import can_read_bytes
from gradless.faster import multiplies_bytes

DIVISORS = (255, 1)
# 1/255 in two parts. A byte times the first, which has 16 binary digits, is exact, so that the sum with the other
# product is rounded once, as a division is; the compiler makes of a division a product that is off by a digit.
COARSE = (np.float32(1 / 255).view(np.int32) & ~0xFF).view(np.float32)
FINE = np.float32(1 / 255 - float(COARSE))
MIN_SIZE = 2**16  # numbers; fewer stay in the cache as they are
AT_A_TIME = 2**18  # numbers looked at, so that data which are no bytes are left after a few


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Bytes:
    """An array of float32, kept as bytes that stand for themselves divided by `divisor`."""

    array: Any
    divisor: int = field(metadata={"static": True})

    def widened(self) -> jax.Array:
        """Return the array of float32."""
        wide = self.array.astype(jnp.float32)
        return wide if self.divisor == 1 else wide * COARSE + wide * FINE


def read_as_bytes(value: Callable[..., jax.Array], x: Any, data: Any) -> tuple[Any, bool]:
    """Return the data as bytes where value(x, data), a loss, multiplies them with weights; and whether it does.

    Elsewhere, and where a product cannot read bytes, the numbers would have to be written out again at every step.
    """
    if not can_read_bytes():
        return data, False
    made = jax.tree.map(_packed, data)
    are_any = any(leaf.dtype == np.uint8 for leaf in jax.tree.leaves(made))  # ours, or the user's own
    return (made, True) if are_any and multiplies_bytes(value, x, made) else (data, False)


def widened(batch: Any) -> Any:
    """Return a batch as the user gave it, with floating-point numbers for bytes."""
    is_packed = lambda leaf: isinstance(leaf, Bytes)  # noqa: E731
    return jax.tree.map(lambda leaf: leaf.widened() if is_packed(leaf) else leaf, batch, is_leaf=is_packed)


def _packed(array: Any) -> Any:
    if array.dtype != np.float32 or array.ndim < 2 or array.size < MIN_SIZE:
        return array
    made = (_as_bytes(np.asarray(array), divisor) for divisor in DIVISORS)
    return next((one for one in made if one is not None), array)


def _as_bytes(array: np.ndarray, divisor: int) -> Bytes | None:
    flat = np.ascontiguousarray(array).reshape(-1)
    out = np.empty(flat.size, np.uint8)
    meant = np.arange(256, dtype=np.float32) / np.float32(divisor)
    for begin in range(0, flat.size, AT_A_TIME):
        part = flat[begin : begin + AT_A_TIME]
        if not (part.min() >= 0 and part.max() <= meant[-1]):  # not a number is neither
            return None
        out[begin : begin + AT_A_TIME] = np.rint(part * divisor)
        if not np.array_equal(meant[out[begin : begin + AT_A_TIME]].view(np.int32), part.view(np.int32)):
            return None
    return Bytes(out.reshape(array.shape), divisor)
