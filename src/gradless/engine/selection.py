"""Selection among chains: the best are copied over the worst. An option of ours, not the paper's algorithm."""

from dataclasses import dataclass, field

import numpy as np

from gradless.engine.chains import Chain
from gradless.engine.program import GOING


@dataclass
class Selection:
    """Every `every` steps, copy the best `fraction` of the chains over as many of the worst.

    Paper: the remark of Sec. II F on importance sampling in a population. Keys stay with their chains, so copies part.
    """

    every: int
    fraction: float = 0.25
    copies: list[tuple[int, int, int]] = field(default_factory=list)  # step, and chains by number: from, to

    def next_step(self, t: int) -> int:
        """Return the first step after t at which chains are selected."""
        return (t // self.every + 1) * self.every

    def apply(self, chains: list[Chain], t: int) -> None:
        """Copy the best states over the worst, and note which; a chain that has ended takes no part."""
        chains = [chain for chain in chains if chain.status == GOING]
        count = max(1, int(self.fraction * len(chains)))
        losses = [float(chain.carry.state.loss) for chain in chains]
        order = np.argsort(losses, kind="stable")
        pairs = [(int(best), int(worst)) for best, worst in zip(order[:count], order[::-1][:count], strict=True)]
        pairs = [(best, worst) for best, worst in pairs if losses[best] < losses[worst]]
        for best, worst in pairs:
            chains[worst].take_over(chains[best].carry.state)
            self.copies.append((t, chains[best].index, chains[worst].index))
