"""metrics.jsonl: one line of JSON per recorded step, only ever appended to, readable while the run goes on.

Every row holds "step", the number of steps done when it was taken. NaN and the infinities are written as the strings
"NaN", "Infinity" and "-Infinity" and come back as floats.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from . import durable, json_text
from .append_file import AppendFile
from .errors import DamagedError

# What every record of a run holds, once those of all chains are merged; the rest are the problem's own metrics.
COLUMNS = (
    *("step", "seconds", "epoch", "evaluations", "samples"),
    *("loss", "acceptance", "sigma", "nonfinite", "is_frozen"),
)
MAX_LINE_BYTES = 1 << 20
_PIECE = 1 << 16


class Metrics:
    """The metrics of a run: append, read, cut back to a step. Memory does not grow with the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: AppendFile | None = None

    @staticmethod
    def check_row(row: Mapping[str, Any]) -> None:
        """Refuse a row that `add` would refuse."""
        _line(row)

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take rows into memory, to be written by `flush` or `sync`."""
        lines = [_line(row) for row in rows]
        file = self._open()
        for line in lines:
            file.add(line)

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows; on OSError they wait in memory and the next `append`, `flush` or `sync` writes them."""
        self.add(rows)
        self.flush()

    def flush(self) -> None:
        """Write what waits in memory."""
        self._open().flush()

    def sync(self) -> None:
        """Write what waits in memory and return once it would survive a power cut."""
        self._open().sync()

    @property
    def waiting_bytes(self) -> int:
        """The memory taken by rows not yet known to be on the disk."""
        return self._file.waiting_bytes if self._file else 0

    def thin_waiting(self) -> int:
        """Drop every second waiting row, so that a long trouble keeps a coarser curve; return how many were dropped.

        The newest row is always kept.
        """
        if self._file is None:
            return 0
        waiting = self._file.waiting()
        kept = waiting[::-2][::-1]
        self._file.replace_waiting(kept)
        return len(waiting) - len(kept)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows in the order written; a torn end is left out, damage before good rows is a RunError."""
        damaged = 0
        for number, _, row in _lines(self.path):
            if row is None:
                damaged = damaged or number
            elif damaged:
                raise _damaged(self.path, damaged)
            else:
                yield row

    def truncate_after(self, step: int) -> None:
        """Cut back to a checkpoint: no row with a greater step remains, nor a torn line; other rows are untouched."""
        self._file = None
        end, is_prefix, dropped, damaged = 0, True, False, 0
        for number, line_end, row in _lines(self.path):
            if row is None:
                damaged = damaged or number
            elif row["step"] > step:
                dropped = True
            elif damaged:
                raise _damaged(self.path, damaged)
            else:
                is_prefix = is_prefix and not dropped
                end = line_end
        if not is_prefix:
            durable.write_atomic(self.path, _kept_lines(self.path, step))
        elif end < self.path.stat().st_size:
            durable.cut(self.path, end)

    def repair(self) -> None:
        """Cut a torn last line."""
        size = self.path.stat().st_size
        end = _end_of_last_line(self.path, size)
        if end < size:
            durable.cut(self.path, end)

    def _open(self) -> AppendFile:
        if self._file is None:
            self.repair()
            self._file = AppendFile(self.path, self.path.stat().st_size)
        return self._file


def _line(row: Mapping[str, Any]) -> bytes:
    if not _is_step(row.get("step")):
        raise ValueError(f"a metrics row needs step, an integer of 0 or more, got {row.get('step')!r}")
    line = json_text.dumps({**row, "step": int(row["step"])}).encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"a metrics row must be under {MAX_LINE_BYTES} bytes, got {len(line)}")
    return line


def _is_step(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool) and int(value) >= 0


def _lines(path: Path) -> Iterator[tuple[int, int, dict[str, Any] | None]]:
    """Line number from 1, the byte after the line, and the row: None where the line is torn or damaged."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            yield number, file.tell(), parse_line(line)


def parse_line(line: bytes) -> dict[str, Any] | None:
    """The row of a line; None where it is torn or damaged."""
    if not line.endswith(b"\n"):
        return None
    try:
        row = json_text.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and _is_step(row.get("step")) else None


def _kept_lines(path: Path, step: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES):
            row = parse_line(line)
            if row is not None and row["step"] <= step:
                yield line


def _end_of_last_line(path: Path, size: int) -> int:
    """The byte after the last newline, found from the end."""
    with path.open("rb") as file:
        while size > 0:
            start = max(0, size - _PIECE)
            file.seek(start)
            newline = file.read(size - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            size = start
    return 0


def _damaged(path: Path, number: int) -> DamagedError:
    return DamagedError(f"{path} is damaged at line {number}: delete that line, or restore the file from a copy")
