"""Training as nucleation: how long runs wait, and whether two kinds of run wait equally long. Paper: Sec. II E."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import chi2


def induction_times(rows: Sequence[dict[str, Any]], end: float) -> tuple[np.ndarray, np.ndarray]:
    """Return when runs trained and whether they did; one that has frozen will not, and waits to the end of all runs."""
    seen = np.asarray([row["end"] == "trained" for row in rows], bool)
    waited = [end if row["end"] == "frozen" else float(row["steps"]) for row in rows]
    times = [float(row["induction"]) if is_seen else w for row, is_seen, w in zip(rows, seen, waited, strict=True)]
    return np.asarray(times), seen


def end_of(rows: Sequence[dict[str, Any]]) -> float:
    """Return how long the longest of all runs that are compared has gone on."""
    return max((float(row["steps"]) for row in rows), default=0.0)


def survival(times: np.ndarray, is_event: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the times of events and the share of runs that wait beyond each, by Kaplan and Meier.

    Runs that were stopped count as long as they were watched: at each time with d events among n runs still waiting
    the share falls by the factor 1 - d/n.
    """
    when = np.unique(times[is_event])
    factors = [1 - np.sum(is_event & (times == time)) / np.sum(times >= time) for time in when]
    return when, np.cumprod(factors)


def log_rank(times: np.ndarray, is_event: np.ndarray, is_first: np.ndarray) -> tuple[float, float, float]:
    """Return observed and expected events of the first of two groups, and their variance under equal rates.

    At each time with d events among n runs still waiting, n_1 of them of the first group, the number of events in that
    group is hypergeometric: mean d n_1/n, variance d (n_1/n) (1 - n_1/n) (n - d)/(n - 1).
    """
    observed = expected = variance = 0.0
    for time in np.unique(times[is_event]):
        waiting, now = times >= time, is_event & (times == time)
        n, d, share = int(waiting.sum()), int(now.sum()), (waiting & is_first).sum() / waiting.sum()
        observed += float((now & is_first).sum())
        expected += d * share
        variance += d * share * (1 - share) * (n - d) / (n - 1) if n > 1 else 0.0
    return observed, float(expected), float(variance)


def p_value(parts: np.ndarray) -> float:
    """Return how likely so large a difference is under equal rates, from what `log_rank` returns."""
    observed, expected, variance = parts
    return float(chi2.sf((observed - expected) ** 2 / variance, 1)) if variance > 0 else 1.0
