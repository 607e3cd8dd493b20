"""metrics.jsonl read as it grows: each call reads only what was written since the last one."""

from array import array
from pathlib import Path
from typing import Any

import numpy as np

from .metrics import MAX_LINE_BYTES, parse_line

MAX_COLUMNS = 64
COMMON = ("step", "seconds")  # to all chains
MAX_STEP = 2**53  # beyond that a float does not hold it


class Tail:
    """The columns of a metrics file, also while it is written, cut back or replaced; unlike rows are left out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begin()

    def _begin(self) -> None:
        self.left_out = 0  # lines that are damaged, or not like the first
        self.num_rows = 0
        self._columns: dict[str, array] = {}
        self._widths: dict[str, int] = {}  # chains, 0 for a plain number
        self._end, self._last_line = 0, b""

    def read(self) -> bool:
        """Take in what is new; True if anything is. A file that was cut back or replaced is read from its start."""
        with self.path.open("rb") as file:
            is_other = not self._goes_on(file)
            if is_other:
                had_rows = self.num_rows > 0
                self._begin()
                file.seek(0)
            before = self._end
            while (line := file.readline(MAX_LINE_BYTES)).endswith(b"\n") or len(line) == MAX_LINE_BYTES:
                self._end += len(line)
                self._last_line = line
                row = parse_line(line)
                if row is None or not self._take(row):
                    self.left_out += 1
        return self._end > before or (is_other and had_rows)

    def _goes_on(self, file: Any) -> bool:
        """A resumed run may have cut the file and written beyond the old end since: the last line tells."""
        file.seek(max(0, self._end - len(self._last_line)))
        return file.read(len(self._last_line)) == self._last_line

    def table(self) -> dict[str, np.ndarray]:
        """The columns as arrays of shape (records,) or (records, chains)."""
        arrays = {name: np.frombuffer(column, dtype=float).copy() for name, column in self._columns.items()}
        widths = self._widths
        return {name: values.reshape(-1, widths[name]) if widths[name] else values for name, values in arrays.items()}

    def _take(self, row: dict[str, Any]) -> bool:
        """A row counts if it has the first row's numbers and does not go back in steps."""
        if not self._columns:
            self._widths = _widths(row)
            self._columns = {name: array("d") for name in self._widths}
        if any(_width(row.get(name)) != width for name, width in self._widths.items()):
            return False
        if row["step"] > MAX_STEP or (self.num_rows and row["step"] < self._columns["step"][-1]):
            return False
        for name, width in self._widths.items():
            self._columns[name].extend(map(_number, row[name] if width else [row[name]]))
        self.num_rows += 1
        return True


def _widths(row: dict[str, Any]) -> dict[str, int]:
    """What a file's first row holds: plain numbers common to all chains, and the rest one per chain, as its loss is."""
    found = {name: _width(value) for name, value in list(row.items())[:MAX_COLUMNS]}
    chains = found.get("loss") or 0
    return {name: width for name, width in found.items() if width == (0 if name in COMMON else chains)}


def _width(value: Any) -> int | None:
    """0 for a number, the length of a list of numbers, None for anything else."""
    if isinstance(value, int | float):
        return 0
    is_list = isinstance(value, list) and value and all(isinstance(one, int | float) for one in value)
    return len(value) if is_list else None


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # JSON has whole numbers of any length
        return float("inf") if value > 0 else -float("inf")
