"""The curves of a run as plain lists, thinned so that a page stays small however long the run was."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from gradless.plots import LABELS, PERCENTILES, drawable, held, smooth
from gradless.records import COLUMNS

MAX_POINTS = 1000
MAX_LINES = 8  # chains drawn one by one; of more only the band and the median
NUM_LOSS_BINS = 40
EARLY = 16  # records at the powers of two, which a logarithmic axis needs
ABSCISSAS = ("step", "evaluations", "samples", "seconds")

Table = dict[str, np.ndarray]


def metric_names(table: Table) -> list[str]:
    """Return the names of the problem's own metrics."""
    return [name for name in table if name not in COLUMNS]


def curves(table: Table) -> dict[str, Any]:
    """Return the abscissas and, of each quantity, the median with the band and the chains."""
    names = ["loss", *metric_names(table), "acceptance", "sigma"]
    names = [name for name in names if name in table and np.isfinite(drawable(table[name])).any()]
    if not names:
        return {"x": {}, "series": [], "by_loss": None}
    values = {name: drawable(smooth(table[name]) if name == "acceptance" else table[name]) for name in names}
    kept = thinned({name: middle(held(values[name])) for name in names})
    abscissas = {name: plain(middle(held(table[name]))[kept]) for name in ABSCISSAS if name in table}
    return {
        "x": abscissas,
        "series": [series(name, values[name][kept]) for name in names],
        "by_loss": acceptance_by_loss(table),
    }


def series(name: str, values: np.ndarray) -> dict[str, Any]:
    """Return one quantity: its median, and of several chains the band and, if they are few, each of them.

    In median and band a chain that has ended stays where it was.
    """
    found: dict[str, Any] = {
        "name": name,
        "label": LABELS.get(name, name.replace("_", " ")),
        "y": plain(middle(held(values))),
    }
    found["is_fraction"] = name in ("accuracy", "acceptance")
    if values.ndim == 2 and values.shape[1] > 1:
        low, high = (plain(percentile(held(values), which)) for which in (PERCENTILES[0], PERCENTILES[-1]))
        lines = [plain(column) for column in values.T] if values.shape[1] <= MAX_LINES else []
        found |= {"low": low, "high": high, "chains": lines}
    return found


def middle(values: np.ndarray) -> np.ndarray:
    """Return the median over the chains that have a number there."""
    return values if values.ndim == 1 else percentile(values, 50)


def percentile(values: np.ndarray, which: float) -> np.ndarray:
    """Return a percentile over the chains; NaN where none of them has a number."""
    out = np.full(len(values), np.nan)
    is_known = np.isfinite(values).any(axis=1)
    if is_known.any():
        finite = np.where(np.isfinite(values[is_known]), values[is_known], np.nan)
        out[is_known] = np.nanpercentile(finite, which, axis=1)
    return out


def thinned(values: dict[str, np.ndarray]) -> np.ndarray:
    """Return the places of at most about 1000 records, with the least and the greatest of every stretch among them."""
    number = len(next(iter(values.values())))
    if number <= MAX_POINTS:
        return np.arange(number)
    kept = {*range(EARLY), number - 1}
    num_stretches = (MAX_POINTS - EARLY) // (2 * len(values))
    for stretch in np.array_split(np.arange(EARLY, number), num_stretches):
        for column in values.values():
            part = column[stretch]
            if np.isfinite(part).any():
                kept |= {int(stretch[np.nanargmin(part)]), int(stretch[np.nanargmax(part)])}
    return np.asarray(sorted(kept))


def acceptance_by_loss(table: Table) -> dict[str, list[float | None]] | None:
    """Return the fraction of moves accepted while the loss was in each of some forty intervals, all chains together.

    Paper: Fig. 2.
    """
    if not {"loss", "acceptance", "step"} <= table.keys() or len(table["step"]) < 3:
        return None
    acceptance, loss = (drawable(table[name]).reshape(len(table["step"]), -1)[1:] for name in ("acceptance", "loss"))
    weight = np.broadcast_to(np.diff(table["step"])[:, None], acceptance.shape)
    is_known = np.isfinite(acceptance) & np.isfinite(loss) & (weight > 0)
    acceptance, loss, weight = acceptance[is_known], loss[is_known], weight[is_known]
    if len(loss) < 2 or loss.min() == loss.max():
        return None
    is_log = loss.min() > 0 and loss.max() > 3 * loss.min()
    edges = (np.geomspace if is_log else np.linspace)(loss.min(), loss.max(), NUM_LOSS_BINS + 1)
    place = np.clip(np.digitize(loss, edges) - 1, 0, NUM_LOSS_BINS - 1)
    steps = np.bincount(place, weight, NUM_LOSS_BINS)
    accepted = np.bincount(place, weight * acceptance, NUM_LOSS_BINS)
    centre = np.bincount(place, weight * loss, NUM_LOSS_BINS)
    is_full = steps > 0
    return {"loss": plain(centre[is_full] / steps[is_full]), "acceptance": plain(accepted[is_full] / steps[is_full])}


def per_window(acceptance: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Return the fraction accepted since the record before, of a fraction counted from the beginning of the run."""
    window = np.diff(step)
    out = np.full(len(step), np.nan)
    np.divide(np.diff(acceptance * step), window, out=out[1:], where=window > 0)
    return out


def overall_acceptance(table: Table) -> np.ndarray:
    """Return the fraction of moves accepted over the whole run, one per chain; NaN where nothing is known."""
    acceptance = table["acceptance"].reshape(len(table["step"]), -1)
    weight = np.where(np.isfinite(acceptance), np.diff(table["step"], prepend=0.0)[:, None], 0.0)
    total = weight.sum(axis=0)
    accepted = np.where(np.isfinite(acceptance), acceptance, 0.0) * weight
    return np.divide(accepted.sum(axis=0), total, out=np.full(len(total), np.nan), where=total > 0)


def last_known(values: np.ndarray) -> np.ndarray:
    """Return the last finite number of each chain: one that has ended early says NaN from there on."""
    columns = values.reshape(len(values), -1).T
    finite = [column[np.isfinite(column)] for column in columns]
    return np.asarray([column[-1] if len(column) else np.nan for column in finite])


def plain(values: Iterable[float]) -> list[float | None]:
    """Return numbers for JSON: six digits, which is more than a chart shows, and null for what is no number."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
