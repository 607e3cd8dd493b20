"""What a person sees while a run goes on: a live line in a terminal, plain lines elsewhere, JSON for machines."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from gradless.cli.console import told_if_possible
from gradless.engine.plan import LARGEST
from gradless.engine.progress import PLAIN_SECONDS, PlainLines, Recent, describe
from gradless.engine.session import Listener, Session
from gradless.records import json_text

WIDE = 120  # columns of a terminal that has room for a bar too


def follower(console: Console, run: str, is_quiet: bool, is_json: bool) -> Listener:
    """Return the listener that suits where the output goes."""
    if is_json:
        return JsonLines(run)
    if is_quiet:
        return Listener()
    return LiveLine(console) if console.is_terminal else plain_lines(console)


def report_to(console: Console, is_json: bool) -> Callable[[str], None]:
    """Return where trouble with the disk and other warnings are told."""

    def report(words: str) -> None:
        with told_if_possible():
            console.print(words, style="yellow")

    return (lambda words: print_json({"event": "warning", "text": words})) if is_json else report


def plain_lines(console: Console, seconds: float = PLAIN_SECONDS) -> PlainLines:
    """Return the listener that prints a line every few seconds."""

    def tell(words: str) -> None:
        with told_if_possible():
            console.print(words)

    return PlainLines(tell, seconds)


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
