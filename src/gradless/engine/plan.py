"""How a run is to be made: everything but the algorithm and the problem, as one frozen object."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from gradless.engine.batches import Batches, FullBatch, Minibatch, Progressive
from gradless.settings import Rule, check_one, check_switch

NUM_RECORDS = 1000  # in a trace, unless record_every says otherwise
TIMED_EVERY = 1000  # steps between records, at most, of a run that ends by the clock: nobody knows how far it gets
POSITIVE_TIME = Rule("positive", lambda v: v > 0, may_be_infinite=True)
A_NUMBER = Rule("a number", lambda v: v == v, may_be_infinite=True)
HALF_AT_MOST = Rule("above 0 and at most 0.5", lambda v: (v > 0) & (v <= 0.5))
NUMBERS = {
    "time_budget": POSITIVE_TIME,
    "checkpoint_every": POSITIVE_TIME,
    "target_loss": A_NUMBER,
    "select_fraction": HALF_AT_MOST,
}
MAY_BE_NONE = ("time_budget", "target_loss")  # which then are no limits
MAX_SPECULATE = MAX_CHAINS = 1 << 16
LARGEST = int(np.iinfo(np.int32).max) - 1  # steps are counted in 32 bits inside the loop


@dataclass(frozen=True)
class Plan:
    """The settings of a run that do not belong to its algorithm."""

    steps: int
    batches: Batches = field(default_factory=FullBatch)
    chains: tuple[int, ...] = (0,)  # which chains, by number
    seed: int = 0
    precision: str | None = None  # "float32", "float64", or the parameters' own
    record_every: int | None = None  # steps between records of the trace
    target_loss: float | None = None
    target_metric: str | None = None  # for instance "accuracy >= 0.9"
    time_budget: float | None = None  # seconds
    stop_when_frozen: bool = False
    select_every: int | None = None
    select_fraction: float = 0.25
    checkpoint_every: float = 30.0  # seconds
    speculate: int | str | None = None  # proposals a round, or "auto"; by default one per device of a mesh
    shards: int = 1  # parts of the data, which a mesh spreads over devices

    def __post_init__(self) -> None:
        check_whole("steps", self.steps, least=1, most=LARGEST)
        if not isinstance(self.batches, Batches):
            kinds = "gl.full_batch(), gl.minibatch(size) or gl.progressive(start, error)"
            raise ValueError(f"batches must be made by {kinds}, got {self.batches!r}")
        check_whole("seed", self.seed, least=0, most=2**63 - 1)
        if self.record_every is None:
            most = LARGEST if self.time_budget is None else TIMED_EVERY
            object.__setattr__(self, "record_every", max(1, min(self.steps // NUM_RECORDS, most)))
        check_whole("record_every", self.record_every, least=1, most=LARGEST // 512)
        if self.precision not in (None, "float32", "float64"):
            raise ValueError(f'precision must be "float32" or "float64", got {self.precision!r}')
        for name, rule in NUMBERS.items():
            value = getattr(self, name)
            if value is not None or name not in MAY_BE_NONE:
                object.__setattr__(self, name, check_one(name, value, rule))
        check_switch("stop_when_frozen", self.stop_when_frozen)
        if self.speculate not in (None, "auto"):
            check_whole('speculate (or "auto")', self.speculate, least=1, most=MAX_SPECULATE)
        check_whole("shards", self.shards, least=1, most=LARGEST)
        if self.select_every is not None:
            check_whole("select_every", self.select_every, least=1, most=LARGEST)
        if self.select_every is not None and len(self.chains) < 2:
            raise ValueError("select_every needs at least 2 chains: it copies the best ones over the worst")
        if self.target_metric is not None:
            parse_metric(self.target_metric)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        table = {one.name: getattr(self, one.name) for one in fields(self)}
        return table | {"chains": list(self.chains), "batches": _batches_to_json(self.batches)}

    @classmethod
    def from_json(cls, table: dict[str, Any], error: Callable[..., Any] | None = None) -> "Plan":
        """Return the plan of a stored run; a growing batch needs the problem's error function again."""
        known = {one.name: table[one.name] for one in fields(cls) if one.name in table}
        known |= {"chains": tuple(table["chains"]), "batches": _batches_from_json(table["batches"], error)}
        return cls(**known)


def _batches_to_json(batches: Batches) -> dict[str, Any]:
    table = {one.name: getattr(batches, one.name) for one in fields(batches) if one.name != "error"}
    return {"name": type(batches).__name__.lower(), **table}


def _batches_from_json(table: dict[str, Any], error: Callable[..., Any] | None) -> Batches:
    rest = {name: value for name, value in table.items() if name != "name"}
    kinds: dict[str, Any] = {"fullbatch": FullBatch, "minibatch": Minibatch, "progressive": Progressive}
    if table["name"] == "progressive":
        if error is None:
            raise ValueError("this run has progressive batches: give their error function again")
        rest["error"] = error
    return kinds[table["name"]](**rest)


def check_whole(name: str, value: Any, least: int, most: int) -> None:
    """Refuse what is not a whole number in range."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}")


def chain_numbers(chains: int | Sequence[int]) -> tuple[int, ...]:
    """Return which chains `chains` means: so many from number 0 on, or those of a list."""
    if isinstance(chains, int | np.integer) and not isinstance(chains, bool) and chains >= 1:
        check_whole("chains", chains, least=1, most=MAX_CHAINS)
        return tuple(range(int(chains)))
    numbers = tuple(chains) if isinstance(chains, Sequence | np.ndarray) and not isinstance(chains, str) else ()
    are_whole = all(isinstance(i, int | np.integer) and not isinstance(i, bool) and i >= 0 for i in numbers)
    if not numbers or not are_whole or len(set(numbers)) < len(numbers):
        raise ValueError(f"chains must be a whole number of at least 1, or a list of different ones, got {chains!r}")
    for number in numbers:
        check_whole("chains", number, least=0, most=LARGEST)
    return tuple(int(i) for i in numbers)


def parse_metric(target: str) -> tuple[str, str, float]:
    """Return name, sense and value of a target such as "accuracy >= 0.9"."""
    try:
        found = re.fullmatch(r"\s*([\w.-]+)\s*(>=|<=)\s*([-+.\deE]+)\s*", target)
        return found[1], found[2], float(found[3])  # type: ignore[index]
    except (TypeError, ValueError):
        raise ValueError(f'target_metric must look like "accuracy >= 0.9", got {target!r}') from None
