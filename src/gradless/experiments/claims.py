"""A claim of the paper and what became of it: one row, one line of PASS, FAIL or NOT DECIDED AT THIS SCALE."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gradless.records import write_atomic

PASS, FAIL, NOT_DECIDED = "PASS", "FAIL", "NOT DECIDED AT THIS SCALE"
COSTS = "costs.csv"  # beside the data of a figure: its runs, their seeds, steps and time


class Verdict(NamedTuple):
    """What one claim says, what was measured, the rule, and the outcome."""

    claim: str  # its id in the table of claims, for instance "F3a"
    says: str  # the claim in a few words
    measured: str
    rule: str
    outcome: str  # PASS, FAIL or NOT_DECIDED
    differs: str = ""  # where we deviate from the paper's text, and why


def judge(
    claim: str, says: str, measured: str, rule: str, holds: bool, is_decided: bool = True, differs: str = ""
) -> Verdict:
    """Return the verdict; a scale too small to decide never passes."""
    outcome = (PASS if holds else FAIL) if is_decided else NOT_DECIDED
    return Verdict(claim, says, measured, rule, outcome, differs)


def not_run(claim: str, says: str, missing: Sequence[str], rule: str) -> Verdict:
    """Return the verdict on a claim whose runs are not all there."""
    return judge(claim, says, f"not run yet: {', '.join(missing)}", rule, holds=False, is_decided=False)


def write_table(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Save rows of numbers and words as CSV, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(path, text.getvalue().encode())


def read_table(path: Path) -> list[dict[str, Any]]:
    """Return saved rows, numbers as numbers; refuse a table that was cut off or is none."""
    with path.open(newline="", encoding="utf-8") as file:
        try:
            lines = [(number, line) for number, line in enumerate(csv.reader(file), start=1) if line]
        except (UnicodeDecodeError, csv.Error):
            lines = []
    if not lines:
        raise ValueError(f"{path} is no table: delete it and run the figure again")
    (_, header), *rows = lines
    for number, row in rows:
        if len(row) != len(header):
            words = f"{path} is damaged: line {number} has {len(row)} of {len(header)} columns"
            raise ValueError(f"{words}: delete it and run the figure again")
    return [dict(zip(header, map(_value, row), strict=True)) for _, row in rows]


def table_so_far(path: Path) -> list[dict[str, Any]]:
    """Return saved rows, or none while that part has not been run."""
    return read_table(path) if path.exists() else []


def column(rows: Iterable[dict[str, Any]], name: str) -> np.ndarray:
    """Return one column as an array."""
    return np.asarray([row[name] for row in rows])


def _value(text: str) -> Any:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text
