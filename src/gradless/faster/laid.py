"""An array on its way through a program, with what is known of it."""

from typing import NamedTuple

import jax.numpy as jnp

from gradless.jaxprs import Array


class Scaled(NamedTuple):
    """Bytes that a program has turned into floating-point numbers, and then multiplied or divided by one number."""

    array: Array  # of uint8
    operation: str | None = None  # "mul" or "div"
    number: Array = None


class Laid(NamedTuple):
    """An array, whether its last axis lies first in memory, and how it was made."""

    array: Array
    is_first: bool = False
    made_of: Scaled | None = None  # the bytes it was made of
    work: int = 0  # operations to compute one of its numbers again from what is in memory

    @property
    def usual(self) -> Array:
        """The array in the layout that the program means."""
        return jnp.moveaxis(self.array, 0, -1) if self.is_first else self.array

    @property
    def first(self) -> Array:
        """The array with its last axis first."""
        return self.array if self.is_first or self.array.ndim < 2 else jnp.moveaxis(self.array, -1, 0)
