"""The chain driven by an outside program: several evaluations at a time, each in the journal before it is used."""

import math
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradless.asktell import AskTell
from gradless.asktell.chain import KINDS
from gradless.command.files import SUFFIXES, params_bytes
from gradless.command.journal import Entry, Journal
from gradless.command.program import Job, Outcome, OutsideProgram
from gradless.engine.loop import is_record
from gradless.records import Metrics, RunDirectory, RunError, write_atomic

BEST_SECONDS = 5.0  # between writes of the best point
TOLD_EVERY = 256  # steps, while those of an earlier sitting are made again
TOLD_FAILURES = 3  # told one by one; the summary counts the others


@dataclass(frozen=True)
class Limits:
    """What ends the run; a limit that is not set is infinite."""

    steps: float = math.inf
    evaluations: float = math.inf  # of the program, those thrown away included
    seconds: float = math.inf  # of this sitting
    target_loss: float = -math.inf


@dataclass
class Optimization:
    """A run in progress."""

    chain: AskTell
    program: OutsideProgram
    directory: RunDirectory
    limits: Limits
    workers: int = 1
    average: int = 1
    record_every: int = 1
    listener: Callable[["Optimization"], None] = lambda _: None  # called when something has happened
    report: Callable[[str], None] = lambda _: None  # told what the user should know at once
    stopped_by: str | None = None
    _running: dict[Entry, Job] = field(default_factory=dict)
    _done: queue.SimpleQueue = field(default_factory=queue.SimpleQueue)
    _stop: str | None = None

    def __post_init__(self) -> None:
        self.journal = Journal(self.directory.path / "journal.jsonl")
        self.metrics = Metrics(self.directory.metrics_path)
        self.rows = list(self.metrics.rows())
        self.rows_before = len(self.rows)  # of earlier sittings
        self.evaluated_before = self.journal.evaluations
        self._seconds_before = self.rows[-1]["seconds"] if self.rows else 0.0
        self._began = self._best_written = time.monotonic()
        self._jobs = self._told = 0
        # Absolute, as a program may change its folder; hidden, as a folder "work" may be the user's.
        self._work = self.directory.path.absolute() / ".work"
        self.best_path = self.directory.path / f"best{SUFFIXES[self.program.params_format]}"
        self._best_before = self.best_path.read_bytes() if self.best_path.exists() else None

    @property
    def stop_requested(self) -> str | None:
        """Why the run shall end now; set from a signal handler."""
        return self._stop

    @stop_requested.setter
    def stop_requested(self, why: str | None) -> None:
        self._stop = why
        self._done.put(None)  # wakes the loop, whatever it waits for

    @property
    def seconds(self) -> float:
        """Time spent, in earlier sittings too."""
        return self._seconds_before + time.monotonic() - self._began

    def go(self) -> None:
        """Run to the end, and leave no program behind, whatever ends it."""
        if self._work.is_symlink():  # rmtree leaves it, and what the program is given would be written there
            raise RunError(f"{self._work} is a link to another folder: remove it")
        shutil.rmtree(self._work, ignore_errors=True)
        try:
            self._advance()
            while (why := self._reason_to_stop()) is None:
                self._start_jobs()
                if not self._running:  # there is nothing left that may be begun
                    why = "evaluations"
                    break
                self._take(*self._next_outcome())
                self._advance()
            self.stopped_by = why
        finally:
            for job in self._running.values():
                job.end()
            while self._running:
                if (done := self._done.get()) is not None:
                    del self._running[done[0]]
            shutil.rmtree(self._work, ignore_errors=True)
            if self.journal.evaluations > self.evaluated_before or self._best_before is None:
                self._write_best()  # else an earlier sitting got further than this one
            self.metrics.sync()

    def _advance(self) -> None:
        """Make every step whose losses are known, one by one."""
        while self._reason_to_stop() is None and self._tell_next():
            if self.chain.step % TOLD_EVERY == 0:
                self.listener(self)
        self.listener(self)

    def _tell_next(self) -> bool:
        """Tell the chain the loss that it needs next, if it is known."""
        self.chain.ask()
        losses = self.journal.take(self.chain.tickets[0], self.average)
        if losses is None:
            return False
        step, after, has_begun = self.chain.step, self.chain.after, self.chain.has_begun
        best = self.chain.best
        self.chain.tell(float(np.mean(losses)))
        has_before = self._best_before is not None
        if has_before and self.chain.best is not best and self._best_bytes() == self._best_before:
            self._best_before = None  # this sitting has come by it, and goes on from there
        if self.chain.step > step or not has_begun:
            self._record()
        if self.chain.after != after:
            self.journal.throw_away(after)
            self._end_stale_jobs()
        return True

    def _start_jobs(self) -> None:
        """Keep all workers busy with the next evaluations of the reject branch."""
        points = self.chain.ask(self.workers)
        for ticket, x in zip(self.chain.tickets, points, strict=True):
            for draw in range(self.average):
                entry = Entry(ticket, draw)
                is_full = len(self._running) >= self.workers
                if is_full or ticket.step >= self.limits.steps or self._left() <= 0:
                    return
                if entry not in self.journal and entry not in self._running:
                    self._start_job(entry, x)

    def _start_job(self, entry: Entry, x: np.ndarray) -> None:
        self._jobs += 1
        seed = seed_of(self.chain.seed, entry)
        job = Job(self.program, x, seed, self._work / f"{os.getpid()}-{self._jobs}")
        self._running[entry] = job
        threading.Thread(target=lambda: self._done.put((entry, job.run())), daemon=True).start()

    def _next_outcome(self) -> tuple[Entry | None, Outcome | None]:
        left = self._began + self.limits.seconds - time.monotonic()
        try:
            done = self._done.get(timeout=min(max(left, 0.0), 3600.0))
        except queue.Empty:
            done = None
        return done or (None, None)

    def _take(self, entry: Entry | None, outcome: Outcome | None) -> None:
        if entry is None or outcome is None:
            return
        job = self._running.pop(entry)
        if job.is_ended:
            return
        if outcome.why:
            self._tell_failure(entry, outcome)
        elif entry.ticket.kind == "start" and not math.isfinite(outcome.loss):
            raise RunError(f"the loss of the starting point must be finite, got {outcome.loss}")
        self.journal.add(entry, outcome)

    def _tell_failure(self, entry: Entry, outcome: Outcome) -> None:
        tries = f"{outcome.tries} times: " if outcome.tries > 1 else ""
        if entry.ticket.kind == "start":
            raise RunError(f"the program failed at the starting point: {tries}{outcome.why}")
        self._told += 1
        if self._told <= TOLD_FAILURES:
            what = "the old loss stays" if entry.ticket.kind == "again" else "a rejection"
            more = "; further failures are only counted" if self._told == TOLD_FAILURES else ""
            self.report(f"step {entry.ticket.step:,}: the program failed, {what}: {tries}{outcome.why}{more}")

    def _end_stale_jobs(self) -> None:
        for entry, job in self._running.items():
            if entry.ticket.after != self.chain.after and not job.is_ended:
                job.end()

    def _left(self) -> float:
        return self.limits.evaluations - self.journal.evaluations - len(self._running)

    def _reason_to_stop(self) -> str | None:
        if self._stop is not None:
            return self._stop
        if self.chain.loss <= self.limits.target_loss:
            return "target"
        if self.chain.step >= self.limits.steps:
            return "steps"
        if time.monotonic() - self._began >= self.limits.seconds:
            return "time"
        return None

    def _record(self) -> None:
        chain = self.chain
        if not is_record(chain.step, self.record_every) or (self.rows and chain.step <= self.rows[-1]["step"]):
            return
        row: dict[str, Any] = {"step": chain.step, "seconds": self.seconds, "evaluations": self.journal.evaluations}
        row |= {"loss": chain.loss, "best": chain.best.loss, "acceptance": chain.accepted / max(chain.step, 1)}
        self.rows.append(row | {"sigma": chain.sigma, "nonfinite": chain.nonfinite})
        self.metrics.append(self.rows[-1:])
        if time.monotonic() - self._best_written >= BEST_SECONDS:
            self._write_best()

    def _write_best(self) -> None:
        if not self.chain.has_begun:
            return
        write_atomic(self.best_path, self._best_bytes())
        self._best_written = time.monotonic()

    def _best_bytes(self) -> bytes:
        return params_bytes(self.chain.best.x, self.program.params_format)


def seed_of(seed: int, entry: Entry) -> int:
    """Return the number that {seed} stands for: another for each evaluation, the same whenever it is made."""
    ticket = entry.ticket
    words = [seed, ticket.after + 1, ticket.step, KINDS.index(ticket.kind), entry.draw]
    return int(np.random.SeedSequence(words).generate_state(1)[0])
