"""What a person sees while a run goes on: a live line in a terminal, plain lines elsewhere, JSON for machines."""

import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from gradless.cli.console import told_if_possible
from gradless.engine.plan import LARGEST
from gradless.engine.session import Listener, Session
from gradless.records import COLUMNS, json_text

PLAIN_SECONDS = 5.0  # between plain lines
WIDE = 120  # columns of a terminal that has room for a bar too


def follower(console: Console, run: str, is_quiet: bool, is_json: bool) -> Listener:
    """Return the listener that suits where the output goes."""
    if is_json:
        return JsonLines(run)
    if is_quiet:
        return Listener()
    return LiveLine(console) if console.is_terminal else PlainLines(console)


def report_to(console: Console, is_json: bool) -> Callable[[str], None]:
    """Return where trouble with the disk and other warnings are told."""

    def report(words: str) -> None:
        with told_if_possible():
            console.print(words, style="yellow")

    return (lambda words: print_json({"event": "warning", "text": words})) if is_json else report


class Recent:
    """Steps per second, and the share of them each chain accepted, over the last moments."""

    def __init__(self) -> None:
        self.moments: list[tuple[float, int, np.ndarray]] = []  # time, step, and what was accepted up to there

    def update(self, t: int, flags: np.ndarray) -> None:
        """Take note that step t is done."""
        self.moments = [*self.moments[-9:], (time.monotonic(), t, flags.sum(axis=1))]

    @property
    def pace(self) -> float:
        """Steps per second."""
        (before, t_before, _), (now, t, _) = self.moments[0], self.moments[-1]
        return (t - t_before) / (now - before) if now > before else 0.0

    def acceptance(self, chain: int) -> float:
        """Accepted steps of a chain, as a share; not a number before its first step."""
        steps = self.moments[-1][1] - self.moments[0][1]
        return sum(int(accepted[chain]) for _, _, accepted in self.moments[1:]) / steps if steps else math.nan


def describe(session: Session, recent: Recent) -> str:
    """Return the present numbers of a run in one line; of several chains the best."""
    losses = [float(chain.carry.state.loss) for chain in session.chains if chain.carry is not None]
    best = int(np.nanargmin(losses)) if np.isfinite(losses).any() else 0
    words = [f"U {losses[best]:.5g}"]
    words += [f"{name} {value:.4g}" for name, value in session.last_record(best).items() if name not in COLUMNS]
    chain = session.chains[best]
    if hasattr(chain.carry.state, "sigma"):  # a gradient has neither
        acceptance = recent.acceptance(best)
        words += [] if math.isnan(acceptance) else [f"A {acceptance:.3g}"]
        words += [f"σ {float(chain.carry.state.sigma):.3g}"]
    return "  ".join([*words, f"{recent.pace:,.0f} steps/s" if recent.pace >= 10 else f"{recent.pace:.2g} steps/s"])


class LiveLine(Listener):
    """One line that is drawn again about twice a second."""

    def __init__(self, console: Console):
        numbers = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # what does not fit is left out at their end
        self.progress = Progress(
            TextColumn("{task.description}"),
            *([BarColumn(bar_width=20)] if console.width >= WIDE else []),
            TaskProgressColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[numbers]}", markup=False, table_column=numbers),
            console=console,
            refresh_per_second=4,
            expand=True,
        )
        self.task: Any = None
        self.recent = Recent()

    def chunk_done(self, session: Session, rows: list[dict[str, Any]], flags: np.ndarray) -> None:
        """Draw the line again."""
        if self.task is None:
            self.progress.start()
            total = session.steps if session.steps < LARGEST else None
            self.task = self.progress.add_task("compiling", total=total, numbers="")
        self.recent.update(session.t, flags)
        numbers = describe(session, self.recent)
        words = f"step {session.t:,}" if session.t or flags.size else "compiling"
        self.progress.update(self.task, description=words, completed=session.t, numbers=numbers)

    def finished(self, session: Session) -> None:
        """Leave the last line standing."""
        self.progress.stop()


class PlainLines(Listener):
    """A line every few seconds, for logs."""

    def __init__(self, console: Console, seconds: float = PLAIN_SECONDS):
        self.console, self.seconds, self.recent = console, seconds, Recent()
        self.last = -math.inf

    def chunk_done(self, session: Session, rows: list[dict[str, Any]], flags: np.ndarray) -> None:
        """Print a line when it is time."""
        self.recent.update(session.t, flags)
        if time.monotonic() - self.last >= self.seconds:
            self.last = time.monotonic()
            total = f" of {session.steps:,}" if session.steps < LARGEST else ""
            with told_if_possible():
                self.console.print(f"step {session.t:,}{total}  {describe(session, self.recent)}")


class JsonLines(Listener):
    """Every record as a JSON object on a line of its own; numbers that JSON lacks are null."""

    def __init__(self, run: str):
        self.run = run  # a comparison has several

    def chunk_done(self, session: Session, rows: list[dict[str, Any]], flags: np.ndarray) -> None:
        """Print the new records."""
        for row in rows:
            print_json({"event": "record", **row, "run": self.run})


def print_json(table: dict[str, Any]) -> None:
    """Print one JSON object on one line."""
    with told_if_possible():
        sys.stdout.write(json_text.dumps_for_others(table) + "\n")
        sys.stdout.flush()
