"""What Fig. 1 runs at each scale: MC and gradient descent, over their settings and over seeds."""

from dataclasses import dataclass
from functools import partial

import numpy as np

TITLE = "MNIST: zero-temperature Monte Carlo trains a net as gradient descent does"
MIN_RUNS = 10  # below this the range of C says little
DIFFERS = (
    "U is summed over the 10 outputs, which fixes what a learning rate means; GD starts as PyTorch does, the paper "
    "gives the start of MC alone"
)
DECADES = "the plateau is measured in decades of the setting"
# From N(0, 1e-4) GD with this learning rate would stay at U = 0.9 for thousands of epochs.
INIT = {"gd": "pytorch", "mc": "gaussian", "amc": "gaussian"}


@dataclass(frozen=True)
class Scale:
    """What one scale runs."""

    problem: str
    epochs: int  # of panel (b) and of the runs of (c)
    sweep_epochs: int  # of panel (a)
    sigmas: tuple[float, ...]
    learning_rates: tuple[float, ...]
    sigma: float  # of panel (b), MC
    learning_rate: float  # of panel (b), GD
    together: int  # points of panel (a) that go side by side
    runs: int  # of panel (c)
    budget: str  # of time, for people


SCALES = {
    "smoke": Scale("digits", 200, 100, (1e-3, 1e-2, 1e-1), (1e-2, 1.0, 100.0), 1e-2, 1.0, 3, 2, "10 s"),
    "quick": Scale(
        problem="mnist",
        epochs=1_000,
        sweep_epochs=300,
        sigmas=(2e-4, 2e-3, 1e-2, 3e-2, 1e-1, 3e-1),
        learning_rates=(1e-2, 4.5e-2, 0.45, 1.5, 4.5, 45.0),
        sigma=2e-3,
        learning_rate=4.5e-2,
        together=6,
        runs=2,
        budget="5 min",
    ),
    "paper": Scale(
        problem="mnist",
        epochs=100_000,
        sweep_epochs=100_000,
        sigmas=(1e-4, 3e-4, 1e-3, 2e-3, 5e-3, 2e-2, 1e-1),  # wide enough for both ends of the plateau
        learning_rates=(4.5e-3, 4.5e-2, 0.45, 4.5, 45.0),
        sigma=2e-3,
        learning_rate=4.5e-2,
        together=2,  # takes less than two one after the other, though one such net occupies both cores
        runs=30,
        budget="16 h: (b) 1.2 h, (a) 6 h, (c) 9 h",
    ),
}


def groups(scale: Scale) -> list[tuple[str, tuple[float, ...]]]:
    """Return the points of the sweeps that are run side by side, those nearest to the settings of panel (b) first.

    Points that panel (b) has, which are not run again, come before all; then MC's, then GD's, which take longer.
    """
    shown, others = [], []
    for name, (own, settings) in sweeps(scale).items():
        near = sorted(settings, key=partial(_distance, own))
        if near[0] == own and scale.epochs == scale.sweep_epochs:
            shown.append((name, (near.pop(0),)))
        others += [(name, tuple(near[i : i + scale.together])) for i in range(0, len(near), scale.together)]
    return shown + others


def sweeps(scale: Scale) -> dict[str, tuple[float, tuple[float, ...]]]:
    """Return for each algorithm its setting in panel (b), and those of panel (a)."""
    return {"mc": (scale.sigma, scale.sigmas), "gd": (scale.learning_rate, scale.learning_rates)}


def _distance(one: float, other: float) -> float:
    return float(abs(np.log(one / other)))


def stand_in(scale: str) -> str:
    """Say what a small scale has in place of the paper's set-up."""
    words = {"smoke": "digits in place of MNIST, few epochs", "quick": "fewer epochs than the paper's 1e5"}
    return words.get(scale, "")
