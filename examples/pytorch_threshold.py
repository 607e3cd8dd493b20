"""Train a PyTorch net that no gradient can train: hard thresholds, and the number of wrong answers as the loss.

Every neuron of the net says 0 or 1, and the loss counts images of handwritten digits that are named wrongly. Both are
flat almost everywhere: the gradient is zero wherever it exists, and autograd finds no path to the weights at all.
"""

import argparse

import torch
from torch import nn

from gradless.data.digits import digits
from gradless.pytorch import AMC


class Threshold(nn.Module):
    """A neuron that fires or does not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x > 0).to(x.dtype)


def wrong(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The fraction of images named wrongly."""
    return (net(x).argmax(1) != y).float().mean()


def main(steps: int, hidden: int, seed: int) -> float:
    data = digits()
    train_x, train_y, test_x, test_y = (torch.from_numpy(part) for part in data)
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(64, hidden), Threshold(), nn.Linear(hidden, hidden), Threshold(), nn.Linear(hidden, 10))
    print(f"autograd finds a path from the loss to the weights: {wrong(net, train_x, train_y).requires_grad}")

    optimizer = AMC(net, sigma=0.03, n_s=500, signal_norm=True, fixed_batch=True, seed=seed)
    for step in range(steps + 1):
        if step % max(1, steps // 10) == 0:
            with torch.no_grad():
                train, test = (1 - wrong(net, *part).item() for part in ((train_x, train_y), (test_x, test_y)))
            print(f"step {step:6d}  accuracy {train:6.1%} on the training set, {test:6.1%} on the test set")
        if step < steps:
            optimizer.step(lambda: wrong(net, train_x, train_y))
    print(f"accepted {optimizer.num_accepted / max(1, optimizer.n):.1%} of the moves")
    return test


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
