"""Where figures train their nets: every run is recorded, so that a figure stopped half-way goes on where it was."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gradless.engine.disk.recording import Recording
from gradless.engine.disk.stored import check_none_lost, check_rows, checked_meta
from gradless.engine.plan import Plan, chain_numbers
from gradless.engine.session import Listener, Session
from gradless.experiments.tables import COSTS, table_so_far, write_table
from gradless.plots import columns
from gradless.problems import make_problem
from gradless.records import Metrics, RunDirectory, RunError, has_checkpoint, load_newest
from gradless.runs import parse_batch, reopen, start_problem
from gradless.types import Algorithm


@dataclass(frozen=True)
class Run:
    """A finished run: its records as arrays of shape (records,) or (records, chains), and its last state."""

    path: Path
    table: dict[str, np.ndarray]
    tensors: dict[str, Any]  # of the last checkpoint, chain axis first: "state.x" and so on
    meta: dict[str, Any]

    @property
    def seconds(self) -> float:
        """Wall time of the run, all sittings together, without compilation."""
        return float(self.meta["seconds"])


class Stopped(Exception):
    """A reproduction has been stopped by its time budget or a signal; all runs are saved, the last one is `run`."""

    def __init__(self, name: str, run: Run, by: str) -> None:
        super().__init__(name)
        self.run, self.by = run, by


@dataclass
class Halt(Listener):
    """Passes a request to stop, made at any time, on to whichever run is going."""

    stop_requested: str | None = None  # the name of a signal

    def chunk_done(self, session: Session, rows: list[dict[str, Any]], flags: np.ndarray) -> None:
        """Hand the request over."""
        session.stop_requested = self.stop_requested or session.stop_requested


@dataclass
class Workshop:
    """Trains named problems in sub-folders of a figure's folder, and resumes what was begun there."""

    out: Path
    tell: Callable[[str], None]
    deadline: float = float("inf")  # on the clock of time.monotonic
    common: Path | None = None  # the folder of all figures, for runs that several of them show; else `out`
    halt: Halt = field(default_factory=Halt)
    follow: Callable[[], Listener] = Listener  # makes who shows the progress of a run

    def train(
        self,
        name: str,
        problem: str,
        algorithm: Algorithm,
        *,
        steps: int,
        options: dict[str, Any] | None = None,
        chains: int = 1,
        seed: int = 0,
        batch: str = "full",
        is_shared: bool = False,
        **plan: Any,
    ) -> Run:
        """Return the run of that name: as stored if it is finished, else gone on with, else begun.

        `plan` takes the other settings of a Plan: precision, record_every, target_loss, stop_when_frozen, ...
        A shared run is made once for all figures that ask for its name.
        """
        folder = (self.common or self.out) if is_shared else self.out
        path = folder / "runs" / name
        made = make_problem(problem, options or {})
        settings = {"precision": made.precision, **plan}
        planned = Plan(
            steps=steps,
            batches=parse_batch(batch, made),
            chains=chain_numbers(chains),
            seed=seed,
            time_budget=None,
            **settings,
        )
        if is_finished(path) or has_checkpoint(path):
            lengthen(path, steps)
        if not is_finished(path):
            self.tell(f"{name}: {problem} by {algorithm.name}, {chains} chain{'s' * (chains > 1)}, {steps:,} steps")
            session = self._session(path, made, algorithm, planned, {"problem": problem, "options": options or {}})
            session.report = self.tell
            # The session takes off what it has compiled, which is over by now.
            left = max(self.deadline - time.monotonic(), 0.01) + session.compile_seconds
            session.time_budget = session.spent + left
            session.go()
            if not all(listener.is_complete for listener in session.listeners if isinstance(listener, Recording)):
                raise RunError(f"the end of {path} could not be written: make room, then go on with the same command")
            is_over = session.stopped_by not in ("time", self.halt.stop_requested)
            if is_over:  # also if a signal came with its last steps: one that has diverged cannot be gone on with
                mark_finished(path)
            if not is_over or self.halt.stop_requested:
                raise Stopped(name, self._read(path, seed), self.halt.stop_requested or "time")
        return self._read(path, seed)

    def _read(self, path: Path, seed: int) -> Run:
        """Return a stored run, and note beside the figure's data what it has cost."""
        run = read_run(path)
        steps = np.ravel(run.tensors["t"])
        cost = {"run": path.name, "seed": seed, "chains": len(steps), "steps": int(steps.max()), "seconds": run.seconds}
        noted = {row["run"]: row for row in table_so_far(self.out / COSTS)}
        if cost["steps"] >= noted.get(path.name, cost)["steps"]:  # else it got further on another machine
            noted[path.name] = cost
        write_table(self.out / COSTS, list(noted.values()))
        return run

    def _session(self, path: Path, made: Any, algorithm: Algorithm, plan: Plan, about: dict[str, Any]) -> Session:
        listeners = [self.follow(), self.halt]
        if has_checkpoint(path):
            return reopen(
                path, steps=plan.steps, problem=made, algorithm=algorithm, listeners=listeners, report=self.tell
            )
        # A run stopped before its first checkpoint is begun anew; one that another process begins meanwhile is not.
        overwrite = path.exists()
        return start_problem(
            made, algorithm, plan, run=path, about=about, overwrite=overwrite, listeners=listeners, report=self.tell
        )


def lengthen(path: Path, steps: int) -> None:
    """Let a stored run that has ended at its last step go on to more steps than it was meant for; refuse fewer.

    It comes from another version of the figure. One that has ended earlier, at its target or diverged, stays over.
    """
    with RunDirectory.open(path) as run:
        plan = run.settings.get("plan")
        stored = plan.get("steps") if isinstance(plan, dict) else None
        if not isinstance(stored, int) or stored > steps:
            raise RunError(f"{path} is a run of {stored} steps, and {steps} are asked for: move it away to begin anew")
        if stored < steps and is_finished(path):
            last = load_newest(run.checkpoints_path, warn=lambda words: None, set_aside=False)
            if np.max(last.tensors["t"]) >= stored:
                (path / "finished").unlink()


def is_finished(path: Path) -> bool:
    """Return whether a run has ended by itself."""
    return (path / "finished").exists()


def mark_finished(path: Path) -> None:
    """Note that a run has ended by itself."""
    (path / "finished").touch()


def read_run(path: Path) -> Run:
    """Return a stored run; refuse one that was damaged since."""
    with RunDirectory.open(path) as run:
        rows = list(Metrics(run.metrics_path).rows())
        checkpoint = load_newest(run.checkpoints_path, warn=lambda words: None, set_aside=False)
        meta = checked_meta(checkpoint)
        check_rows(rows, len(meta["chains"]), run.metrics_path)
        check_none_lost(rows, meta, run.metrics_path)
    if is_finished(path) and rows[-1]["step"] > checkpoint.step:
        ends = f"ended at step {rows[-1]['step']}, its last whole checkpoint is of step {checkpoint.step}"
        raise RunError(f"{path} {ends}: restore it from a copy, or delete {path / 'finished'} to go on from there")
    return Run(path, columns(rows), checkpoint.tensors, checkpoint.meta)
