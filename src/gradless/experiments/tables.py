"""The tables of a figure: what is drawn and judged, and what a reproduction goes on from where its runs are gone.

Records that are saved as a run goes have a column is_over; a table without it holds runs that have ended alone.
"""

import csv
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gradless.plots import write_rows

COSTS = "costs.csv"  # beside the data of a figure: its runs, their seeds, steps and time
ANEW = "restore it, or delete it and run the figure again, which trains what is not stored in its runs"
Row = dict[str, Any]


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Save rows of numbers and words as CSV, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_rows(path, rows)


def read_table(path: Path) -> list[Row]:
    """Return saved rows, numbers as numbers; refuse a table that was cut off or is none."""
    with path.open(newline="", encoding="utf-8") as file:
        try:
            lines = [(number, line) for number, line in enumerate(csv.reader(file), start=1) if line]
        except (UnicodeDecodeError, csv.Error):
            lines = []
    if len(lines) < 2:  # none is saved without a row
        raise ValueError(f"{path} is no table: {ANEW}")
    (_, header), *rows = lines
    for number, row in rows:
        if len(row) != len(header):
            words = f"{path} is damaged: line {number} has {len(row)} of {len(header)} columns"
            raise ValueError(f"{words}: {ANEW}")
    return [dict(zip(header, map(_value, row), strict=True)) for _, row in rows]


def table_so_far(path: Path, *columns: str) -> list[Row]:
    """Return saved rows, or none while that part has not been run; refuse a table without some of these columns."""
    rows = read_table(path) if path.exists() else []
    if missing := [name for name in columns if rows and name not in rows[0]]:
        raise ValueError(f"{path} has no column {missing[0]}: {ANEW}")
    return rows


def column(rows: Iterable[Row], name: str) -> np.ndarray:
    """Return one column as an array."""
    return np.asarray([row[name] for row in rows])


def over(rows: Iterable[Row], run_of: Callable[[Row], Hashable]) -> set[Hashable]:
    """Return the runs that have ended by themselves; one that was stopped is to go on."""
    return {run_of(row) for row in rows if row["is_over"]}


def reach(rows: Iterable[Row], step: str = "step") -> tuple[bool, float]:
    """Return how far a run has come, as something to compare: whether it is over, then its steps."""
    rows = list(rows)
    return any(row["is_over"] for row in rows), max((row[step] for row in rows), default=-1.0)


def furthest(noted: Iterable[Row], made: Iterable[Row], run_of: Callable[[Row], Hashable]) -> list[Row]:
    """Return the rows of all runs, of one that is in both tables those that got further.

    noted: as the table has them, perhaps from another machine.
    made: of the runs that are stored here.
    """
    one, other = _by_run(noted, run_of), _by_run(made, run_of)
    best = {run: max(other.get(run, []), one.get(run, []), key=reach) for run in {**one, **other}}
    return [row for rows in best.values() for row in rows]


def _by_run(rows: Iterable[Row], run_of: Callable[[Row], Hashable]) -> dict[Hashable, list[Row]]:
    runs: dict[Hashable, list[Row]] = {}
    for row in rows:
        runs.setdefault(run_of(row), []).append(row)
    return runs


def _value(text: str) -> Any:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text
