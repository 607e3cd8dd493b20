"""A file that only grows, whose new bytes stay in memory until they are known to be on the disk."""

import errno
import os
from pathlib import Path

from . import disk

# Bytes are forced to the disk, and forgotten here, at least this often.
_SYNC_BYTES = 1 << 20
_BATCH = 256  # pieces joined into one write
# What a small bytes object costs besides its contents.
_OBJECT_BYTES = 64


class AppendFile:
    """Appends that survive trouble: after a failed write or fsync the file is cut back and written again.

    A failed fsync may have lost bytes that an earlier write seemed to store, and a second fsync then reports success;
    so nothing is forgotten before an fsync has succeeded, and after a failure all of it is written anew.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self._synced = size  # bytes known to be on the disk
        self._waiting: list[bytes] = []  # what follows them, oldest first
        self.waiting_bytes = 0  # the memory they take
        self._num_written = 0  # how many of the waiting pieces are in the file, not yet fsynced
        self._bytes_written = 0
        self._doubtful = False  # the file may hold anything after its first _synced bytes

    def add(self, data: bytes) -> None:
        """Take bytes into memory; this never fails."""
        self._waiting.append(data)
        self.waiting_bytes += len(data) + _OBJECT_BYTES

    def flush(self) -> None:
        """Write what waits; on OSError all of it still waits."""
        if self._num_written == len(self._waiting) and not self._doubtful:
            return
        self._open_and_write(force=False)

    def sync(self) -> None:
        """Write what waits and return once it would survive a power cut; on OSError all of it still waits."""
        if self._waiting or self._doubtful:
            self._open_and_write(force=True)

    def waiting(self) -> list[bytes]:
        """What is not yet known to be on the disk, piece by piece as it was added."""
        return list(self._waiting)

    def replace_waiting(self, pieces: list[bytes]) -> None:
        """Put other bytes in place of those that wait, when memory runs out."""
        self._waiting = list(pieces)
        self.waiting_bytes = _memory(pieces)
        self._distrust()

    def _distrust(self) -> None:
        self._doubtful = True
        self._num_written = self._bytes_written = 0

    def _open_and_write(self, force: bool) -> None:
        fd = disk.open_append(self.path)
        try:
            self._check_size(os.fstat(fd).st_size)
            if self._doubtful:
                disk.truncate(fd, self._synced)
                self._doubtful = False
            try:
                self._write_pieces(fd, force)
            except BaseException:
                self._distrust()
                raise
        finally:
            disk.close(fd)

    def _write_pieces(self, fd: int, force: bool) -> None:
        while self._num_written < len(self._waiting):
            batch = self._waiting[self._num_written : self._num_written + _BATCH]
            data = b"".join(batch)
            disk.write(fd, data)
            self._num_written += len(batch)
            self._bytes_written += len(data)
            if self._bytes_written >= _SYNC_BYTES:
                self._fsync(fd)
        if force:
            self._fsync(fd)

    def _fsync(self, fd: int) -> None:
        disk.fsync(fd)
        self._synced += self._bytes_written
        self.waiting_bytes -= _memory(self._waiting[: self._num_written])
        del self._waiting[: self._num_written]
        self._num_written = self._bytes_written = 0

    def _check_size(self, size: int) -> None:
        expected = self._synced + self._bytes_written
        if size < self._synced or (size != expected and not self._doubtful):
            # An OSError, because it is trouble with the disk's contents: put the file back and the run goes on.
            words = f"was changed by another program: {size} bytes where this run wrote {expected}"
            raise OSError(errno.EIO, words, str(self.path))


def _memory(pieces: list[bytes]) -> int:
    return sum(len(piece) + _OBJECT_BYTES for piece in pieces)
