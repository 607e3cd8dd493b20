"""What a user gives to a chain, checked where it is given."""

import dataclasses
from typing import Any

import jax
import numpy as np

from gradless.engine.checks import check_temperature

Bounds = tuple[np.ndarray, np.ndarray]


def check_algorithm(algorithm: Any) -> str:
    """Refuse what is no Metropolis kernel, or needs more of the loss than its value.

    Return the fingerprint of its temperature if that is a function.
    """
    if not dataclasses.is_dataclass(algorithm) or isinstance(algorithm, type) or not hasattr(algorithm, "step"):
        raise ValueError(f"algorithm must be made by gl.amc or gl.metropolis, got {algorithm!r}")
    if not hasattr(algorithm, "decide"):
        name = getattr(algorithm, "name", type(algorithm).__name__)
        raise ValueError(f"algorithm must be gl.amc or gl.metropolis: {name} needs gradients of the loss")
    if getattr(algorithm, "signal_norm", False) is not False:
        raise ValueError("signal_norm must be off: it needs to see into the loss, which is evaluated outside")
    for field in dataclasses.fields(algorithm):
        leaves = jax.tree.leaves(getattr(algorithm, field.name), is_leaf=lambda leaf: isinstance(leaf, list | tuple))
        if any(np.ndim(leaf) for leaf in leaves):
            raise ValueError(f"{field.name} must be one number, got an array: there is one chain here")
    temperature: Any = getattr(algorithm, "temperature", None)
    return check_temperature(temperature) if callable(temperature) else ""


def as_point(x0: Any) -> np.ndarray:
    """Return x0 as an array of its own: floating point as it is, whole numbers and Python floats in float64."""
    try:
        x = np.array(x0)
        is_ours = jax.numpy.issubdtype(x.dtype, jax.numpy.floating) and x.itemsize <= 8  # JAX has no long double
        x = x if is_ours else x.astype(np.float64, casting="same_kind" if x.dtype.kind == "f" else "safe")
    except (TypeError, ValueError):
        raise ValueError(f"x0 must be an array of real numbers, got {_shown(x0)}") from None
    if x.size == 0 or not np.isfinite(x).all():
        raise ValueError(f"x0 must hold at least one number and only finite ones, got {_shown(x0)}")
    return x


def as_loss(loss: Any) -> float:
    """Return a told loss as a number; None stands for an evaluation that gave nothing."""
    if loss is None:
        return float("nan")
    try:
        number = np.asarray(loss)
        if number.dtype.kind not in "SUc":  # text that looks like a number is none
            return float(number.reshape(()))
    except OverflowError:  # a whole number beyond all floats
        return float("inf") if loss > 0 else -float("inf")
    except (TypeError, ValueError, RuntimeError):  # PyTorch's, of a tensor that requires a gradient
        pass
    raise TypeError(f"a loss must be one real number or None, got {_shown(loss)}")


def as_bounds(bounds: Any, x0: np.ndarray) -> Bounds | None:
    """Return (low, high) in the shape of x0, of (low, high), a scipy Bounds object, or a pair for each number."""
    if bounds is None:
        return None
    try:
        low, high = (bounds.lb, bounds.ub) if hasattr(bounds, "lb") else _low_and_high(bounds, x0)
        low, high = (np.broadcast_to(np.asarray(one, x0.dtype), x0.shape).copy() for one in (low, high))
    except (TypeError, ValueError):
        words = f"(low, high), or a pair for each of the {x0.size} numbers of x0"
        raise ValueError(f"bounds must be {words}, got {_shown(bounds)}") from None
    if not (low <= high).all():
        raise ValueError(f"bounds must have low <= high, got {_first(low, high, ~(low <= high))}")
    if not ((low <= x0) & (x0 <= high)).all():
        place = int(np.argmin(((low <= x0) & (x0 <= high)).ravel()))
        wrong = f"{x0.ravel()[place]} outside of [{low.ravel()[place]}, {high.ravel()[place]}]"
        raise ValueError(f"x0 must lie within the bounds, got {wrong} at place {place}")
    return low, high


def _low_and_high(bounds: Any, x0: np.ndarray) -> tuple[Any, Any]:
    """Return what is given as (low, high), of two arrays too where there are two numbers, or as a pair for each."""
    if isinstance(bounds, tuple) and all(isinstance(one, np.ndarray | jax.Array) for one in bounds):
        low, high = bounds
        return low, high
    pairs = [tuple(pair) if np.ndim(pair) == 1 else pair for pair in bounds]
    if len(pairs) == x0.size and all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        low = [-np.inf if pair[0] is None else pair[0] for pair in pairs]
        high = [np.inf if pair[1] is None else pair[1] for pair in pairs]
        return np.reshape(low, x0.shape), np.reshape(high, x0.shape)
    low, high = bounds
    return -np.inf if low is None else low, np.inf if high is None else high


def _first(low: np.ndarray, high: np.ndarray, is_wrong: np.ndarray) -> str:
    place = int(np.argmax(is_wrong.ravel()))
    return f"({low.ravel()[place]}, {high.ravel()[place]}) at place {place}"


def _shown(value: Any) -> str:
    words = " ".join(repr(value).split())
    return words if len(words) <= 80 else f"{words[:77]}..."
