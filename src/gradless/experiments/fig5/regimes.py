"""The two regimes of the gradient along aMC's path: on the plateau U = ln 2, where it vanishes, and off it."""

from typing import Any

import numpy as np

from gradless.experiments.fig5.settings import LN2, Scale
from gradless.experiments.tables import column

AROUND = 10  # records on either side of one whose gradients tell how large they are there; single ones jump


def regimes(rows: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradient's norm while U is within 1% of ln 2, and after it has left that plateau for good."""
    norms = column(rows, "gradient_norm")
    small, large = norms[_is_on_plateau(rows)], norms[plateau_end(rows) :]
    return small[~np.isnan(small)], large[~np.isnan(large)]  # what overflowed on its way is none


def plateau_end(rows: list[dict[str, Any]]) -> int:
    """Return the place of the first record after the last on the plateau U = ln 2; 0 if there is none on it."""
    on_plateau = np.flatnonzero(_is_on_plateau(rows))
    return int(on_plateau[-1]) + 1 if len(on_plateau) else 0


def _is_on_plateau(rows: list[dict[str, Any]]) -> np.ndarray:
    return np.asarray(np.abs(column(rows, "loss") / LN2 - 1) <= 0.01)


def steepest(rows: list[dict[str, Any]], scale: Scale) -> int | None:
    """Return the step off the plateau about which the gradient is largest; None if aMC has not got that far yet."""
    left = plateau_end(rows)
    last = left + scale.steps_large // scale.record_every
    if left == 0 or (last + AROUND > len(rows) and not rows[-1]["is_over"]):
        return None
    norms = column(rows, "gradient_norm")
    windows = [norms[max(left, i - AROUND) : i + AROUND + 1] for i in range(left, min(last, len(rows)))]
    # Where all gradients of a window overflowed, nothing is known of how large they are.
    medians = [-np.inf if np.isnan(window).all() else np.nanmedian(window) for window in windows]
    return int(rows[left + int(np.argmax(medians))]["step"]) if medians else None
