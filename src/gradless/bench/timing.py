"""How the benchmarks measure: contestants take turns within one run, and medians are compared as ratios.

Machines are noisy; a ratio of two things measured side by side is not.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Run = Callable[[int], None]  # makes so many steps
MAX_STEPS = 1 << 28  # in a turn: counted in 32 bits


@dataclass(frozen=True)
class Spread:
    """A quantity measured in several rounds."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle of the rounds."""
        return statistics.median(self.rounds)

    @property
    def low(self) -> float:
        """The lowest of the rounds."""
        return min(self.rounds)

    @property
    def high(self) -> float:
        """The highest of the rounds."""
        return max(self.rounds)

    def over(self, reference: "Spread") -> "Spread":
        """Return the ratios to `reference`, round by round: what slows both in a round does not change it."""
        return Spread(tuple(mine / other for mine, other in zip(self.rounds, reference.rounds, strict=True)))

    def to_json(self) -> dict[str, object]:
        """Return median, lowest, highest and all rounds as plain values."""
        return {"median": self.median, "low": self.low, "high": self.high, "rounds": list(self.rounds)}


def race(
    contestants: Mapping[str, Run],
    rounds: int,
    turn_seconds: float,
    told: Callable[[str], None] = lambda words: None,
) -> dict[str, Spread]:
    """Return each contestant's seconds per step, one number for each round; a turn lasts about `turn_seconds`."""
    steps = {}
    for name, run in contestants.items():
        told(f"{name}: warming up")
        steps[name] = steps_for(run, turn_seconds)
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds):
        told(f"round {number + 1} of {rounds}")
        for name, run in contestants.items():
            seconds[name].append(_seconds(run, steps[name]) / steps[name])
    return {name: Spread(tuple(values)) for name, values in seconds.items()}


def steps_for(run: Run, turn_seconds: float) -> int:
    """Return how many steps take about so long, at least one; the first step is not counted, it may compile."""
    run(1)
    steps = 1
    while True:
        elapsed = max(_seconds(run, steps), 1e-9)
        wanted = min(max(1, round(steps * turn_seconds / elapsed)), MAX_STEPS)
        if elapsed >= turn_seconds / 4 or wanted <= steps:
            return wanted
        steps = min(wanted, 16 * steps)


def _seconds(run: Run, steps: int) -> float:
    began = time.perf_counter()
    run(steps)
    return time.perf_counter() - began


def interleaved(contestants: Mapping[str, Callable[[], None]], rounds: int = 5) -> dict[str, list[float]]:
    """Return the seconds of every contestant's turns; each has one turn beforehand to warm up."""
    for run in contestants.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            began = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - began)
    return seconds


def tell(title: str, seconds: Mapping[str, list[float]], per: int, unit: str, against: str, one: str = "step") -> None:
    """Print median, spread and ratio per contestant; `per` is how many steps, or other things, a turn has."""
    scale = {"us": 1e6, "ms": 1e3, "s": 1.0}[unit]
    reference = statistics.median(seconds[against])
    print(title)
    for name, values in seconds.items():
        middle = statistics.median(values)
        low, high = min(values) * scale / per, max(values) * scale / per
        words = f"{middle * scale / per:9.3f} {unit} a {one} ({low:.3f} to {high:.3f})"
        print(f"  {name:34s} {words}   {middle / reference:6.3f} x {against}")
