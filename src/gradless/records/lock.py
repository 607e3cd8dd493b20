"""run.lock: one process at a time works on a run.

The lock is the operating system's (flock), so it ends with its process, however that ends. What is written in the file
only tells others who holds it: a file left by a dead process, or copied from another machine, locks nothing.
"""

import contextlib
import errno
import os
import socket
from datetime import datetime
from pathlib import Path
from typing import Any

from . import disk, json_text
from .errors import RunError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_BUSY = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}
_MAX_BYTES = 4096


class RunLock:
    """Hold a run until `release` or the end of the process; a RunError names the holder if there is another."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = disk.open_shared(path)
        except OSError as error:
            raise RunError(f"cannot lock {path.parent}: {error.strerror}") from error
        try:
            self._claim()
            self._write_holder()
        except BaseException:
            disk.close(self._fd)
            raise

    def release(self) -> None:
        """Let others have the run. The file stays: deleting it could delete the lock of the next holder."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                with contextlib.suppress(OSError):
                    disk.truncate(fd, 0)
            finally:
                with contextlib.suppress(OSError):
                    disk.close(fd)

    def _claim(self) -> None:
        if fcntl is not None:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno in _BUSY:
                    raise RunError(self._refusal()) from None
        # No locks on this system or file system: believe the file if it names a living process of this machine.
        if living_holder(self.path):
            raise RunError(self._refusal())

    def _refusal(self) -> str:
        holder = read_holder(self.path)
        words = f"{self.path.parent} is in use"
        if holder is None:
            return f"{words} by another process: wait for it or stop it"
        words += f" by process {holder['pid']} on {holder['host']} since {holder['since']}"
        if holder["host"] == socket.gethostname() and not _is_alive(holder["pid"]):
            return f"{words}, which has ended but left a child process: stop that one"
        return f"{words}: wait for it or stop it"

    def _write_holder(self) -> None:
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
        with contextlib.suppress(OSError):  # on a full disk the lock holds all the same, only without a name
            disk.truncate(self._fd, 0)
            disk.write(self._fd, json_text.dumps(holder).encode())


def read_holder(path: Path) -> dict[str, Any] | None:
    """Who wrote the lock file last: pid, host and since when; None if it does not say."""
    try:
        with path.open("rb") as file:
            holder = json_text.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError):
        return None
    kinds = {"pid": int, "host": str, "since": str}
    is_ours = isinstance(holder, dict) and all(type(holder.get(name)) is kind for name, kind in kinds.items())
    return {name: holder[name] for name in kinds} if is_ours else None


def living_holder(path: Path) -> dict[str, Any] | None:
    """Who holds the run, as far as the file, the processes of this machine and the lock itself tell."""
    holder = read_holder(path)
    is_alive = holder is not None and holder["host"] == socket.gethostname() and _is_alive(holder["pid"])
    return holder if is_alive and not _is_free(path) else None


def _is_free(path: Path) -> bool:
    """Whether nobody holds the lock, as after a kill, whose process number another may have by now.

    Only for a file that names a living process: while this is found out, a run that begins would be refused.
    """
    if fcntl is None:
        return False
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return True
    except OSError:  # held, or no locks on this file system
        return False


def _is_alive(pid: int) -> bool:
    """Whether a process of this machine runs. (On Windows a signal 0 would end it: there it counts as running.)"""
    if pid == os.getpid() or os.name == "nt":
        return True
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
