"""A chain in a file, between processes: tensors and text under a checksum, written whole or not at all."""

import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from gradless.engine.precision import precision_of
from gradless.kernels import ALGORITHMS, algorithm_from_json, algorithm_to_json
from gradless.records import DamagedError, NewerFormatError, RunError, json_text, tensor_file
from gradless.types import Algorithm, State

FORMAT = "gradless chain"
FORMAT_VERSION = 1


def saveable(algorithm: Algorithm) -> dict[str, Any]:
    """Return an algorithm as plain values; refuse one that could not be read back."""
    table = algorithm_to_json(algorithm)
    if table["name"] not in ALGORITHMS:
        raise ValueError(f"algorithm must be in gradless.kernels.ALGORITHMS to be saved, got {table['name']!r}")
    try:
        algorithm_from_json(table)
    except ValueError:
        raise ValueError("temperature must be a number or gl.anneal to be saved, got another function") from None
    return table


def named(state: State) -> dict[str, np.ndarray]:
    """Return the state of a chain under the names that `restored` looks for."""
    return {f"state.{name}": np.asarray(leaf) for name, leaf in state._asdict().items()}


def write(path: Path, tensors: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
    """Write arrays and plain values."""
    if not path.name:  # as of "."
        raise RunError(f"{path} cannot be written: it is a folder, give the name of a file")
    text = {"format": FORMAT, "format_version": str(FORMAT_VERSION), "meta": json_text.dumps(meta)}
    try:
        tensor_file.write(path, tensors, text)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}") from error


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the tensors and plain values that `write` wrote; a file that is not whole is refused."""
    try:
        file = tensor_file.read(path)
        version = file.text.get("format_version", "")
        if file.text.get("format") != FORMAT or not re.fullmatch(r"[1-9][0-9]{0,8}", version):
            raise DamagedError("it holds no chain that AskTell.save wrote")
        if int(version) > FORMAT_VERSION:
            raise NewerFormatError(f"{path} has chain format {version}, this gradless reads up to {FORMAT_VERSION}")
        return file.tensors(), json_text.loads(file.text["meta"])
    except (DamagedError, KeyError, ValueError) as error:
        raise DamagedError(f"{path} cannot be read: {error}") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error


def restored(like: State, tensors: dict[str, np.ndarray]) -> State:
    """Return the stored state, checked against one of the same chain."""
    with precision_of(np.float64):
        for name, leaf in like._asdict().items():
            found = tensors.get(f"state.{name}")
            if found is None or found.shape != leaf.shape or found.dtype != leaf.dtype:
                raise DamagedError(f"the file does not fit its own settings: {name} must be {leaf.dtype}{leaf.shape}")
        return like._replace(**{name: jnp.asarray(tensors[f"state.{name}"]) for name in like._fields})
