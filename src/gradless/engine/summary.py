"""A run in a few lines: what a terminal shows at its end, and what Python shows of a `Result`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from gradless.engine.result import Result

ENDINGS = {
    "steps": "all steps done",
    "target": "target reached",
    "evaluations": "all evaluations done",
    "frozen": "frozen: the moves have become too small to change x",
    "diverged": "diverged: the loss is no longer a number",
    "time": "time is up",
}
BARS = "▁▂▃▄▅▆▇█"


def rows_of(result: "Result") -> list[tuple[str, str]]:
    """Return the numbers of a run, each with its name."""
    rows = [(name, in_words(value)) for name, value in result.metrics.items()]
    rows.append(("loss U", in_words(result.loss)))
    if not np.all(np.isnan(result.sigma)):
        rows.append(("acceptance", in_words(result.acceptance)))
        rows.append(("sigma at the end", in_words(result.sigma)))
    rows.append(("steps", f"{result.steps:,} ({ENDINGS.get(result.stopped_by, result.stopped_by)})"))
    rows.append(("evaluations", f"{result.evaluations:,} of the loss, {result.samples:,} samples"))
    rows.append(("time", f"{result.seconds:.1f} s, and {result.compile_seconds:.1f} s to compile"))
    if result.nonfinite:
        rows.append(("rejected", f"{result.nonfinite:,} for a loss that was not a number"))
    return rows


def aligned(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Return a line for each name and what it is, one below the other."""
    width = max(len(name) for name, _ in rows) + 2
    return [f"{name:<{width}}{words}" for name, words in rows]


def sparkline(trace: Any, width: int) -> str:
    """Return the course of the loss in a line of little bars, on a logarithmic scale where the loss is positive."""
    loss = np.atleast_2d(trace["loss"])
    loss = np.where(np.isfinite(loss), loss, np.nan)
    values = np.nanmedian(loss[:, ~np.isnan(loss).all(axis=0)], axis=0)
    if len(values) < 2:
        return ""
    values = values[np.linspace(0, len(values) - 1, min(width, len(values))).astype(int)]
    values = np.log(values) if (values > 0).all() else values
    low, high = values.min(), values.max()
    heights = (values - low) / (high - low) if high > low else np.zeros_like(values)
    return "".join(BARS[int(height * (len(BARS) - 1) + 0.5)] for height in heights)


def in_words(values: Any) -> str:
    """Return a number, or of several chains the median and the extremes."""
    numbers = np.ravel(values)
    if len(numbers) == 1 or np.isnan(numbers).all():
        return f"{numbers[0]:.5g}"
    return f"median {np.nanmedian(numbers):.5g}, from {np.nanmin(numbers):.5g} to {np.nanmax(numbers):.5g}"
