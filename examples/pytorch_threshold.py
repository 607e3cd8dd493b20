"""Train a PyTorch net that no gradient can train: hard thresholds, and the number of wrong answers as the loss.

Every hidden neuron says 0 or 1, and the loss is the fraction of points of which the net says wrongly whether they lie
in a ring. Both are flat almost everywhere: autograd finds no path from the loss to any weight.
"""

import argparse
import importlib.util
import sys

if importlib.util.find_spec("torch") is None:
    sys.exit("PyTorch is not installed: pip install '.[torch]', in the checkout")

import torch
from torch import nn

from gradless.pytorch import AMC


class Threshold(nn.Module):
    """A neuron that fires or does not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x > 0).to(x.dtype)


def ring(num: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of a square, and whether each lies in a ring."""
    x = 2 * torch.rand(num, 2, generator=generator) - 1
    return x, (x.norm(dim=1) > 0.4) & (x.norm(dim=1) < 0.8)


def wrong(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The fraction of wrong answers."""
    return ((net(x)[:, 0] > 0) != y).float().mean()


def main(steps: int = 20_000, hidden: int = 16, seed: int = 0) -> float:
    """Train, say how it goes, and return the accuracy on points that were not trained on."""
    generator = torch.Generator().manual_seed(seed)
    train, test = ring(400, generator), ring(4000, generator)
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(2, hidden), Threshold(), nn.Linear(hidden, hidden), Threshold(), nn.Linear(hidden, 1))
    print(f"Does autograd find a path from the loss to a weight? {'yes' if wrong(net, *train).requires_grad else 'no'}")
    print(f"Saying no to every point is right for {1 - test[1].float().mean():.1%} of them.")

    optimizer = AMC(net, sigma=0.03, n_s=200, fixed_batch=True, seed=seed)
    for step in range(1, steps + 1):
        loss = optimizer.step(lambda: wrong(net, *train))
        if step % max(1, steps // 10) == 0:
            accuracy = 1 - wrong(net, *test).item()
            print(f"step {step:6d}  right: {1 - loss:.1%} in training, {accuracy:.1%} on new points")
    return accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--hidden", type=int, default=16, help="neurons in each of two layers")
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
