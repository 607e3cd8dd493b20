"""What a person sees when a run has ended: the numbers, the course of the loss, where everything is."""

from typing import Any

from rich.console import Console

from gradless.cli.console import told_if_possible
from gradless.engine.result import Result
from gradless.engine.summary import aligned, in_words, rows_of, sparkline

LONGEST, SHORTEST = 40, 8  # bars


@told_if_possible()
def show(console: Console, result: Result, run: str, is_quiet: bool) -> None:
    """Print the summary of a run."""
    if is_quiet:
        metrics = [f"{name} {in_words(value)}" for name, value in result.metrics.items()]
        console.print("  ".join([f"U {in_words(result.loss)}", *metrics, run]))
        return
    rows = [*rows_of(result), ("run", run)]
    for (name, _), line in zip(rows, aligned(rows), strict=True):
        words = with_course(console, line, result.trace) if name == "loss U" else line
        console.print(words, style="bold" if name in result.metrics else None)
    if result.advice:
        console.print(result.advice, style="yellow")


def with_course(console: Console, line: str, trace: Any) -> str:
    """Return the line of the loss with its course behind it, as long as fits: bars that wrap are no picture."""
    room = min(LONGEST, console.width - len(line) - 3)
    return f"{line}   {sparkline(trace, room)}" if room >= SHORTEST else line


def as_json(result: Result, run: str) -> dict[str, Any]:
    """Return the summary for machines."""
    names = ("loss", "metrics", "steps", "acceptance", "sigma", "evaluations", "samples", "nonfinite", "seconds")
    table = {name: getattr(result, name) for name in (*names, "compile_seconds", "stopped_by", "advice")}
    return {"event": "result", **table, "run": run}
