"""Writes that are whole or absent, whatever happens in between: kill -9, a power cut, a full disk."""

import contextlib
import os
import re
import threading
from collections.abc import Iterable
from pathlib import Path

from . import disk

_TEMPORARY = re.compile(r"\..+\.\d+\.gradless-tmp")


def write_atomic(path: Path, data: bytes | Iterable[bytes | memoryview]) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part: temporary file, fsync, rename."""
    # Another process or thread may be writing the same file; this one takes the place of what it could not delete.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.gradless-tmp")
    try:
        fd = disk.create(temporary)
        try:
            for part in [data] if isinstance(data, bytes) else data:
                disk.write(fd, part)
            disk.fsync(fd)
        finally:
            disk.close(fd)
        disk.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            disk.unlink(temporary)
        raise
    disk.fsync_folder(path.parent)


def cut(path: Path, size: int) -> None:
    """Keep the first `size` bytes of a file, durably."""
    fd = disk.open_append(path)
    try:
        disk.truncate(fd, size)
        disk.fsync(fd)
    finally:
        disk.close(fd)


def set_aside(path: Path) -> Path:
    """Rename a damaged file to `<name>.damaged` (or `-2`, `-3`, ...): out of the way, never deleted."""
    target = path.with_name(path.name + ".damaged")
    number = 2
    while os.path.lexists(target):
        target = path.with_name(f"{path.name}.damaged-{number}")
        number += 1
    disk.replace(path, target)
    disk.fsync_folder(path.parent)
    return target


def temporaries(folder: Path) -> list[Path]:
    """The temporary files a killed process left in a folder."""
    return sorted(path for path in folder.iterdir() if _TEMPORARY.fullmatch(path.name) and not path.is_dir())


def make_folders(path: Path) -> bool:
    """Make a folder and those above it, durably; False if it was there before."""
    if not path.parent.exists():
        make_folders(path.parent)
    try:
        disk.mkdir(path)
    except FileExistsError:
        return False
    disk.fsync_folder(path.parent)
    return True
