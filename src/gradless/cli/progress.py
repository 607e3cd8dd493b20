"""What a person sees while a run goes on: a live line in a terminal, plain lines elsewhere, JSON for machines."""

import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from gradless.engine.plan import LARGEST
from gradless.engine.session import Listener, Session

PLAIN_SECONDS = 5.0  # between plain lines


def follower(console: Console, is_quiet: bool, is_json: bool) -> Listener:
    """Return the listener that suits where the output goes."""
    if is_json:
        return JsonLines()
    if is_quiet:
        return Listener()
    return LiveLine(console) if console.is_terminal else PlainLines(console)


def report_to(console: Console, is_json: bool) -> Callable[[str], None]:
    """Return where trouble with the disk and other warnings are told."""
    if is_json:
        return lambda words: print(json.dumps({"event": "warning", "text": words}), flush=True)
    return lambda words: console.print(words, style="yellow")


class Pace:
    """Steps per second over the last moments."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []

    def update(self, t: int) -> float:
        """Return the pace now that step t is done."""
        self.seen = [*self.seen[-9:], (time.monotonic(), t)]
        (before, t_before), (now, t_now) = self.seen[0], self.seen[-1]
        return (t_now - t_before) / (now - before) if now > before else 0.0


def describe(session: Session, pace: float) -> str:
    """Return the present numbers of a run in one line; of several chains the best."""
    row = session.rows[-1]
    losses = [float(chain.carry.state.loss) for chain in session.chains if chain.carry is not None]
    best = int(np.nanargmin(losses)) if np.isfinite(losses).any() else 0
    known = (
        "step",
        "seconds",
        "epoch",
        "evaluations",
        "samples",
        "loss",
        "acceptance",
        "sigma",
        "nonfinite",
        "is_frozen",
    )
    words = [f"U {losses[best]:.5g}"]
    words += [f"{name} {np.ravel(value)[best]:.4g}" for name, value in row.items() if name not in known]
    for name, short in (("acceptance", "A"), ("sigma", "σ")):
        value = float(np.ravel(row[name])[best])
        words += [] if math.isnan(value) else [f"{short} {value:.3g}"]
    return "  ".join([*words, f"{pace:,.0f} steps/s" if pace >= 10 else f"{pace:.2g} steps/s"])


class LiveLine(Listener):
    """One line that is drawn again about twice a second."""

    def __init__(self, console: Console):
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TaskProgressColumn(),
            TextColumn("{task.fields[numbers]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=console,
            refresh_per_second=4,
        )
        self.task: Any = None
        self.pace = Pace()

    def chunk_done(self, session: Session, rows: list[dict[str, Any]], flags: np.ndarray) -> None:
        """Draw the line again."""
        if self.task is None:
            self.progress.start()
            total = session.steps if session.steps < LARGEST else None
            self.task = self.progress.add_task("compiling", total=total, numbers="")
        numbers = describe(session, self.pace.update(session.t))
        words = f"step {session.t:,}" if session.t or flags.size else "compiling"
        self.progress.update(self.task, description=words, completed=session.t, numbers=numbers)

    def finished(self, session: Session) -> None:
        """Leave the last line standing."""
        self.progress.stop()


class PlainLines(Listener):
    """A line every few seconds, for logs."""

    def __init__(self, console: Console):
        self.console, self.pace, self.last = console, Pace(), -math.inf

    def chunk_done(self, session: Session, rows: list[dict[str, Any]], flags: np.ndarray) -> None:
        """Print a line when it is time."""
        pace = self.pace.update(session.t)
        if time.monotonic() - self.last >= PLAIN_SECONDS:
            self.last = time.monotonic()
            total = f" of {session.steps:,}" if session.steps < LARGEST else ""
            self.console.print(f"step {session.t:,}{total}  {describe(session, pace)}")


class JsonLines(Listener):
    """Every record as a JSON object on a line of its own; numbers that JSON lacks are null."""

    def chunk_done(self, session: Session, rows: list[dict[str, Any]], flags: np.ndarray) -> None:
        """Print the new records."""
        for row in rows:
            print_json({"event": "record", **row})


def print_json(table: dict[str, Any]) -> None:
    """Print one JSON object on one line."""
    sys.stdout.write(json.dumps(_finite(table), allow_nan=False) + "\n")
    sys.stdout.flush()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _finite(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
