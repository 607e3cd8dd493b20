"""What a person sees while an outside program is run, and when that has ended."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from gradless.cli.console import told_if_possible
from gradless.cli.progress import print_json
from gradless.cli.summary import with_course
from gradless.command.optimization import Optimization
from gradless.engine.progress import PLAIN_SECONDS
from gradless.engine.summary import ENDINGS, aligned

Follow = Callable[[Optimization], None]


@contextlib.contextmanager
def follower(console: Console, is_quiet: bool, is_json: bool) -> Iterator[Follow]:
    """Give the function that shows how a run goes on, as suits where the output goes."""
    if is_json:
        yield JsonRows()
    elif is_quiet:
        yield lambda run: None
    elif console.is_terminal:
        with live_line(console) as follow:
            yield follow
    else:
        yield PlainLines(console)


def describe(run: Optimization) -> str:
    """Return the present numbers of a run in one line."""
    chain = run.chain
    if not chain.has_begun:
        return "the starting point"
    made = run.journal.evaluations - run.evaluated_before
    words = [f"U {chain.loss:.5g}", f"A {chain.accepted / max(chain.step, 1):.3g}", f"σ {chain.sigma:.3g}"]
    words.append(f"{run.journal.evaluations:,} evaluations")
    if made and run.journal.failures:
        words.append(f"{run.journal.failures:,} failed")
    return "  ".join(words)


@contextlib.contextmanager
def live_line(console: Console) -> Iterator[Follow]:
    """Give a function that draws one line again and again; the clock in it runs while the program does."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TextColumn("{task.fields[numbers]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, refresh_per_second=4) as progress:
        task = progress.add_task("evaluating", total=None, numbers="the starting point")

        def follow(run: Optimization) -> None:
            total = run.limits.steps if math.isfinite(run.limits.steps) else None
            words = f"step {run.chain.step:,}"
            progress.update(task, description=words, completed=run.chain.step, total=total, numbers=describe(run))

        yield follow


class PlainLines:
    """A line every few seconds, for logs."""

    def __init__(self, console: Console):
        self.console, self.last = console, -math.inf

    def __call__(self, run: Optimization) -> None:
        if time.monotonic() - self.last >= PLAIN_SECONDS:
            self.last = time.monotonic()
            total = f" of {run.limits.steps:,.0f}" if math.isfinite(run.limits.steps) else ""
            with told_if_possible():
                self.console.print(f"step {run.chain.step:,}{total}  {describe(run)}")


class JsonRows:
    """Every new record as a JSON object on a line of its own."""

    def __init__(self) -> None:
        self.shown: int | None = None

    def __call__(self, run: Optimization) -> None:
        first = run.rows_before if self.shown is None else self.shown
        for row in run.rows[first:]:
            print_json({"event": "record", **row})
        self.shown = len(run.rows)


@told_if_possible()
def show(console: Console, run: Optimization, path: str, is_quiet: bool, is_json: bool) -> None:
    """Print how the run ended."""
    chain, journal = run.chain, run.journal
    if is_json:
        print_json({"event": "result", **_numbers(run), "run": path})
    elif is_quiet:
        console.print(f"U {chain.best.loss:.6g}  {path}")
    else:
        trace = {"loss": np.asarray([row["loss"] for row in run.rows])}
        rows = [("loss U", f"{chain.best.loss:.5g}")]
        rows.append(("acceptance", f"{chain.accepted / max(chain.step, 1):.5g}"))
        rows.append(("sigma at the end", f"{chain.sigma:.5g}"))
        rows.append(("steps", f"{chain.step:,} ({ENDINGS.get(run.stopped_by or '', run.stopped_by)})"))
        new = f", {journal.evaluations - run.evaluated_before:,} of them now" if run.evaluated_before else ""
        rows.append(("evaluations", f"{journal.evaluations:,}{new}; {journal.wasted:,} thrown away"))
        if chain.nonfinite:
            rows.append(("rejected", f"{chain.nonfinite:,} for a loss that was not a number"))
        if journal.failures:
            rows.append(("failed", f"{journal.failures:,} of the evaluations"))
        rows.append(("time", f"{run.seconds:.1f} s"))
        if run.rows:
            rows.append(("best parameters", str(run.best_path)))
        rows.append(("run", path))
        loss, *others = aligned(rows)
        console.print(with_course(console, loss, trace) if run.rows else loss)
        for line in others:
            console.print(line)


def _numbers(run: Optimization) -> dict[str, Any]:
    chain, journal = run.chain, run.journal
    return {
        "loss": chain.best.loss,
        "steps": chain.step,
        "acceptance": chain.accepted / max(chain.step, 1),
        "sigma": chain.sigma,
        "evaluations": journal.evaluations,
        "wasted": journal.wasted,
        "failures": journal.failures,
        "nonfinite": chain.nonfinite,
        "seconds": run.seconds,
        "stopped_by": run.stopped_by,
        "best": str(run.best_path),
    }
