"""In which precision JAX computes: a chain in float64 turns it on for itself, whatever the process has chosen."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np


@contextlib.contextmanager
def precision_of(dtype: Any) -> Iterator[None]:
    """Let JAX compute in float64 while a float64 chain runs, and mix whole and other numbers as it usually does."""
    wide = jax.enable_x64(True) if np.dtype(dtype) == np.float64 else contextlib.nullcontext()
    with wide, jax.numpy_dtype_promotion("standard"):
        yield


def is_x64() -> bool:
    """Return whether JAX computes in float64 where it is asked to: losses are then added up in float64."""
    return bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
