"""How the cost of a step grows with a workload: the exponent of a power law through three sizes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from gradless.bench.contestants import SessionChain, started
from gradless.bench.timing import Run, Spread, race
from gradless.bench.workloads import Workload, make_workload
from gradless.problems import make_problem


class Law(NamedTuple):
    """What grows, and a workload for each of its sizes."""

    what: str
    sizes: tuple[int, ...]
    make: Callable[[int], Run]


class Growth(NamedTuple):
    """Time per step against size, and the exponent that fits: 1 is proportional."""

    what: str
    sizes: tuple[int, ...]
    seconds: tuple[Spread, ...]
    exponent: float


def measure_growth(law: Law, rounds: int, turn_seconds: float, told: Callable[[str], None]) -> Growth:
    """Time all sizes side by side and fit the exponent to the medians."""
    runs: Mapping[str, Run] = {str(size): law.make(size) for size in law.sizes}
    seconds = race(runs, rounds, turn_seconds, told)
    spreads = tuple(seconds[str(size)] for size in law.sizes)
    return Growth(law.what, law.sizes, spreads, exponent(law.sizes, [spread.median for spread in spreads]))


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return a of the law value = c size^a that fits best, by least squares of the logarithms."""
    slope, _ = np.polyfit(np.log(sizes), np.log(values), 1)
    return float(slope)


def laws(name: str) -> list[Law]:
    """Return what is grown of a workload: the quantity that makes that one dear."""
    return {
        "W1": [Law("data", (6_000, 19_000, 60_000), _first_samples)],
        "W2": [Law("depth", (13, 40, 128), lambda size: _run(_of("step", {"depth": size})))],
        "W3": [Law("chains", (1, 3, 10), _chains)],
        "W6": [Law("parameters", tuple(_parameters(width) for width in WIDTHS), _of_size)],
    }.get(name, [])


WIDTHS = (100, 316, 1000)  # N grows by ten from one to the next


def _parameters(width: int) -> int:
    return width**2 + 4 * width + 1


def _of_size(num_parameters: int) -> Run:
    width = round(math.sqrt(num_parameters + 3)) - 2
    return _run(_of("sine", {"width": width}))


def _of(problem: str, options: dict[str, Any]) -> Workload:
    made = make_problem(problem, options)
    return Workload(problem, problem, made, made.algorithms["amc"])


def _first_samples(size: int) -> Run:
    workload = make_workload("W1")
    data = jax.tree.map(lambda array: array[:size], workload.problem.data)
    return _run(replace(workload, problem=replace(workload.problem, data=data)))


def _chains(number: int) -> Run:
    return SessionChain(started(make_workload("W3"), number))


def _run(workload: Workload) -> Run:
    return SessionChain(started(workload))
