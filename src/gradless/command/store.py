"""A run of `gradless optimize` on disk: begun, and gone on with as the same run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradless.asktell import AskTell
from gradless.asktell.file import saveable
from gradless.engine.disk.recording import environment
from gradless.kernels import algorithm_from_json
from gradless.records import RunDirectory, RunError, how_to_go_on
from gradless.types import Algorithm


@dataclass(frozen=True)
class Setup:
    """All that the chain depends on; what may change from sitting to sitting is not here."""

    command: str
    x0: np.ndarray
    algorithm: Algorithm
    seed: int = 0
    shell: bool = False
    params_format: str = "text"
    result_key: str = "loss"
    average: int = 1
    reevaluate_every: int | None = None
    bounds: tuple[float, float] | None = None
    record_every: int = 1

    def chain(self) -> AskTell:
        """Return the chain at its start."""
        bounds, every = self.bounds, self.reevaluate_every
        return AskTell(self.x0, self.algorithm, self.seed, bounds=bounds, reevaluate_every=every)

    def to_json(self) -> dict[str, Any]:
        """Return the setup as plain values."""
        plain = {name: value for name, value in vars(self).items() if name not in ("x0", "algorithm", "bounds")}
        bounds = None if self.bounds is None else list(self.bounds)
        return {**plain, "x0": self.x0.tolist(), "bounds": bounds, "algorithm": saveable(self.algorithm)}

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> "Setup":
        """Return the setup of a stored run."""
        algorithm, x0 = algorithm_from_json(table["algorithm"]), np.asarray(table["x0"], np.float64)
        bounds = None if table["bounds"] is None else (float(table["bounds"][0]), float(table["bounds"][1]))
        return cls(**table | {"algorithm": algorithm, "x0": x0, "bounds": bounds})


def begin(path: str | Path, setup: Setup, sitting: dict[str, Any], overwrite: bool) -> RunDirectory:
    """Make the folder of a new run; `sitting` is what may be otherwise when it is gone on with."""
    path = Path(path)
    if (path / "settings.json").exists() and not overwrite:
        overwrite = _has_evaluated_nothing(path)
    return RunDirectory.create(path, {"optimize": setup.to_json(), "sitting": sitting}, environment(), overwrite)


def _has_evaluated_nothing(path: Path) -> bool:
    """Return whether a run ended before its first loss: there is nothing in it to lose."""
    with RunDirectory.open(path) as directory:
        journal = path / "journal.jsonl"
        return "optimize" in directory.settings and not (journal.exists() and journal.stat().st_size)


def go_on(path: str | Path, given: dict[str, Any], trust: bool) -> tuple[RunDirectory, Setup, dict[str, Any]]:
    """Open the folder of a run to go on with it; refuse settings that would make it another run.

    given: what the user has said again. The program of a run that came from elsewhere is run only if it is trusted, or
    named once more.
    """
    directory = RunDirectory.resume(path)
    try:
        stored, sitting = directory.settings.get("optimize"), directory.settings.get("sitting")
        if not isinstance(stored, dict) or not isinstance(sitting, dict):
            again = how_to_go_on(path, directory.settings)
            raise RunError(f"{path} is not a run of gradless optimize: go on with {again}")
        setup = _stored_setup(path, stored)
        for name, value in given.items():
            if value != stored[name]:
                flag = f"--{name.replace('_', '-')}"
                raise RunError(f"{flag} must be that of the run, {stored[name]!r}, got {value!r}: leave it out")
        if "command" not in given and not trust:
            words = "give --command again, or --trust if you know it"
            raise RunError(f"{path} is of the program {setup.command!r}: {words}")
    except BaseException:
        directory.close()
        raise
    return directory, setup, sitting


def _stored_setup(path: str | Path, stored: dict[str, Any]) -> Setup:
    try:
        return Setup.from_json(stored)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{path} has settings that cannot be read: {str(error)[:80]}") from None
