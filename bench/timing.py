"""How the benchmarks measure: contestants take turns within one run, and medians are compared as ratios.

Machines are noisy; a ratio of two things measured side by side is not.
"""

import statistics
import time
from collections.abc import Callable, Mapping


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


def tell(title: str, seconds: Mapping[str, list[float]], per: int, unit: str, against: str) -> None:
    """Print median, spread and ratio per contestant; `per` is how many steps a turn has."""
    scale = {"us": 1e6, "ms": 1e3, "s": 1.0}[unit]
    reference = statistics.median(seconds[against])
    print(title)
    for name, values in seconds.items():
        middle = statistics.median(values)
        low, high = min(values) * scale / per, max(values) * scale / per
        words = f"{middle * scale / per:9.3f} {unit} a step ({low:.3f} to {high:.3f})"
        print(f"  {name:34s} {words}   {middle / reference:6.3f} x {against}")
