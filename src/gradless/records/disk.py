"""Every call of this package that changes the disk, in one place, so that a test can make the k-th of them fail.

Callers write `disk.write(...)`, never `from .disk import write`: the tests replace these functions.
"""

import os
from pathlib import Path

# A link planted in a copied run must not lead a write out of the run directory. (Windows has neither flag.)
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
_BINARY = getattr(os, "O_BINARY", 0)


def create(path: Path) -> int:
    """Open a new or emptied file for writing."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_LINKS | _BINARY, 0o644)


def open_append(path: Path) -> int:
    """Open an existing file for appending; a deleted file is an error, not a reason to begin a new one."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | _NO_LINKS | _BINARY)


def open_shared(path: Path) -> int:
    """Open a file for reading and writing, made if absent, contents kept: the lock file."""
    return os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINKS | _BINARY, 0o644)


def write(fd: int, data: bytes | memoryview) -> None:
    """Write all of the data; the system may take it in several pieces."""
    left = memoryview(data).cast("B")
    while len(left):
        left = left[os.write(fd, left) :]


def truncate(fd: int, size: int) -> None:
    """Cut an open file to its first `size` bytes."""
    os.ftruncate(fd, size)


def fsync(fd: int) -> None:
    """Return once the file's bytes would survive a power cut."""
    os.fsync(fd)


def fsync_folder(folder: Path) -> None:
    """Return once the names in the folder (a rename, a new file) would survive a power cut."""
    if os.name == "nt":  # a folder cannot be opened there, and renames need no such call
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def close(fd: int) -> None:
    """Close an open file."""
    os.close(fd)


def replace(source: Path, target: Path) -> None:
    """Rename a file, in place of the target if there is one, in one indivisible step."""
    os.replace(source, target)


def unlink(path: Path) -> None:
    """Delete a file."""
    os.unlink(path)


def mkdir(path: Path) -> None:
    """Make a folder; an existing one is an error, which makes this a race-free claim on a name."""
    os.mkdir(path)
