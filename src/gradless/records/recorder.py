"""What the engine calls while it trains: a full, read-only or vanished disk is reported, never fatal.

What cannot be written waits in memory and is tried again at the next call. A checkpoint is not kept waiting: the
engine holds a newer state by then, so `wants_checkpoint` asks for that one instead.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from . import checkpoints
from .accepted import AcceptedLog
from .accepted_blocks import Flags
from .errors import RunError
from .metrics import Metrics
from .run_directory import RunDirectory
from .tensor_file import Tensor

MEMORY_LIMIT = 256 << 20


class Recorder:
    """Write metrics, accepted steps and checkpoints of a locked run, in an order that resume can rely on.

    It begins by cutting metrics and log back to `step`, that of the checkpoint the engine goes on from (0 for a new
    run). If the log does not reach that far it is a RunError. `report` gets one line when trouble begins, when
    something is dropped, and when the trouble is over.
    """

    def __init__(
        self,
        run: RunDirectory,
        step: int,
        num_chains: int,
        report: Callable[[str], None],
        *,
        memory_limit: int = MEMORY_LIMIT,
        retry_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._metrics = Metrics(run.metrics_path)
        self._log = AcceptedLog(run.accepted_path, num_chains)
        self._report = report
        self._memory_limit = memory_limit
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._troubles: list[str] = []  # of the present trouble, each kind told once
        self._owes_checkpoint = False
        self._retry_at = 0.0
        try:
            self._cut_back(step)
        except OSError as error:
            raise RunError(f"cannot write to {run.path}: {error.strerror or error}") from error

    def _cut_back(self, step: int) -> None:
        self._log.truncate(step)
        self._metrics.truncate_after(step)
        self._metrics.sync()
        self._log.sync()

    def metrics(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Record metrics rows, each with its "step"."""
        self._metrics.add(rows)
        self._write_waiting()

    def accepted(self, first_step: int, flags: Flags) -> None:
        """Record which steps from `first_step` on were accepted: shape (steps,) or (chains, steps)."""
        rows = np.atleast_2d(flags)
        if rows.ndim != 2 or len(rows) != self._log.num_chains:
            raise ValueError(f"flags must have {self._log.num_chains} rows, one per chain, got shape {rows.shape}")
        for chain, row in enumerate(rows):
            self._log.add(chain, first_step, row)
        self._write_waiting()

    def checkpoint(self, step: int, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> bool:
        """Publish a checkpoint once all it covers is durable; False if the disk did not let us."""
        try:
            self._metrics.sync()
            self._log.sync()
            checkpoints.save(self._run.checkpoints_path, step, tensors, meta)
        except OSError as error:
            self._owes_checkpoint = True
            self._retry_at = self._clock() + self._retry_seconds
            self._begin_trouble(error)
            return False
        self._owes_checkpoint = False
        self._end_trouble()
        return True

    @property
    def wants_checkpoint(self) -> bool:
        """True when a checkpoint failed some seconds ago: the engine should offer its present state."""
        return self._owes_checkpoint and self._clock() >= self._retry_at

    @property
    def trouble(self) -> str | None:
        """The trouble that lasts, or None."""
        return self._troubles[-1] if self._troubles else None

    def close(self) -> bool:
        """Make everything durable and let the run go; False, reported, if something could not be written."""
        try:
            self._metrics.sync()
            self._log.sync()
        except OSError as error:
            self._begin_trouble(error)
        else:
            self._end_trouble()
        if self._troubles:
            self._report(f"{self._run.path}: the end of the run could not be written ({self.trouble})")
        self._run.close()
        return not self._troubles

    def _write_waiting(self) -> None:
        try:
            self._metrics.flush()
            self._log.flush()
            if self._troubles and not self._owes_checkpoint:
                self._metrics.sync()
                self._log.sync()
        except OSError as error:
            self._begin_trouble(error)
        else:
            self._end_trouble()

    def _begin_trouble(self, error: OSError) -> None:
        trouble = error.strerror or str(error)
        if trouble not in self._troubles:
            self._troubles.append(trouble)
            self._report(
                f"cannot write to {error.filename or self._run.path}: {trouble}; training goes on, "
                f"records wait in memory (up to {self._memory_limit >> 20} MB) and writing is tried again"
            )
        self._bound_memory()

    def _end_trouble(self) -> None:
        """A failed checkpoint needs more room than a line of metrics, so only a checkpoint ends that trouble."""
        if self._troubles and not self._owes_checkpoint:
            self._troubles.clear()
            self._report(f"writing to {self._run.path} works again; the records that waited are on the disk")

    def _bound_memory(self) -> None:
        full = f"{self._run.path}: memory for unwritten records is full, dropped"
        while self._metrics.waiting_bytes + self._log.waiting_bytes > self._memory_limit:
            if self._metrics.waiting_bytes <= self._log.waiting_bytes:
                if self._log.drop_waiting() <= 0:
                    return
                self._report(f"{full} the latest steps of accepted.log: replay will end there, resume is not affected")
            elif dropped := self._metrics.thin_waiting():
                self._report(f"{full} {dropped} rows of metrics.jsonl, every second one")
            else:
                return
