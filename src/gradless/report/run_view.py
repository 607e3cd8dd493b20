"""All that a page says of one run, gathered from its folder as plain values; nothing there is written or trusted."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gradless.plots import GRADIENT
from gradless.records import (
    Checkpoint,
    RunDirectory,
    RunError,
    Tail,
    list_checkpoints,
    living_holder,
    load_newest,
    read_holder,
)
from gradless.report import verdict
from gradless.report.again import commands
from gradless.report.curves import Table, curves, per_window
from gradless.report.numbers import MAX_TEXT, chain_rows, flat_rows, notes_on, num_chains, numbers

SHORT = {"mc": "MC", "amc": "aMC", "gd": "GD", "adam": "Adam"}
FRESH_SECONDS = 120  # a run of another machine that has written within this time is taken to be running
OF_MOVES = ("acceptance", "sigma", "nonfinite")


class RunView:
    """A run as a page shows it; it may be asked again and again while the run goes on.

    `trust` lets it run the code of the module that a run of module:object names. With `in_background` what the nets
    say comes later, when it has been computed: a live page need not wait for it.
    """

    def __init__(self, path: str | Path, trust: bool = False, in_background: bool = False) -> None:
        self.path = Path(path)
        self.asking: threading.Thread | None = None  # computes what the nets say
        self._trust = trust
        self._in_background = in_background
        self._tail = Tail(self.path / "metrics.jsonl")
        self._nets: dict[str, Any] = {}
        self._num_answers = 0  # of the nets, so far
        self._asked: Any = None  # the checkpoint that the nets are of
        self._statuses: list[int] = []
        self._nets_notes: list[str] = []
        self._looked_at: Any = None  # the checkpoint that the statuses are of

    def stamp(self) -> tuple[Any, ...]:
        """Return what changes when the run does; cheap enough to ask for every second."""
        names = ("settings.json", "metrics.jsonl", "run.lock", "checkpoints")
        return (*(_stamp(self.path / name) for name in names), self._is_running(), self._num_answers)

    def outline(self) -> dict[str, Any]:
        """Return the line that a list has on the run; a RunError says why it cannot be shown."""
        with _as_run_error(self.path):
            return self._outline()[0]

    def facts(self) -> dict[str, Any]:
        """Return everything; a RunError says why a folder cannot be shown at all."""
        with _as_run_error(self.path):
            return self._facts()

    def _facts(self) -> dict[str, Any]:
        outline, settings, table, state = self._outline()
        goals = _goals(settings, table)
        notes = self._ask_nets(settings)
        if self._tail.left_out:
            notes.append(f"{self._tail.left_out:,} damaged or unlike lines of metrics.jsonl are left out.")
        return outline | {
            "path": str(self.path),
            "steps": verdict.step_goal(goals),
            "num_chains": num_chains(table),
            "verdict": verdict.verdict(table, _kind(settings), state),
            "notes": [*verdict.advice(table, _algorithm(settings), goals, state), *notes, *notes_on(table)],
            "numbers": numbers(table),
            "curves": curves(table),
            "chains": chain_rows(table, _algorithm(settings), _dict(settings.get("plan")).get("chains")),
            **self._nets,
            "settings": flat_rows(settings),
            "environment": flat_rows(self._environment()),
            "commands": commands(str(self.path), settings),
        }

    def _environment(self) -> dict[str, Any]:
        """Return the machine and the versions, or why they cannot be read: the run itself does not need them."""
        with RunDirectory.open(self.path) as run:
            try:
                return run.environment
            except RunError as error:
                return {"not known": str(error)}

    def _outline(self) -> tuple[dict[str, Any], dict[str, Any], Table, verdict.State]:
        with RunDirectory.open(self.path) as run:
            settings = run.settings
            self._tail.read()
            changed = run.metrics_path.stat().st_mtime
        table = self._table(settings)
        plan = _goals(settings, table)
        step = self._step(table)
        state = verdict.state_of(self._is_running(), step, plan, [])
        if state.word == "stopped":
            self._look_at_checkpoint()
            state = verdict.state_of(False, step, plan, self._statuses)
        if state.word != "running" and (known := self._lost_record()) is not None:
            state = verdict.with_lost_records(int(table["step"][-1]) if self._tail.num_rows else None, known)
        kind = _kind(settings)
        problem = settings.get("problem") or ("an outside program" if "optimize" in settings else "a Python loss")
        last = datetime.fromtimestamp(changed, UTC).isoformat(timespec="seconds")
        found = numbers(table)
        outline = {
            "name": self.path.resolve().name or str(self.path),
            "problem": str(problem)[:MAX_TEXT],
            "algorithm": SHORT.get(kind, kind[:MAX_TEXT]),
            "state": state.word,
            "step": step,
            "loss": found[0]["value"] if found else None,
            "last_record": None if step is None else last,
        }
        return outline, settings, table, state

    def _is_running(self) -> bool:
        """Return whether someone holds the run; of another machine's processes only fresh records tell."""
        holder = read_holder(self.path / "run.lock")
        if holder is None or holder["host"] == socket.gethostname():
            return living_holder(self.path / "run.lock") is not None
        stamp = _stamp(self.path / "metrics.jsonl")
        return stamp is not None and time.time() - stamp[2] / 1e9 < FRESH_SECONDS

    def _step(self, table: Table) -> int | None:
        """Return how far the run has come: the last record, or a checkpoint after it."""
        if not self._tail.num_rows:
            return None
        checkpoints = list_checkpoints(self.path / "checkpoints")[:1]
        return max(int(table["step"][-1]), *[int(path.stem) for path in checkpoints], 0)

    def _table(self, settings: dict[str, Any]) -> Table:
        table = self._tail.table()
        if _kind(settings) in GRADIENT:  # which take every step: of acceptance they know nothing
            return {name: values for name, values in table.items() if name not in OF_MOVES}
        if "optimize" in settings and "acceptance" in table:
            table["acceptance"] = per_window(table["acceptance"], table["step"])
        return table

    def _look_at_checkpoint(self) -> None:
        """Note why each chain of the newest checkpoint has ended, or that it goes on, and the last record it knows."""
        newest = self._newest()
        if newest != self._looked_at:
            checkpoint, _ = self._load()
            found = None if checkpoint is None else checkpoint.tensors.get("status")
            is_whole = found is not None and found.dtype.kind == "i"
            self._statuses = [int(one) for one in found.ravel()] if found is not None and is_whole else []
            chains = checkpoint.meta.get("chains") if checkpoint else None
            known = [_dict(one).get("last_record") for one in chains] if isinstance(chains, list) else []
            self._known_record = max((one for one in known if isinstance(one, int)), default=-1)
            self._looked_at = newest

    def _lost_record(self) -> int | None:
        """Return the step of a record that the newest checkpoint knows of and metrics.jsonl does not, if there is one.

        Most checkpoints lie between two records; only one beyond the last record has to be looked into.
        """
        checkpoints = list_checkpoints(self.path / "checkpoints")[:1]
        last = int(self._tail.table()["step"][-1]) if self._tail.num_rows else -1
        if not checkpoints or int(checkpoints[0].stem) <= last:
            return None
        self._look_at_checkpoint()
        return self._known_record if self._known_record > last else None

    def _ask_nets(self, settings: dict[str, Any]) -> list[str]:
        """See to it that what the nets say is of the newest checkpoint; return what is wrong with checkpoints."""
        wanted = (self._newest(), str(settings))
        if wanted == self._asked or (self.asking and self.asking.is_alive()):
            return list(self._nets_notes)
        if self._asked and self._asked[1] != wanted[1]:
            self._nets = {}
        checkpoint, notes = self._load()
        self._asked, self._nets_notes = wanted, notes

        def ask() -> None:
            from gradless.report.nets import net_facts

            self._nets = net_facts(self.path, settings, checkpoint, self._trust)
            self._num_answers += 1

        if self._in_background:
            self.asking = threading.Thread(target=ask, daemon=True)
            self.asking.start()
        else:
            ask()
        return list(notes)

    def _newest(self) -> Any:
        newest = list_checkpoints(self.path / "checkpoints")[:1]
        return newest, [_stamp(path) for path in newest]

    def _load(self) -> tuple[Checkpoint | None, list[str]]:
        notes: list[str] = []
        if not list_checkpoints(self.path / "checkpoints"):
            return None, notes
        try:
            return load_newest(self.path / "checkpoints", notes.append, set_aside=False), notes
        except RunError as error:
            return None, [f"{error}."]


def _goals(settings: dict[str, Any], table: Table) -> dict[str, Any]:
    """Return what a run was to reach; of `optimize` its evaluations, told in steps once they are all made."""
    if "optimize" not in settings:
        return _dict(settings.get("plan"))
    sitting = _dict(settings.get("sitting"))
    goal, made = sitting.get("evaluations"), table.get("evaluations")
    is_done = isinstance(goal, int) and made is not None and len(made) > 0 and made[-1].max() >= goal
    return {"steps": int(table["step"][-1]) if is_done else sitting.get("steps"), "time_budget": sitting.get("time")}


def _algorithm(settings: dict[str, Any]) -> dict[str, Any]:
    return _dict(settings.get("algorithm") or _dict(settings.get("optimize")).get("algorithm"))


def _kind(settings: dict[str, Any]) -> str:
    return str(_algorithm(settings).get("name", "unknown"))


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


@contextlib.contextmanager
def _as_run_error(path: Path) -> Iterator[None]:
    """A folder that vanishes while it is read is told in a line, as everything else that is wrong with a run."""
    try:
        yield
    except OSError as error:
        raise RunError(f"cannot read {error.filename or path}: {error.strerror or error}") from error
    except RecursionError:
        raise RunError(f"{path} has settings that are nested too deeply to be shown") from None
