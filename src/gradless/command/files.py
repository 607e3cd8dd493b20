"""The files between us and the program: parameters as text, JSON or npy, and a result as a number or JSON."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

SUFFIXES = {"text": ".txt", "json": ".json", "npy": ".npy"}
MOST_BYTES = 1 << 20  # of a result that are read, from its end


def params_bytes(x: np.ndarray, form: str) -> bytes:
    """Return parameters as a file holds them; every digit is kept."""
    if form == "json":
        return (json.dumps(x.tolist()) + "\n").encode()
    if form == "text":
        return "".join(f"{value!r}\n" for value in x.ravel().tolist()).encode()
    file = io.BytesIO()
    np.save(file, x, allow_pickle=False)
    return file.getvalue()


def read_params(path: Path) -> tuple[np.ndarray, str]:
    """Return the parameters of a file and its format, known by the suffix; text if it is none of ours."""
    form = next((form for form, suffix in SUFFIXES.items() if path.suffix == suffix), "text")
    try:
        if form == "npy":
            with path.open("rb") as file:
                return np.asarray(np.load(file, allow_pickle=False), np.float64), form
        text = path.read_text()
        return np.asarray(json.loads(text) if form == "json" else text.split(), np.float64), form
    except OSError as error:
        raise ValueError(f"x0 must be a file of numbers: {path}: {error.strerror}") from error
    except (ValueError, TypeError, EOFError, RecursionError, zipfile.BadZipFile) as error:
        raise ValueError(f"x0 must be a file of numbers, as {form}: {path}: {error}") from error


def read_end(path: Path) -> str:
    """Return the text of a file, of a very long one the end; an absent one is empty."""
    try:
        with path.open("rb") as file:
            file.seek(0, io.SEEK_END)
            file.seek(max(0, file.tell() - MOST_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def parse_loss(text: str, key: str) -> float:
    """Return the loss in what a program gave: a number, or JSON with the loss under `key`; else its last line is that.

    A ValueError says in a few words what is wrong. NaN and infinity are numbers that a program may give.
    """
    if not text.strip():
        raise ValueError("it gave no result")
    try:
        return _number(_value(text), key)
    except json.JSONDecodeError:
        last = text.strip().splitlines()[-1]
    try:
        return _number(_value(last), key)
    except json.JSONDecodeError:
        raise ValueError(f"its result is not a number: {last.strip()[:80]!r}") from None


def _value(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return json.loads(text)
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", "", 0) from None


def _number(value: Any, key: str) -> float:
    if isinstance(value, dict):
        if key not in value:
            raise ValueError(f"its result has no {key!r}")
        value = value[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"its result is not a number: {str(value)[:80]!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("its result is a number too large for floating point") from None
