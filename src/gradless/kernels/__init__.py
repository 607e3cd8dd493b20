"""The algorithms, each a frozen set of settings with pure functions, and the table of all of them."""

from typing import Any

import numpy as np

from gradless.kernels.amc import AMC
from gradless.kernels.annealing import Anneal
from gradless.kernels.gradient import Adam, GradientDescent
from gradless.kernels.metropolis import Metropolis
from gradless.settings import as_json
from gradless.types import Algorithm

ALGORITHMS: dict[str, Any] = {kernel.name: kernel for kernel in (Metropolis, AMC, GradientDescent, Adam)}


def algorithm_to_json(algorithm: Algorithm) -> dict[str, Any]:
    """Return an algorithm as plain values for settings.json."""
    return {"name": algorithm.name, **as_json(algorithm)}


def algorithm_from_json(table: dict[str, Any]) -> Algorithm:
    """Return the algorithm that settings.json names."""
    fields = {name: _value(name, value) for name, value in table.items() if name != "name"}
    try:
        return ALGORITHMS[table["name"]](**fields)
    except (KeyError, TypeError) as error:
        raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)} with its settings, got {table}") from error


def _value(name: str, value: Any) -> Any:
    if isinstance(value, dict) and value.get("name") == Anneal.name:
        return Anneal(**{key: _value(key, item) for key, item in value.items() if key != "name"})
    if isinstance(value, list):
        return np.asarray([float(item) for item in value])
    if value == "inf":
        return float("inf")
    if isinstance(value, str):
        raise ValueError(f"{name} was {value}, a function that cannot be read back: give the algorithm again")
    return value


__all__ = ["ALGORITHMS", "AMC", "Adam", "Anneal", "GradientDescent", "Metropolis"]
