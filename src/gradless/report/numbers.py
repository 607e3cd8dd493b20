"""The numbers of a run as text: those at the top of a page, those of each chain, and tables of settings."""

from typing import Any

import numpy as np

from gradless.plots import drawable
from gradless.report import curves
from gradless.report.verdict import short

MAX_ROWS = 200  # of a table of settings
MAX_TEXT = 300
MAX_CHAINS = 100  # rows of the table of chains


def num_chains(table: curves.Table) -> int:
    """Return how many chains a run has."""
    return table["loss"].shape[1] if "loss" in table and table["loss"].ndim == 2 else 1


def numbers(table: curves.Table) -> list[dict[str, str]]:
    """Return the numbers that stand at the top of a page, each with its name and, of several chains, its extremes."""
    if not len(table.get("loss", ())):
        return []
    found = []
    for name in ["loss", *curves.metric_names(table)]:
        found.append(_tile(curves.LABELS.get(name, name.replace("_", " ")), curves.last_known(drawable(table[name]))))
    if "acceptance" in table:
        found.append(_tile("acceptance A", curves.overall_acceptance(table)))
    if "sigma" in table:
        found.append(_tile("move scale σ", curves.last_known(table["sigma"])))
    found.append({"label": "steps", "value": f"{int(table['step'][-1]):,}", "more": ""})
    if "samples" in table:
        total = float(np.nansum(curves.last_known(table["samples"])))
        found.append({"label": "samples seen", "value": count(total), "more": ""})
    if "seconds" in table:
        found.append({"label": "time", "value": duration(float(table["seconds"][-1])), "more": ""})
    return [one for one in found if one["value"] != "nan"]


def _tile(label: str, values: np.ndarray) -> dict[str, str]:
    known = values[np.isfinite(values)]
    more = f"{short(known.min())} to {short(known.max())}" if len(known) > 1 else ""
    return {"label": label, "value": short(np.median(known)) if len(known) else "nan", "more": more}


def count(number: float) -> str:
    """Return a large number as people say it."""
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if number >= size:
            return f"{number / size:.3g} {word}"
    return f"{number:,.0f}"


def duration(seconds: float) -> str:
    """Return a time as people say it."""
    if not np.isfinite(seconds):
        return "nan"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def chain_rows(table: curves.Table, algorithm: dict[str, Any], stored: Any) -> list[list[str]]:
    """Return a header and a row per chain, with the settings that differ among them; nothing of one chain alone.

    stored: the chains' numbers, as the settings have them.
    """
    number = num_chains(table)
    if number == 1:
        return []
    own = {name: value for name, value in algorithm.items() if isinstance(value, list) and len(value) == number}
    columns = {name: [short(one) if isinstance(one, float) else str(one) for one in own[name]] for name in own}
    columns |= {
        "at the end: " + name if name in own else name: [short(one) for one in curves.last_known(drawable(table[name]))]
        for name in ["loss", *curves.metric_names(table), "sigma"]
        if name in table
    }
    if "acceptance" in table:
        columns["acceptance"] = [short(one) for one in curves.overall_acceptance(table)]
    rows = zip(*columns.values(), strict=True)
    header = ["chain", *[name.replace("_", " ") for name in columns]]
    chains = stored if isinstance(stored, list) and len(stored) == number else range(number)
    return [header, *[[str(chain)[:MAX_TEXT], *row] for chain, row in zip(chains, rows, strict=True)][:MAX_CHAINS]]


def flat_rows(value: Any, name: str = "") -> list[list[str]]:
    """Return nested settings as rows of name and value, as text."""
    if isinstance(value, dict) and value:
        rows = [row for key, item in value.items() for row in flat_rows(item, f"{name}.{key}" if name else str(key))]
        return rows[:MAX_ROWS]
    if isinstance(value, list):
        value = ", ".join(str(item) for item in value[:50]) + (", ..." if len(value) > 50 else "")
    words = {"True": "yes", "False": "no", "None": "none", "{}": "none"}.get(str(value), str(value))
    return [[name[:MAX_TEXT], words[:MAX_TEXT]]]


def notes_on(table: curves.Table) -> list[str]:
    """Return what a reader should know that no number at the top says."""
    notes = []
    if "nonfinite" in table and len(table["nonfinite"]):
        number = int(np.nansum(curves.last_known(table["nonfinite"])))
        if number:
            notes.append(f"{number:,} proposals were rejected because their loss was not a number.")
    return notes
