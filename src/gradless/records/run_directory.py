"""The run directory: where its files are, who may work on it, and how one is begun, opened and overwritten."""

import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from . import disk, durable, json_text
from .accepted import AcceptedLog
from .checkpoints import list_checkpoints
from .errors import DamagedError, NewerFormatError, RunError
from .lock import RunLock
from .overwrite import clear_run
from .shell import in_shell

FORMAT = "gradless run"
FORMAT_VERSION = 1


class RunDirectory:
    """A run on disk. `create` and `resume` hold its lock until `close`; `open` only reads and takes no lock."""

    def __init__(self, path: Path, settings: dict[str, Any], lock: RunLock | None) -> None:
        self.path = path
        self.settings = settings
        self._lock = lock

    @classmethod
    def create(
        cls, path: str | Path, settings: Mapping[str, Any], environment: Mapping[str, Any], overwrite: bool = False
    ) -> "RunDirectory":
        """Begin a run in a new or empty folder, or with `overwrite` in place of an earlier run."""
        path = Path(path)
        # Refused before the disk is touched, if they are no JSON.
        texts = _settings_text(settings), _text(environment)
        try:
            durable.make_folders(path)
            _check_free(path, overwrite)
            lock = RunLock(path / "run.lock")
        except OSError as error:
            raise _cannot("make", path, error) from error
        try:
            _check_free(path, overwrite)  # again, now that nobody else can change it
            if overwrite:
                clear_run(path)
            _write_new(path, *texts)
        except OSError as error:
            lock.release()
            raise _cannot("make", path, error) from error
        except BaseException:
            lock.release()
            raise
        return cls(path, _read_settings(path), lock)

    @staticmethod
    def check_free(path: str | Path, overwrite: bool = False) -> None:
        """Refuse a folder in which `create` could not begin a run, so that nothing is computed in vain."""
        try:
            if Path(path).exists():
                _check_free(Path(path), overwrite)
        except OSError as error:
            raise _cannot("make", Path(path), error) from error

    @classmethod
    def open(cls, path: str | Path) -> "RunDirectory":
        """Open a run for reading, also while another process works on it."""
        path = Path(path)
        _check_whole(path)
        return cls(path, _read_settings(path), None)

    @classmethod
    def resume(cls, path: str | Path) -> "RunDirectory":
        """Open a run to go on with it: take its lock and delete temporary files a killed process left."""
        path = Path(path)
        _check_whole(path)
        _read_settings(path)
        lock = RunLock(path / "run.lock")
        try:
            run = cls(path, _read_settings(path), lock)  # again, now that nobody else can change them
            for temporary in durable.temporaries(path) + durable.temporaries(run.checkpoints_path):
                disk.unlink(temporary)
        except OSError as error:
            lock.release()
            raise _cannot("write to", path, error) from error
        except BaseException:
            lock.release()
            raise
        return run

    def update_settings(self, settings: Mapping[str, Any]) -> None:
        """Replace the settings, durably; only for the one who holds the run."""
        if self._lock is None:
            raise RunError(f"{self.path} is open for reading only: resume it to change its settings")
        try:
            durable.write_atomic(self.settings_path, _settings_text(settings))
        except OSError as error:
            raise _cannot("write", self.settings_path, error) from error
        self.settings = _read_settings(self.path)

    def close(self) -> None:
        """Let other processes have the run."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> "RunDirectory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def settings_path(self) -> Path:
        """settings.json: everything needed to run it again."""
        return self.path / "settings.json"

    @property
    def environment_path(self) -> Path:
        """environment.json: the machine and the versions the run was begun with."""
        return self.path / "environment.json"

    @property
    def metrics_path(self) -> Path:
        """metrics.jsonl: see metrics.py."""
        return self.path / "metrics.jsonl"

    @property
    def accepted_path(self) -> Path:
        """accepted.log: see accepted.py; all chains in one file."""
        return self.path / "accepted.log"

    @property
    def checkpoints_path(self) -> Path:
        """checkpoints/: see checkpoints.py."""
        return self.path / "checkpoints"

    @property
    def environment(self) -> dict[str, Any]:
        """The contents of environment.json."""
        return _read_table(self.environment_path)


def how_to_go_on(path: str | Path, settings: Mapping[str, Any]) -> str:
    """Return the words for what goes on with a run, which depends on what made it."""
    if "optimize" in settings:
        return f"`gradless optimize --resume --trust --run {in_shell(path)}`"
    if "problem" in settings:
        return f"`gradless resume {in_shell(path)}` (in Python gl.resume)"
    return "gl.resume in Python"  # only Python can give its loss again


def next_run_path(root: str | Path, problem: str, today: date) -> Path:
    """Make and return the folder `<root>/<problem>-<date>-<n>` with the next n; two processes never get the same."""
    root = Path(root)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", problem).strip("-.") or "run"
    stem = f"{name[:100]}-{today.isoformat()}-"
    try:
        durable.make_folders(root)
        tails = [path.name[len(stem) :] for path in root.iterdir() if path.name.startswith(stem)]
        number = 1 + max((int(tail) for tail in tails if re.fullmatch(r"[0-9]{1,9}", tail)), default=0)
        while not durable.make_folders(root / f"{stem}{number}"):
            number += 1
    except OSError as error:
        raise _cannot("make", root, error) from error
    return root / f"{stem}{number}"


def has_checkpoint(run: Path) -> bool:
    """Return whether a run has got anywhere: a damaged one too, which must be told and never begun anew."""
    folder = run / "checkpoints"
    return folder.is_dir() and bool(list_checkpoints(folder))


def _check_free(path: Path, overwrite: bool) -> None:
    """A lock file and temporary files are nobody's data: a creation that was killed leaves them."""
    leftovers = {"run.lock", *(entry.name for entry in durable.temporaries(path))}
    names = {entry.name for entry in path.iterdir()} - leftovers
    if not names:
        return
    if "settings.json" not in names:
        raise RunError(f"{path} is not empty and holds no gradless run: choose another folder")
    try:
        settings = _read_settings(path)
    except DamagedError as error:
        raise DamagedError(f"{error}, delete the folder, or choose another") from error
    if not overwrite:
        raise RunError(
            f"{path} already holds a run: go on with {how_to_go_on(path, settings)}, "
            "or give --overwrite (overwrite=True)"
        )


def _write_new(path: Path, settings: bytes, environment: bytes) -> None:
    """The settings come first, so that a half-made run is known as ours and can be overwritten."""
    durable.write_atomic(path / "settings.json", settings)
    durable.write_atomic(path / "environment.json", environment)
    durable.write_atomic(path / "metrics.jsonl", b"")
    AcceptedLog.create(path / "accepted.log")
    durable.make_folders(path / "checkpoints")


def _check_whole(path: Path) -> None:
    """Links are refused: in a run copied from elsewhere they could lead our writes out of it."""
    if not path.is_dir():
        raise RunError(f"{path} is not a folder: give the folder of a run")
    if not (path / "settings.json").exists():
        raise RunError(f"{path} holds no gradless run: it has no settings.json")
    for name in ("settings.json", "environment.json", "metrics.jsonl", "accepted.log", "checkpoints", "run.lock"):
        entry = path / name
        if entry.is_symlink():
            raise RunError(f"{entry} is a link, which a run must not contain: put the file itself there")
        if name != "run.lock" and not (entry.is_dir() if name == "checkpoints" else entry.is_file()):
            again = "start again with --overwrite (overwrite=True)"
            raise DamagedError(f"{path} lacks {name}: restore it from a copy, or {again}")


def _read_settings(path: Path) -> dict[str, Any]:
    table = _read_table(path / "settings.json")
    version = table.get("format_version")
    if table.get("format") != FORMAT or type(version) is not int or not isinstance(table.get("settings"), dict):
        raise RunError(f"{path / 'settings.json'} is not that of a gradless run: choose another folder")
    if version > FORMAT_VERSION:
        words = f"{path} has run format {version}, this gradless reads up to {FORMAT_VERSION}"
        raise NewerFormatError(f"{words}: use a newer gradless")
    return table["settings"]


def _read_table(path: Path) -> dict[str, Any]:
    try:
        table = json_text.loads(path.read_bytes())
    except OSError as error:
        raise _cannot("read", path, error) from error
    except ValueError as error:
        raise DamagedError(f"{path} is not JSON ({str(error)[:80]}): restore it from a copy") from None
    if not isinstance(table, dict):
        raise DamagedError(f"{path} holds no JSON table: restore it from a copy")
    return table


def _settings_text(settings: Mapping[str, Any]) -> bytes:
    return _text({"format": FORMAT, "format_version": FORMAT_VERSION, "settings": settings})


def _text(table: Mapping[str, Any]) -> bytes:
    return json_text.dumps(table, indent=2).encode() + b"\n"


def _cannot(verb: str, path: Path, error: OSError) -> RunError:
    return RunError(f"cannot {verb} {path}: {error.strerror or error}")
