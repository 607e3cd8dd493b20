"""What Fig. 4 runs at each scale: gradient descent, Adam, and aMC with three epsilons."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gradless.kernels import AMC, Adam, GradientDescent
from gradless.types import Algorithm

TITLE = "A logarithm with a fast sine on it: larger epsilon learns the sine sooner"
INIT = "gaussian:0.1"  # N(0, sigma_0^2) for all five
EPSILONS = (5e-3, 0.0, -5e-3)
NAMES = {epsilon: f"amc {epsilon:g}" for epsilon in EPSILONS}
PLUS, ZERO, MINUS = NAMES.values()
ALGORITHMS: dict[str, Algorithm] = {
    "gd": GradientDescent(learning_rate=5e-3),
    "adam": Adam(learning_rate=5e-3),
    **{NAMES[epsilon]: AMC(sigma=0.1, epsilon=epsilon, n_s=50) for epsilon in EPSILONS},
}
SINE = float(np.mean((0.1 * np.sin(20 * np.pi * np.linspace(0, 1, 1000))) ** 2))  # U of the log term alone, 0.004995
STARTED, LEARNT = 0.1, 0.9  # overlaps with the sine
MIN_RUNS = 5  # of each algorithm: medians of fewer say little


@dataclass(frozen=True)
class Scale:
    """What one scale runs."""

    chains: int  # that go side by side
    blocks: int  # how often: of each algorithm there are chains x blocks runs
    steps: int  # of aMC
    gradient_steps: int  # of GD and Adam
    budget: str  # of time, for people


SCALES = {
    "smoke": Scale(chains=2, blocks=1, steps=300, gradient_steps=100, budget="10 s"),
    "quick": Scale(chains=4, blocks=1, steps=40_000, gradient_steps=20_000, budget="2 min"),
    # The paper gives no number of steps. A second million of epsilon > 0 adds half a percent of the sine.
    "paper": Scale(
        chains=2, blocks=5, steps=1_000_000, gradient_steps=1_000_000, budget="1 h; the first of five blocks has all"
    ),
}


class Cell(NamedTuple):
    """One recorded run: a few chains of one algorithm."""

    algorithm: str
    block: int

    @property
    def name(self) -> str:
        """Return the name of the run's folder."""
        return f"{self.algorithm.replace(' ', '-epsilon-')}-{self.block}"


def cells(scale: Scale) -> list[Cell]:
    """Return all runs, block by block, so that a reproduction stopped early has a few runs of everything."""
    return [Cell(name, block) for block in range(scale.blocks) for name in ALGORITHMS]
