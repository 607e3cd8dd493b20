"""One evaluation by an outside program: files in, a process group of its own, a number out."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gradless.command.files import SUFFIXES, params_bytes, parse_loss, read_end

GRACE = 2.0  # seconds between asking a process to end and ending it


class Outcome(NamedTuple):
    """What came of an evaluation."""

    loss: float  # NaN after a failure
    why: str  # what went wrong, if the program failed
    tries: int
    seconds: float


@dataclass(frozen=True)
class OutsideProgram:
    """A command with places for the files that we make: {params}, {result} and {seed}."""

    command: str
    uses_shell: bool = False
    params_format: str = "text"
    result_key: str = "loss"
    timeout: float | None = None
    retries: int = 0

    def check(self) -> None:
        """Refuse a command that cannot work, before anything is run."""
        if "{params}" not in self.command:
            raise ValueError(f"command must say where the file of parameters goes, {{params}}, got {self.command!r}")
        if self.uses_shell:
            return
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise ValueError(f"command must be words as in a shell ({error}), got {self.command!r}") from None
        if of_shells := [word for word in words if word in (">", ">>", "<", "|", "&&", "||", ";")]:
            raise ValueError(f"command has {of_shells[0]!r}, which only a shell understands: give --shell too")
        if shutil.which(words[0]) is None:
            raise ValueError(f"command must begin with a program that can be run, got {words[0]!r}")

    def words(self, params: Path, result: Path, seed: int) -> list[str]:
        """Return the command as a list of words; only names of files that we made and the seed are put into it.

        The command is split first, so that a name with spaces stays one word; for a shell each is quoted.
        """
        places = {"{params}": str(params), "{result}": str(result), "{seed}": str(seed)}
        if self.uses_shell:
            return [
                "/bin/sh",
                "-c",
                _filled(self.command, {place: shlex.quote(text) for place, text in places.items()}),
            ]
        return [_filled(word, places) for word in shlex.split(self.command)]


def _filled(text: str, places: dict[str, str]) -> str:
    # In one pass: the name of a run's folder may itself hold the name of a place.
    return re.sub("|".join(map(re.escape, places)), lambda found: places[found[0]], text)


class Job:
    """One evaluation, run in a thread; `end` ends it from another."""

    def __init__(self, program: OutsideProgram, x: np.ndarray, seed: int, folder: Path):
        self.program, self.x, self.seed, self.folder = program, x, seed, folder
        self.is_ended = False  # by us: it is not tried again
        self._is_late = False
        self._process: subprocess.Popen | None = None
        self._lock = threading.Lock()

    def run(self) -> Outcome:
        """Try until there is a result, as often as the program may be tried."""
        began, why, tries = time.monotonic(), "", 0
        while tries <= self.program.retries and not self.is_ended:
            tries += 1
            try:
                return Outcome(self._try(), "", tries, time.monotonic() - began)
            except Exception as error:  # whatever it is: a thread that ends without an outcome is waited for for ever
                why = str(error) or type(error).__name__
        return Outcome(float("nan"), why, tries, time.monotonic() - began)

    def end(self) -> None:
        """End the program and all that it started."""
        with self._lock:
            self.is_ended = True
            self._signal(signal.SIGTERM)
        timer = threading.Timer(GRACE, self._kill)
        timer.daemon = True
        timer.start()

    def _try(self) -> float:
        self.folder.mkdir(parents=True)
        try:
            params = self.folder / f"params{SUFFIXES[self.program.params_format]}"
            params.write_bytes(params_bytes(self.x, self.program.params_format))
            result, out, err = (self.folder / name for name in ("result", "stdout", "stderr"))
            code = self._wait_for(self.program.words(params, result, self.seed), out, err)
            if self._is_late:
                raise ValueError(f"it was ended after {self.program.timeout:g} s")
            if code:
                last = (read_end(err).strip().splitlines() or [""])[-1].strip()
                ending = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
                raise ValueError(f"{ending}: {last[:200]}" if last else ending)
            return parse_loss(read_end(result if "{result}" in self.program.command else out), self.program.result_key)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _wait_for(self, words: list[str], out: Path, err: Path) -> int:
        with out.open("wb") as to_out, err.open("wb") as to_err, self._lock:
            if self.is_ended:
                raise ValueError("it was ended")
            self._is_late = False
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=to_out, stderr=to_err, start_new_session=True
            )
        timer = threading.Timer(self.program.timeout or 0, self._end_late)
        timer.daemon = True
        if self.program.timeout is not None:
            timer.start()
        try:
            return self._reaped(self._process)
        finally:
            timer.cancel()

    def _reaped(self, process: subprocess.Popen) -> int:
        if hasattr(os, "waitid"):  # wait, but leave it a zombie: its number is then nobody else's
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        else:
            process.wait()
        with self._lock:
            if self.is_ended or self._is_late:
                self._signal(signal.SIGKILL)  # what the program started and did not end
            self._process = None
            return process.wait()

    def _end_late(self) -> None:
        with self._lock:
            self._is_late = True
            self._signal(signal.SIGTERM)
        timer = threading.Timer(GRACE, self._kill)
        timer.daemon = True
        timer.start()

    def _kill(self) -> None:
        with self._lock:
            if self.is_ended or self._is_late:
                self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        """Send a signal to the program's process group; the lock is held."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, number) if hasattr(os, "killpg") else self._process.kill()
