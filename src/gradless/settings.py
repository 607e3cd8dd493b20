"""Settings: checked where they are given, traced where they are numbers, known to the compiler where they are off."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np

T = TypeVar("T")


def setting(
    default: Any = dataclasses.MISSING,
    *,
    doc: str,
    rule: tuple[str, Callable[[np.ndarray], np.ndarray]] | None = None,
    off: float = float("nan"),
    is_static: bool = False,
) -> Any:
    """Declare one field: its line of documentation, its rule, and the value at which its part is left out."""
    return dataclasses.field(default=default, metadata={"doc": doc, "rule": rule, "off": off, "is_static": is_static})


POSITIVE = ("positive", lambda v: v > 0)
NOT_NEGATIVE = ("zero or positive", lambda v: v >= 0)
FRACTION = ("above 0 and at most 1", lambda v: (v > 0) & (v <= 1))
WITHIN_ONE = ("between -1 and 1", lambda v: np.abs(v) <= 1)
COUNT = ("a whole number of at least 1, or inf", lambda v: (v >= 1) & ((v == np.floor(v)) | np.isinf(v)))


@dataclass_transform(frozen_default=True, field_specifiers=(setting,))
def settings(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass of settings that is also a JAX pytree.

    Numbers are leaves, so that another sigma, or an array with one sigma per chain, runs the same compiled program.
    A number equal to its `off` value (epsilon 0, temperature 0, n_s infinite) is part of the type instead: the
    compiler sees it and leaves that part of the step out.
    """
    cls = dataclasses.dataclass(frozen=True, eq=False)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]

    def flatten(self: Any) -> tuple[list[Any], tuple[tuple[str, Any], ...]]:
        values = [(field, getattr(self, field.name)) for field in fields]
        leaves = [value for field, value in values if not _is_static(field, value)]
        known = tuple((field.name, value if _is_static(field, value) else _Traced) for field, value in values)
        return leaves, known

    def unflatten(known: tuple[tuple[str, Any], ...], leaves: list[Any]) -> Any:
        remaining = iter(leaves)
        self = object.__new__(cls)
        for name, value in known:
            object.__setattr__(self, name, next(remaining) if value is _Traced else value)
        return self

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    return cls


def is_off(value: Any, off: float = 0.0) -> bool:
    """Return whether a setting is a plain number at its `off` value, for every chain and known to the compiler."""
    return isinstance(value, int | float) and value == off


class _Traced:
    """Stands in the static part of a flattened object for a value that is a leaf."""


def _is_static(field: dataclasses.Field, value: Any) -> bool:
    if field.metadata["is_static"] or value is None:
        return True
    if isinstance(value, int | float):
        return is_off(value, field.metadata["off"])
    return callable(value) and jax.tree.leaves(value) == [value]


def check_settings(owner: Any) -> None:
    """Refuse a wrong value where it is given, with its name, the rule and the value."""
    for field in dataclasses.fields(owner):
        value = getattr(owner, field.name)
        if field.metadata["rule"] is not None and value is not None and not callable(value):
            check(field.name, value, field.metadata["rule"])


def check(name: str, value: Any, rule: tuple[str, Callable[[np.ndarray], np.ndarray]]) -> None:
    """Raise ValueError unless every number in `value` obeys `rule`."""
    words, is_allowed = rule
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be {words}, got {value!r}") from None
    with np.errstate(invalid="ignore"):
        wrong = numbers[~(is_allowed(numbers) & ~np.isnan(numbers))]
    if wrong.size or numbers.size == 0 or isinstance(value, bool):
        shown = value if wrong.size == 0 or numbers.ndim == 0 else float(wrong.flat[0])
        raise ValueError(f"{name} must be {words}, got {shown}")


def as_json(owner: Any) -> dict[str, Any]:
    """Return the settings as plain values for settings.json; infinity becomes the string "inf"."""
    return {field.name: _plain(getattr(owner, field.name)) for field in dataclasses.fields(owner)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"name": getattr(value, "name", type(value).__name__), **as_json(value)}
    if isinstance(value, np.ndarray | jax.Array):
        return _plain(np.asarray(value).tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if callable(value):
        return f"{getattr(value, '__module__', '?')}:{getattr(value, '__qualname__', type(value).__name__)}"
    return value
