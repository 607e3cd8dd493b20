"""JSON for run records: numpy values as plain ones, and NaN and infinities, which JSON lacks, as three strings.

Text that is one of those strings itself is written with an apostrophe before it, and such text with one more.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_LIKE_A_WORD = re.compile(r"'*(NaN|-?Infinity)")


def dumps(value: Any, indent: int | None = None) -> str:
    """Valid JSON text of a value: NaN becomes "NaN", and the infinities "Infinity" and "-Infinity"."""
    separators = (",", ":") if indent is None else None
    return json.dumps(_plain(value), indent=indent, separators=separators, allow_nan=False)


def dumps_for_others(value: Any) -> str:
    """Valid JSON text of a value for programs that do not know our three strings: null in place of them."""
    return json.dumps(_plain(value, has_words=False), separators=(",", ":"), allow_nan=False)


def loads(text: str | bytes) -> Any:
    """The value of JSON text; the three strings come back as floats. Bad text of any kind is a ValueError."""
    try:
        return _restored(json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _plain(value: Any, has_words: bool = True) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        if not has_words:
            return None
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, str) and has_words and _LIKE_A_WORD.fullmatch(value):
        return f"'{value}"
    if isinstance(value, Mapping):
        return {key: _plain(item, has_words) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, has_words) for item in value]
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, str):
        return value[1:] if value[:1] == "'" and _LIKE_A_WORD.fullmatch(value) else _WORDS.get(value, value)
    if isinstance(value, dict):
        return {key: _restored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_restored(item) for item in value]
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
