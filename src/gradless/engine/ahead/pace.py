"""How many proposals a round of speculation should look at, from what rounds have cost and how many moves succeed."""

from dataclasses import dataclass, field

import numpy as np

from gradless.engine.ahead.speculate import MAX_AHEAD

KEPT = 12  # chunks that the estimate of cost is made from


@dataclass
class Pace:
    """Proposals per device and round: a fixed number, or chosen as the run goes.

    A round costs a + b k seconds with k proposals on each of D devices, and makes (1 - (1 - p)^(kD))/p steps when a
    proposal is accepted with probability p. The first chunks try k = 1 and k = 2, which tells a and b.
    """

    ahead: int = 1
    devices: int = 1
    is_auto: bool = False
    wish: int = 1  # for the next round; all processes take that of process 0
    costs: list[tuple[float, float, float]] = field(default_factory=list)  # rounds, proposals per device, seconds
    acceptance: float | None = None

    @classmethod
    def of(cls, speculate: int | str | None, devices: int) -> "Pace":
        """Return the pace that `speculate` means: so many proposals a round, rounded up to fill the devices."""
        if speculate == "auto":
            return cls(1, devices, is_auto=True)
        ahead = 1 if speculate is None else min(-(-int(speculate) // devices), MAX_AHEAD)
        return cls(ahead, devices, wish=ahead)

    @property
    def proposals(self) -> int:
        """Proposals of a round."""
        return self.ahead * self.devices

    def learn(self, steps: int, rounds: int, accepted: int, seconds: float) -> None:
        """Take a chunk into account."""
        if not self.is_auto or rounds == 0:
            return
        self.acceptance = accepted / steps if self.acceptance is None else (self.acceptance + accepted / steps) / 2
        self.costs = [*self.costs, (float(rounds), float(rounds * self.ahead), seconds)][-KEPT:]
        tried = {round(proposals / rounds) for rounds, proposals, _ in self.costs}
        if len(tried) < 2:
            self.wish = 2 if self.ahead == 1 else self.ahead // 2
            return
        choices = np.arange(1, MAX_AHEAD + 1)
        self.wish = int(choices[np.argmax(self.speed(choices))])

    def speed(self, ahead: np.ndarray) -> np.ndarray:
        """Return the steps per second to be expected with so many proposals per device."""
        table = np.asarray(self.costs)
        per_round, per_proposal = _not_negative(table[:, :2], table[:, 2])
        rejected = 1 - min(max(self.acceptance or 0.0, 1e-6), 1 - 1e-6)
        steps = (1 - rejected ** (ahead * self.devices)) / (1 - rejected)
        return steps / (per_round + per_proposal * ahead)


def _not_negative(matrix: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the two costs by least squares; neither below a thousandth of the other."""
    costs = np.linalg.lstsq(matrix, values, rcond=None)[0]
    return np.maximum(costs, 1e-3 * max(costs.max(), 1e-9))
