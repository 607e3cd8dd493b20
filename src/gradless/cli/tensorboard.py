"""`--tensorboard`: the records of a run as event files, in its folder.

They are written from the records alone, so a resumed run writes them anew up to its checkpoint: no step is there
twice and none is missing, however the run ended. Events are written by tensorboardX without its background thread,
which a full disk would end and the run then wait for.
"""

import importlib.util
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gradless.engine.session import Listener, Session
from gradless.records import COLUMNS, EVENTS, event_files

SHOWN = ("loss", "acceptance", "sigma")  # and the problem's metrics


def check_tensorboard() -> None:
    """Refuse to go on where tensorboardX is missing."""
    if importlib.util.find_spec("tensorboardX") is None:
        raise ValueError("--tensorboard needs tensorboardX: pip install 'gradless[tensorboard]'")


def goes_on_with_events(run: str, report: Callable[[str], None]) -> bool:
    """Return whether a stored run has event files, which are to go on; where tensorboardX is missing that is told."""
    if not event_files(Path(run)):
        return False
    if importlib.util.find_spec("tensorboardX") is None:
        report(f"{run} has event files, which need tensorboardX to go on: pip install 'gradless[tensorboard]'")
        return False
    return True


class EventFiles(Listener):
    """Writes loss, acceptance, sigma and metrics for TensorBoard; with several chains, each in a folder of its own."""

    def __init__(self, run: str | Path, report: Callable[[str], None]):
        check_tensorboard()
        self.folder = Path(run).resolve() / EVENTS
        self.report = report
        self.began = 0.0
        self.writers: list[Any] | None = None
        self.is_broken = False

    def chunk_done(self, session: Session, rows: list[dict[str, Any]], flags: np.ndarray) -> None:
        """Write the new records; the first time all that there are."""
        if self.is_broken:
            return
        try:
            if self.writers is None:
                self._open(session)
                rows = session.rows
            for row in rows:
                self._write(row)
            for writer in self.writers or []:
                writer.flush()
        except OSError as error:
            self.is_broken = True
            self.report(f"cannot write to {self.folder}: {error.strerror or error}; training goes on without it")

    def finished(self, session: Session) -> None:
        """Close the files."""
        for writer in self.writers or []:
            try:
                writer.close()
            except OSError as error:
                if not self.is_broken:
                    self.report(f"{self.folder} is not complete: {error.strerror or error}")
                self.is_broken = True

    def _open(self, session: Session) -> None:
        from tensorboardX.event_file_writer import EventsWriter

        for old in event_files(self.folder.parent):
            old.unlink()
        self.began = time.time() - session.seconds_before  # TensorBoard's relative time is then that of the training
        numbers = [chain.index for chain in session.chains]
        folders = [self.folder] if len(numbers) == 1 else [self.folder / f"chain-{number}" for number in numbers]
        self.writers = []
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            self.writers.append(EventsWriter(str(folder / "events")))

    def _write(self, row: dict[str, Any]) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        names = [*SHOWN, *(name for name in row if name not in COLUMNS)]
        for place, writer in enumerate(self.writers or []):
            values = {name: float(np.atleast_1d(row[name])[place]) for name in names}
            shown = [Summary.Value(tag=name, simple_value=v) for name, v in values.items() if not math.isnan(v)]
            if shown:
                when = self.began + row["seconds"]
                writer.write_event(Event(wall_time=when, step=row["step"], summary=Summary(value=shown)))
