"""Settings: checked where they are given, traced where they are numbers, known to the compiler where they are off."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, dataclass_transform

import jax
import numpy as np

T = TypeVar("T")
Number = Any  # a number, or an array with one for each chain


class Rule(NamedTuple):
    """What a number must be, in words and as a test."""

    words: str
    is_allowed: Callable[[np.ndarray], np.ndarray]
    may_be_infinite: bool = False


def setting(
    default: Any = dataclasses.MISSING,
    *,
    doc: str,
    rule: Rule | None = None,
    off: float = float("nan"),
    is_static: bool = False,
    may_be_function: bool = False,
) -> Any:
    """Declare one field: its line of documentation, its rule, and the value at which its part is left out."""
    metadata = {"doc": doc, "rule": rule, "off": off, "is_static": is_static, "may_be_function": may_be_function}
    return dataclasses.field(default=default, metadata=metadata)


POSITIVE = Rule("positive", lambda v: v > 0)
NOT_NEGATIVE = Rule("zero or positive", lambda v: v >= 0)
FRACTION = Rule("above 0 and at most 1", lambda v: (v > 0) & (v <= 1))
WITHIN_ONE = Rule("between -1 and 1", lambda v: np.abs(v) <= 1)
BELOW_ONE = Rule("at least 0 and below 1", lambda v: (v >= 0) & (v < 1))
COUNT = Rule("a whole number of at least 1, or inf", lambda v: (v >= 1) & (v == np.floor(v)), may_be_infinite=True)


@dataclass_transform(frozen_default=True, field_specifiers=(setting,))
def settings(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass of settings that is also a JAX pytree.

    Numbers are leaves, so that another sigma, or an array with one sigma per chain, runs the same compiled program.
    The docstring ends with the fields' own lines of documentation, for `help`.
    A number equal to its `off` value (epsilon 0, temperature 0, n_s infinite) is part of the type instead: the
    compiler sees it and leaves that part of the step out.
    """
    cls = dataclasses.dataclass(frozen=True, eq=False)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    cls.__doc__ = "\n".join([cls.__doc__ or "", "", *(f"{field.name}: {field.metadata['doc']}." for field in fields)])

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


def is_one_per_chain(value: Any) -> bool:
    """Return whether a setting is a list of numbers, one for each chain, which JAX would take for several settings."""
    return isinstance(value, list | tuple)


def is_function(value: Any) -> bool:
    """Return whether a value is a plain function, its own only leaf; a callable pytree, which holds others, is not."""
    return callable(value) and [id(leaf) for leaf in jax.tree.leaves(value)] == [id(value)]  # arrays have no plain ==


class _Traced:
    """Stands in the static part of a flattened object for a value that is a leaf."""


def _is_static(field: dataclasses.Field, value: Any) -> bool:
    if field.metadata["is_static"] or value is None:
        return True
    if isinstance(value, int | float):
        return is_off(value, field.metadata["off"])
    return is_function(value)


def check_settings(owner: Any) -> None:
    """Refuse a wrong value where it is given, with its name, the rule and the value."""
    for field in dataclasses.fields(owner):
        value, rule = getattr(owner, field.name), field.metadata["rule"]
        is_left_open = value is None and field.default is None
        is_allowed_function = callable(value) and field.metadata["may_be_function"]
        if rule is not None and not is_left_open and not is_allowed_function:
            check(field.name, value, rule)


def check(name: str, value: Any, rule: Rule) -> None:
    """Raise ValueError unless every number in `value` obeys `rule`."""
    words, numbers = rule.words, _real_numbers(value)
    if numbers is None or numbers.size == 0:
        raise ValueError(f"{name} must be {words}, got {value!r}")
    with np.errstate(invalid="ignore"):
        is_right = rule.is_allowed(numbers) & ~np.isnan(numbers)
    if rule.may_be_infinite is False and (is_right & np.isinf(numbers)).any():
        words, is_right = f"{words} and finite", is_right & np.isfinite(numbers)
    if not is_right.all():
        shown = value if numbers.ndim == 0 else float(numbers[~is_right].flat[0])
        raise ValueError(f"{name} must be {words}, got {shown}")


def _real_numbers(value: Any) -> np.ndarray | None:
    """Return what is given as numbers; truth values, complex numbers and text, which NumPy would convert, are none."""
    try:
        given = np.asarray(value)
        return None if value is None or given.dtype.kind in "bcSU" else given.astype(np.float64)
    except (TypeError, ValueError):
        return None


def check_one(name: str, value: Any, rule: Rule) -> float:
    """Return a number that obeys `rule` as a plain one; refuse several."""
    check(name, value, rule)
    if np.ndim(value):
        raise ValueError(f"{name} must be one number, got shape {np.shape(value)}")
    return float(value)


def check_switch(name: str, value: Any) -> None:
    """Refuse what is neither True nor False: "no" would count as True."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")


def checked_by_path(name: str, value: Any) -> bool | dict[str, Any]:
    """Return a switch, or positive numbers by path as plain ones: arrays are not compared, nor stored, as settings."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f'{name} must be True, False or a dict {{"path": value}}, got {value!r}')
    for path, given in value.items():
        check(f'{name}["{path}"]', given, POSITIVE)
    return {path: np.asarray(given).tolist() for path, given in value.items()}


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
