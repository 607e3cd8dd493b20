"""The training samples as the chain sees them, in a fixed order: each different row once, with its weight.

A chain at zero temperature compares losses to the last digit, and one changed decision changes all that follow. So that
a sample of weight 3 and a sample given three times lead to the same net, both become one row of weight 3 before all
else. The order of the samples then plays no part either. Minibatches are drawn from the rows as often as they are
given: of one row of weight 3 a minibatch would see too little, or nothing where it is the only row in it.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

ROW_COUNTS = (32, 64, 128, 192, 256)  # small data are filled up to one of these
SPREADS = (1e-150, 1e150)  # of targets: a loss in the user's units is a square of them


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


class Units(NamedTuple):
    """Spread and mean of each target of a regressor: the outputs of its net are in these units."""

    spread: np.ndarray  # 1 where it is not known
    centre: np.ndarray
    is_constant: np.ndarray  # the targets did not differ, and nothing is known of their spread

    @property
    def largest(self) -> float:
        """The largest spread, in which errors are measured: squares of tiny or huge targets are beyond float32."""
        return float(np.max(self.spread))

    def are_outdated_by(self, samples: Samples) -> bool:
        """Return whether the samples tell a spread that was not known."""
        return bool(np.any(self.is_constant & ~_is_constant(samples)))


def merged(samples: Samples) -> Samples:
    """Return each different pair of input and target once, sorted, its weights added up; weight 0 is left out."""
    kept, weight = _with_weight(samples)
    _, first, place = np.unique(_as_bytes(kept.y, kept.x), return_index=True, return_inverse=True)
    total = np.bincount(place, weights=weight, minlength=len(first))
    return Samples(kept.x[first], kept.y[first], _unless_equal(total))


def ordered(samples: Samples) -> Samples:
    """Return the samples sorted, each as often as it was given; weight 0 is left out."""
    kept, weight = _with_weight(samples)
    order = np.argsort(_as_bytes(kept.y, kept.x, weight[:, None]), kind="stable")
    return Samples(kept.x[order], kept.y[order], _unless_equal(weight[order]))


def _with_weight(samples: Samples) -> tuple[Samples, np.ndarray]:
    """Return the samples of some weight, and the weights."""
    weight = np.ones(len(samples)) if samples.weight is None else samples.weight
    return samples.take(weight > 0), weight[weight > 0]


def _as_bytes(*parts: np.ndarray) -> np.ndarray:
    """Return rows as bytes, which sort and compare quickly; adding 0 turns -0 into 0, which has other bytes."""
    columns = [(part + 0).reshape(len(part), -1).view(np.uint8) for part in parts]
    rows = np.ascontiguousarray(np.concatenate(columns, axis=1))
    return rows.view(f"V{rows.shape[1]}").ravel()


def _unless_equal(weight: np.ndarray) -> np.ndarray | None:
    return None if bool((weight == weight[0]).all()) else weight


def filled(samples: Samples) -> Samples:
    """Return small data with rows of weight 0 added, so that data of nearly the same size share a compiled program."""
    wanted = next((count for count in ROW_COUNTS if count >= len(samples)), len(samples))
    missing = wanted - len(samples)
    if not missing:
        return samples
    weight = np.ones(len(samples)) if samples.weight is None else samples.weight
    index = np.concatenate([np.arange(len(samples)), np.zeros(missing, int)])
    return Samples(samples.x[index], samples.y[index], np.concatenate([weight, np.zeros(missing)]))


def as_data(samples: Samples, units: Units | None) -> dict[str, Any]:
    """Return the arrays that a loss of `losses` reads, with one leading axis; a regressor's targets have units."""
    dtype, data = samples.x.dtype, {"x": samples.x, "y": samples.y}
    if samples.weight is not None:
        root = np.sqrt(samples.weight * len(samples) / samples.weight.sum()).astype(dtype)
        data |= {"x": samples.x * root[:, None], "root": root, "weight": samples.weight.astype(dtype)}
    if units is not None:
        data["z"] = ((samples.y - units.centre) / units.spread).astype(dtype)
        data["share"] = np.broadcast_to(units.spread / units.largest, samples.y.shape).astype(dtype)
        data["spread"] = np.broadcast_to(units.spread, samples.y.shape).astype(dtype)
        data["centre"] = np.broadcast_to(units.centre, samples.y.shape).astype(dtype)
    return data


def units_of(samples: Samples) -> Units:
    """Return the units in which the targets have mean 0 and variance 1."""
    with np.errstate(over="ignore", invalid="ignore"):
        centre = np.average(samples.y, axis=0, weights=samples.weight)
        apart = samples.y - centre
        # In units of about the largest: squares of tiny targets would vanish. A power of two changes no digit.
        scale = np.ldexp(1.0, np.frexp(np.max(np.abs(apart), axis=0))[1])
        spread = scale * np.sqrt(np.average((apart / scale) ** 2, axis=0, weights=samples.weight))
    is_constant = _is_constant(samples)
    for one in spread[~is_constant]:
        if not SPREADS[0] <= one <= SPREADS[1]:
            raise ValueError(
                f"y must have a standard deviation between {SPREADS[0]} and {SPREADS[1]}, got {one:.3g}, whose square "
                "is beyond float64: give y in another unit"
            )
    return Units(np.where(is_constant, 1.0, spread), centre, is_constant)


def _is_constant(samples: Samples) -> np.ndarray:
    """Return of each target whether all are equal; a spread would be above 0 all the same if the mean is rounded."""
    return np.max(samples.y, axis=0) == np.min(samples.y, axis=0)
