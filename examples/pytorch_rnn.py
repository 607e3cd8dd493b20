"""Train the recurrent net of the paper's Fig. 5 in PyTorch: 0 against 1, read pixel by pixel.

Paper: Sec. II D, two layers of simple tanh neurons and a linear head. The default is a small version that ends within
a minute: 7 x 7 pixels instead of 28 x 28, 32 neurons a layer instead of 64, minibatches of 100 instead of 1500, sigma
0.01 instead of 0.001. Sequences of 49 steps are short enough for gradients too, so it shows that aMC trains a recurrent
PyTorch module; it does not show that gradients fail. That is the paper's size, which takes hours:

    python examples/pytorch_rnn.py --shrink 1 --hidden 64 --batch 1500 --sigma 1e-3 --steps 40000
"""

import argparse
import importlib.util
import sys

if importlib.util.find_spec("torch") is None:
    sys.exit("PyTorch is not installed: pip install '.[torch]', in the checkout")

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gradless.data.digits import digits
from gradless.data.mnist import zeros_and_ones
from gradless.data.store import DataUnavailable
from gradless.pytorch import AMC


class PixelReader(nn.Module):
    """A stack of simple recurrent layers, and a linear classifier of the last state."""

    def __init__(self, hidden: int, sigma: float) -> None:
        super().__init__()
        self.rnn = nn.RNN(2, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, 2)
        nn.init.normal_(self.head.weight, std=sigma)
        nn.init.normal_(self.head.bias, std=sigma)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0][:, -1])


def pixels(shrink: int) -> list[TensorDataset]:
    """Zeros and ones of MNIST as sequences of black and white pixels, for training and for the test."""
    try:
        data = zeros_and_ones(shrink=shrink)
    except DataUnavailable:
        print("MNIST cannot be fetched; these are the 8 x 8 digits of scikit-learn instead.")
        data = digits()
        chosen = [part <= 1 for part in (data.train_y, data.train_y, data.test_y, data.test_y)]
        data = type(data)(*(part[rows] for part, rows in zip(data, chosen, strict=True)))
        white = [part > 0.25 for part in (data.train_x, data.test_x)]
        black_or_white = [torch.stack([~w, w], dim=-1).float().numpy() for w in map(torch.from_numpy, white)]
        data = data._replace(train_x=black_or_white[0], test_x=black_or_white[1])
    train_x, train_y, test_x, test_y = map(torch.from_numpy, data)
    return [TensorDataset(train_x, train_y.long()), TensorDataset(test_x, test_y.long())]


@torch.no_grad()
def accuracy(net: nn.Module, test: TensorDataset) -> float:
    """The fraction of right answers."""
    x, y = test.tensors
    return (net(x).argmax(1) == y).float().mean().item()


def main(steps: int = 1000, shrink: int = 4, hidden: int = 32, batch: int = 100, sigma: float = 1e-2) -> float:
    """Train, say how it goes, and return the accuracy on the test set."""
    train, test = pixels(shrink)
    torch.manual_seed(0)
    net = PixelReader(hidden, sigma)
    optimizer = AMC(net, sigma=sigma, n_s=100, seed=0)
    while optimizer.n < steps:
        for x, y in DataLoader(train, batch_size=batch, shuffle=True):
            loss = optimizer.step(lambda x=x, y=y: nn.functional.cross_entropy(net(x), y))
            if optimizer.n % max(1, steps // 10) == 0 or optimizer.n == steps:
                moves = optimizer.num_accepted / optimizer.n
                print(f"step {optimizer.n:5d}  loss {loss:.4f}  test {accuracy(net, test):.1%}  accepted {moves:.1%}")
            if optimizer.n == steps:
                break
    return accuracy(net, test)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--shrink", type=int, default=4, help="side of the squares of pixels that are averaged first")
    parser.add_argument("--hidden", type=int, default=32, help="neurons in each of two layers")
    parser.add_argument("--batch", type=int, default=100, help="images per step")
    parser.add_argument("--sigma", type=float, default=1e-2, help="initial move scale")
    torch.set_num_threads(1)  # so small matrices are not worth the waiting of threads for each other
    main(**vars(parser.parse_args()))
