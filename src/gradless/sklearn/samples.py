"""The training samples as the chain sees them: each different row once, in a fixed order, with its weight.

A chain at zero temperature compares losses to the last digit, and one changed decision changes all that follow. So that
a sample of weight 3 and a sample given three times lead to the same net, both become one row of weight 3 before all
else. The order of the samples then plays no part either.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

ROW_COUNTS = (32, 64, 128, 192, 256)  # small data are filled up to one of these


@dataclass(frozen=True)
class Samples:
    """Inputs, targets (one row each), and weights; weights None means that all are 1."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.x)

    def take(self, index: np.ndarray) -> "Samples":
        """Return the samples at `index`."""
        return Samples(self.x[index], self.y[index], None if self.weight is None else self.weight[index])


def merged(samples: Samples) -> Samples:
    """Return each different pair of input and target once, sorted, its weights added up; weight 0 is left out."""
    weight = np.ones(len(samples)) if samples.weight is None else samples.weight
    kept = samples.take(weight > 0)
    weight = weight[weight > 0]
    # Bytes sort and compare quickly; adding 0 turns -0 into 0, which is the same number in other bytes.
    columns = [(part + 0).reshape(len(kept), -1).view(np.uint8) for part in (kept.y, kept.x)]
    rows = np.ascontiguousarray(np.concatenate(columns, axis=1))
    _, first, place = np.unique(rows.view(f"V{rows.shape[1]}").ravel(), return_index=True, return_inverse=True)
    total = np.bincount(place, weights=weight, minlength=len(first))
    are_equal = bool((total == total[0]).all())
    return Samples(kept.x[first], kept.y[first], None if are_equal else total)


def filled(samples: Samples) -> Samples:
    """Return small data with rows of weight 0 added, so that data of nearly the same size share a compiled program."""
    wanted = next((count for count in ROW_COUNTS if count >= len(samples)), len(samples))
    missing = wanted - len(samples)
    if not missing:
        return samples
    weight = np.ones(len(samples)) if samples.weight is None else samples.weight
    index = np.concatenate([np.arange(len(samples)), np.zeros(missing, int)])
    return Samples(samples.x[index], samples.y[index], np.concatenate([weight, np.zeros(missing)]))


def as_data(samples: Samples, unit: np.ndarray | None, centre: np.ndarray | None) -> dict[str, Any]:
    """Return the arrays that a loss of `losses` reads, one leading axis; `unit` and `centre` are a regressor's."""
    dtype, data = samples.x.dtype, {"x": samples.x, "y": samples.y}
    if samples.weight is not None:
        root = np.sqrt(samples.weight * len(samples) / samples.weight.sum()).astype(dtype)
        data |= {"x": samples.x * root[:, None], "root": root, "weight": samples.weight.astype(dtype)}
    if unit is not None and centre is not None:
        shape = samples.y.shape
        data["z"] = ((samples.y - centre) / unit).astype(dtype)
        data["unit"] = np.broadcast_to(unit, shape).astype(dtype)
        data["centre"] = np.broadcast_to(centre, shape).astype(dtype)
    return data


def units(samples: Samples) -> tuple[np.ndarray, np.ndarray]:
    """Return the spread of each target and its mean: the net's last layer works in these units."""
    centre = np.average(samples.y, axis=0, weights=samples.weight)
    spread = np.sqrt(np.average((samples.y - centre) ** 2, axis=0, weights=samples.weight))
    return np.where(spread > 0, spread, 1.0), centre
