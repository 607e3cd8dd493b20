"""What a step of the PyTorch optimizer costs beside the loss itself: python -m bench.pytorch"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from gradless.bench.timing import interleaved, tell
from gradless.pytorch import AMC

STEPS = 100
CASES: dict[str, dict[str, Any]] = {
    "fixed batch": {"fixed_batch": True},
    "fixed batch, mu": {"fixed_batch": True, "epsilon": 1e-2},
    "fixed batch, signal norm": {"fixed_batch": True, "signal_norm": True},
    "new batches": {},
    "new batches, signal norm": {"signal_norm": True},
}


def turns(widths: list[int], num: int) -> dict[str, Callable[[], None]]:
    """Return the bare loss of a tanh net on `num` samples, and aMC on it; each turn has the same number of steps."""
    torch.manual_seed(0)
    x, y = torch.rand(num, widths[0]), torch.randint(widths[-1], (num,))

    def net() -> nn.Module:
        layers = [(nn.Linear(a, b), nn.Tanh()) for a, b in pairwise(widths)]
        return nn.Sequential(*[part for pair in layers for part in pair][:-1])

    def turn(model: nn.Module, step: Callable[[Callable[[], Any]], Any]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(STEPS):
                step(lambda: nn.functional.cross_entropy(model(x), y))

        return run

    model = net()
    contestants = {"the loss alone": turn(model, lambda closure: torch.no_grad()(closure)())}
    for name, settings in CASES.items():
        model = net()
        contestants[name] = turn(model, AMC(model, sigma=1e-3, seed=0, **settings).step)
    return contestants


if __name__ == "__main__":
    for title, widths, num in (
        ("784-16-16-10, 2000 samples, float32", [784, 16, 16, 10], 2000),
        ("64-16-16-10, 100 samples, float32", [64, 16, 16, 10], 100),
    ):
        tell(title, interleaved(turns(widths, num)), STEPS, "ms", "the loss alone")
