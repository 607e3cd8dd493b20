"""A disk that fails on demand: the k-th call that changes it, once or from then on, or with a power cut."""

import os
from pathlib import Path
from typing import Any

import pytest

from gradless.records import disk

CALLS = [
    "create",
    "open_append",
    "open_shared",
    "write",
    "truncate",
    "fsync",
    "fsync_folder",
    "close",
    "replace",
    "unlink",
    "mkdir",
]


class PowerCut(BaseException):
    """The machine stops here: no handler of the code under test may do anything useful with it."""


class FaultyDisk:
    """Counts the calls of `disk` and makes some fail; remembers what a power cut would lose."""

    PowerCut = PowerCut

    def __init__(self, backups: Path) -> None:
        self.real = {name: getattr(disk, name) for name in CALLS}
        # What is durable is modelled here, so the real and slow calls are not needed.
        self.real["fsync"] = self.real["fsync_folder"] = lambda _: None
        self.backups = backups
        self.clear()
        self.synced: dict[int, int] = {}  # inode: bytes that would survive a power cut
        self.renames: list[tuple[Path, Path | None]] = []  # target and its earlier contents, folder not yet fsynced

    def clear(self) -> None:
        """No faults from here on; counts from 0."""
        self.count = 0
        self.fail_at = -1
        self.forever = False
        self.only: set[str] = set(CALLS)
        self.error: int | None = None  # None: a power cut
        self.log: list[str] = []

    def arm(self, fail_at: int, error: int | None, forever: bool = False, only: set[str] | None = None) -> None:
        """Makes call number `fail_at` (from 1) fail, and with `forever` all that follow."""
        self.clear()
        self.fail_at, self.error, self.forever, self.only = fail_at, error, forever, only or set(CALLS)

    def call(self, name: str, *args: Any) -> Any:
        if name in self.only:
            self.count += 1
            self.log.append(name)
            if self.count == self.fail_at or (self.count > self.fail_at > 0 and (self.forever or self.error is None)):
                self.fail(name, *args)
        if name == "replace":
            self.before_rename(args[1])
        result = self.real[name](*args)
        if name == "create":
            self.synced[os.fstat(result).st_ino] = 0
        elif name == "fsync":
            self.synced[os.fstat(args[0]).st_ino] = os.fstat(args[0]).st_size
        elif name == "fsync_folder":
            self.renames = [pair for pair in self.renames if pair[0].parent != args[0]]
        return result

    def fail(self, name: str, *args: Any) -> None:
        if name == "write":  # half of it arrives
            self.real["write"](args[0], bytes(args[1])[: len(bytes(args[1])) // 2])
        if name == "close":
            self.real["close"](args[0])
        if name == "fsync" and self.error is not None:  # what was written since the last fsync is lost
            state = os.fstat(args[0])
            os.ftruncate(args[0], min(state.st_size, self.synced.get(state.st_ino, state.st_size)))
        if self.error is None:
            raise PowerCut
        raise OSError(self.error, os.strerror(self.error))

    def before_rename(self, target: Path) -> None:
        backup = None
        if target.exists():
            backup = self.backups / str(len(list(self.backups.iterdir())))
            backup.write_bytes(target.read_bytes())
        self.renames.append((target, backup))

    def lose_power(self, folder: Path) -> None:
        """Takes back what no fsync covers: renames, and bytes at the ends of files."""
        for target, backup in reversed(self.renames):
            if target.exists():
                target.unlink()
                if backup is not None:
                    target.write_bytes(backup.read_bytes())
        for path in folder.rglob("*"):
            kept = self.synced.get(path.stat().st_ino)
            if path.is_file() and kept is not None and kept < path.stat().st_size:
                os.truncate(path, kept)
        self.renames.clear()
        self.synced.clear()
        self.clear()


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> FaultyDisk:
    faulty = FaultyDisk(tmp_path_factory.mktemp("backups"))
    for name in CALLS:
        monkeypatch.setattr(disk, name, lambda *args, name=name: faulty.call(name, *args))
    return faulty
