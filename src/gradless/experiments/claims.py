"""A claim of the paper and what became of it: one row, one line of PASS, FAIL or NOT DECIDED AT THIS SCALE."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

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
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    unfinished.replace(path)


def read_table(path: Path) -> list[dict[str, Any]]:
    """Return saved rows, numbers as numbers."""
    with path.open(newline="") as file:
        return [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(file)]


def column(rows: Iterable[dict[str, Any]], name: str) -> np.ndarray:
    """Return one column as an array."""
    return np.asarray([row[name] for row in rows])


def _value(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
