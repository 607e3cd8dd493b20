"""Metrics that only Python can call, and what becomes of their exceptions.

Fits with the same metric share its compiled program, also at the same time in several threads, and JAX calls the
metric on threads of its own. So every fit has a number, which travels with its data into each call.
"""

from functools import lru_cache, partial
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradless.engine.flat import ByIdentity
from gradless.engine.session import Listener, Session
from gradless.sklearn.losses import Metric, as_number

NUMBERS = count()  # of the fits of this process


class HostMetric:
    """A metric that JAX cannot compile, called in Python at every step.

    JAX calls it on a thread of its own, where float64 may be switched off and would be cut to float32. Bits are left
    alone there, so numbers travel as bits. An exception cannot travel at all: it is kept here, and the value is NaN.
    """

    def __init__(self, metric: Metric):
        self.metric = metric
        self.troubles: dict[int, Exception] = {}  # by fit, the first that was raised in it

    def __call__(self, fit: jax.Array, y: jax.Array, predicted: jax.Array, **weight: jax.Array) -> jax.Array:
        arrays = {"y": y, "predicted": predicted, **weight}
        dtype = np.dtype(predicted.dtype)
        # What tells a program from others sees into a partial and its tuple: the next tracing is the same program.
        call = partial(self._call, tuple((name, str(array.dtype)) for name, array in arrays.items()))
        bits = {name: _bits(array) for name, array in arrays.items()}
        value = jax.pure_callback(call, jax.ShapeDtypeStruct((dtype.itemsize // 4,), jnp.uint32), fit[0], bits)
        return jax.lax.bitcast_convert_type(value if dtype.itemsize == 8 else value[0], dtype)

    def _call(self, dtypes: tuple[tuple[str, str], ...], fit: Any, bits: dict[str, Any]) -> np.ndarray:
        # Copies, for a metric may write into its arrays.
        numbers = {name: np.array(bits[name]).view(dtype)[..., 0] for name, dtype in dtypes}
        return np.asarray([self._value(int(fit), **numbers)], dict(dtypes)["predicted"]).view(np.uint32)

    def _value(self, fit: int, y: np.ndarray, predicted: np.ndarray, **weight: np.ndarray) -> float:
        try:
            return np.nan if fit in self.troubles else as_number(self.metric(y, predicted, **weight))
        except Exception as error:
            self.troubles.setdefault(fit, error)
            return np.nan


@lru_cache(maxsize=64)
def host_metric(metric: ByIdentity) -> HostMetric:
    """Return the same wrapper for the same metric, so that its compiled program serves the next fit too."""
    return HostMetric(metric.held)


def _bits(array: jax.Array) -> jax.Array:
    """Return the bits of each number, 32 by 32 along a new last axis."""
    bits = jax.lax.bitcast_convert_type(array, jnp.uint32)
    return bits if bits.ndim > array.ndim else bits[..., None]


class Troubles(Listener):
    """Ends a fit with the exception that its metric has raised in it: between chunks, or as the fit ends."""

    def __init__(self) -> None:
        self.fit = next(NUMBERS)
        self.metric: HostMetric | None = None

    def follow(self, metric: HostMetric, data: dict[str, Any]) -> dict[str, Any]:
        """Return the data with the number of the fit, for each sample since data have one leading axis."""
        self.metric = metric
        return {**data, "fit": np.full(len(data["x"]), self.fit, np.int32)}

    def chunk_done(self, session: Session, rows: list[dict[str, Any]], flags: np.ndarray) -> None:
        """Raise what the metric has raised."""
        self.check()

    def check(self) -> None:
        """Raise what the metric has raised, if it has."""
        if self.metric and self.fit in self.metric.troubles:
            raise self.metric.troubles[self.fit]

    def __enter__(self) -> "Troubles":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Raise it even if the fit has come to its end, or failed over the NaN; and keep nothing of it."""
        trouble = self.metric.troubles.pop(self.fit, None) if self.metric else None
        is_of_another_kind = error is not None and not isinstance(error, Exception)  # the fit is interrupted
        if trouble is not None and trouble is not error and not is_of_another_kind:
            raise trouble
