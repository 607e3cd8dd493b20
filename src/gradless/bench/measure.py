"""All that `gradless bench` measures of a workload, as plain values for a table or a file."""

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradless.bench.contestants import Contestant
from gradless.bench.growth import Growth, Law, measure_growth
from gradless.bench.memory import Held, held_by_case, peak_megabytes
from gradless.bench.roofline import Machine, work_per_step
from gradless.bench.split import Split, parts, split
from gradless.bench.timing import Spread, race
from gradless.bench.work import Operations
from gradless.bench.workloads import Workload
from gradless.machine import num_cores, version_of

OURS = "gradless"
PACKAGES = ("gradless", "jax", "jaxlib", "numpy", "torch")
Told = Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    """What was found of one workload."""

    name: str
    title: str
    num_parameters: int
    seconds: dict[str, Spread]  # per step, of each contestant
    absent: dict[str, str]  # why a contestant did not take part
    split: Split
    work: Operations  # of a step
    roofline: float  # the least time of a step's losses over the time of the step
    megabytes: float  # peak of a process that makes a few steps
    held: dict[str, Held] = field(default_factory=dict)
    growth: list[Growth] = field(default_factory=list)

    def ratio(self, reference: str) -> Spread | None:
        """Return our time over that of another contestant, if it took part."""
        return self.seconds[OURS].over(self.seconds[reference]) if reference in self.seconds else None

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "workload": self.name,
            "title": self.title,
            "parameters": self.num_parameters,
            "steps_per_second": 1 / self.seconds[OURS].median,
            "seconds_per_step": {name: spread.to_json() for name, spread in self.seconds.items()},
            "ratio_to": {
                name: self.seconds[OURS].over(spread).to_json() for name, spread in self.seconds.items() if name != OURS
            },
            "absent": self.absent,
            "split": {**self.split._asdict(), "rest": self.split.rest},
            "work_per_step": self.work._asdict(),
            "share_of_roofline": self.roofline,
            "peak_megabytes": self.megabytes,
            "held_in_parameter_vectors": {name: case._asdict() for name, case in self.held.items()},
            "growth": [
                {
                    "of": growth.what,
                    "sizes": list(growth.sizes),
                    "seconds_per_step": [spread.to_json() for spread in growth.seconds],
                    "exponent": growth.exponent,
                }
                for growth in self.growth
            ],
        }


def measure(
    make: Callable[[str], Workload],
    name: str,
    contestants: Sequence[Contestant],
    machine: Machine,
    rounds: int,
    turn_seconds: float,
    laws: Sequence[Law] = (),
    told: Told = lambda words: None,
) -> Measured:
    """Measure workload `make(name)`: everybody's step in one interleaved run, then what ours is made of."""
    told("compiling")
    workload = make(name)
    runs, absent = dict(parts(workload)), {}
    for contestant in contestants:
        if contestant.name in runs:
            continue
        told(f"{contestant.name}: compiling")
        if (install := contestant.missing()) is not None:
            absent[contestant.name] = f"not installed: {install}"
            continue
        try:
            runs[contestant.name] = contestant.prepare(workload)
        except NotImplementedError as error:
            absent[contestant.name] = str(error) or "not for this workload"
    seconds = race(runs, rounds, turn_seconds, told)
    of_step, work = split(seconds), work_per_step(workload)
    told("peak memory")
    megabytes = peak_megabytes(make, name)
    return Measured(
        name,
        workload.title,
        workload.num_parameters,
        {who: spread for who, spread in seconds.items() if who not in ("noise", "loss")},
        absent,
        of_step,
        work,
        machine.seconds(work) / of_step.total,
        megabytes,
        held_by_case(workload) if name == "W5" else {},
        [measure_growth(law, rounds, turn_seconds / 2, told) for law in laws],
    )


def machine_facts() -> dict[str, Any]:
    """Return what must be known of a machine to read its numbers."""
    return {
        "cpu": _cpu_model(),
        "cores": num_cores(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        **{package: version_of(package) for package in PACKAGES},
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
