"""A plain aMC in eager PyTorch, as its users write it: the other yardstick.

The nets are PyTorch's own layers with the same parameters as the workload's, so that both compute the same loss.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from gradless.bench.workloads import Workload
from gradless.models import MLP, RNN, ResNet

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"tanh": torch.tanh, "relu": torch.relu}
TRIALS = 3  # of each number of threads
CLEARLY = 0.9  # of one thread's time: what more threads must get below to be worth having


class EagerChain:
    """A chain of aMC that makes so many steps when called."""

    def __init__(self, workload: Workload):
        settings = workload.settings
        torch.manual_seed(0)
        self.model = as_module(workload)
        self.params = list(self.model.parameters())
        self.batches = _batches(workload)
        self.is_new = workload.batch is not None
        self.sigma, self.epsilon = settings["sigma"], settings.get("epsilon", 0.0)
        self.n_s, self.n_cr = settings.get("n_s", 100), 0
        self.has_lambda = bool(settings.get("signal_norm", False))
        self.of_data: torch.Tensor | None = None
        self.threads = torch.get_num_threads()
        self.mu: list[Any] = [torch.zeros_like(p) if self.epsilon else 0.0 for p in self.params]
        with torch.no_grad():
            self.loss = self.model(*next(self.batches)).item()
            self.lam = self._lambda()

    def __call__(self, steps: int) -> None:
        """Make so many steps."""
        with _threads(self.threads):
            for _ in range(steps):
                batch = next(self.batches)
                self.step(lambda batch=batch: self.model(*batch))  # type: ignore[misc]

    def choose_threads(self) -> None:
        """Take one thread, unless all of them are clearly faster.

        PyTorch's threads wait for one another by spinning, at every operation. Where something else has a core, each of
        the thousand small operations of a deep net then waits for the scheduler: a hundred times its own time.
        """
        seconds: dict[int, float] = {}
        for _ in range(TRIALS):
            for self.threads in (1, torch.get_num_threads()):
                began = time.perf_counter()
                self(1)
                seconds[self.threads] = min(seconds.get(self.threads, float("inf")), time.perf_counter() - began)
        fastest = min(seconds, key=lambda threads: seconds[threads])
        self.threads = fastest if seconds[fastest] < CLEARLY * seconds[1] else 1

    @torch.no_grad()
    def step(self, closure: Callable[[], torch.Tensor]) -> None:
        """Make one step; the closure returns the loss on the batch of the step."""
        if self.is_new:
            self.loss, self.lam = closure().item(), self._lambda()
        kept = [p.clone() for p in self.params]
        moves = []
        for p, mu, lam in zip(self.params, self.mu, self.lam, strict=True):
            eps = mu + self.sigma * lam * torch.randn_like(p)
            p.add_(eps)
            moves.append(eps)
        loss = closure().item()
        if loss <= self.loss:
            self.loss, self.n_cr, self.lam = loss, 0, self._lambda()
            if self.epsilon:
                for mu, eps in zip(self.mu, moves, strict=True):
                    mu.add_(self.epsilon * (eps - mu))
            return
        for p, old in zip(self.params, kept, strict=True):
            p.copy_(old)
        self.n_cr += 1
        if self.n_cr == self.n_s:
            self.n_cr, self.sigma = 0, 0.95 * self.sigma
            self.mu = [torch.zeros_like(p) if self.epsilon else 0.0 for p in self.params]

    def _lambda(self) -> list[Any]:
        """Return lambda of every tensor, from what entered the layers in the last pass. Paper: Eqs. (17) and (18)."""
        if not self.has_lambda:
            return [1.0] * len(self.params)
        inputs: Any = self.model.inputs
        if self.of_data is None or self.is_new:
            self.of_data = inputs[0].square().sum(dim=1).mean().rsqrt()  # on a fixed batch always the same
        of_layers = [self.of_data, *(h.square().sum(dim=1).mean().rsqrt() for h in inputs[1:])]
        return [of_layers[i // 2] if i % 2 == 0 else 1.0 for i in range(len(self.params))]


@contextlib.contextmanager
def _threads(number: int) -> Iterator[None]:
    """Let PyTorch compute with so many threads, and afterwards with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def as_module(workload: Workload) -> nn.Module:
    """Return the workload's loss as a module of the same parameters, called with a batch."""
    net, params = workload.net, workload.start()
    kinds: dict[type, Callable[[Any, Any], nn.Module]] = {MLP: Dense, RNN: Recurrent, ResNet: Residual}
    if net is None:
        return Plain(workload)
    if type(net) not in kinds:
        raise NotImplementedError(f"no PyTorch module is written for {type(net).__name__}")
    return kinds[type(net)](net, params).to(_dtype(workload))


def _dtype(workload: Workload) -> torch.dtype:
    return torch.float64 if workload.precision == "float64" else torch.float32


def _batches(workload: Workload) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield the samples of step after step: all of them, or shuffled minibatches."""
    data = tuple(torch.from_numpy(array) for array in workload.data or ())
    labels_wide = tuple(array.long() if array.dtype == torch.int32 else array for array in data)
    while True:
        if workload.batch is None:
            yield labels_wide
        else:
            for chosen in torch.randperm(len(data[0])).split(workload.batch):
                yield tuple(array[chosen] for array in labels_wide)


def _tensor(array: np.ndarray) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(np.array(array)))


class Plain(nn.Module):
    """Rosenbrock: x and y, and no net."""

    def __init__(self, workload: Workload):
        super().__init__()
        if workload.problem.data is not None or workload.num_parameters != 2:
            raise NotImplementedError("without a net only Rosenbrock is written in PyTorch")
        self.position = _tensor(workload.start())

    def forward(self) -> torch.Tensor:
        """Return the loss. Paper: Eq. (6)."""
        x, y = self.position
        return (1 - x) ** 2 + 100 * (y - x**2) ** 2


class Dense(nn.Module):
    """A dense net; a softmax head is judged by the squared error against one-hot labels, as in `gradless.problems`."""

    def __init__(self, net: MLP, params: Any):
        super().__init__()
        if net.skip or net.layer_norm or net.activation not in ACTIVATIONS:
            raise NotImplementedError(f"no PyTorch module is written for {net}")
        self.respond, self.is_classifier = ACTIVATIONS[net.activation], net.head == "softmax"
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(net.widths))
        for layer, own in zip(self.layers, params["layers"], strict=True):
            layer.weight, layer.bias = _tensor(own["weight"].T), _tensor(own["bias"])
        self.inputs: list[torch.Tensor] = []  # of every layer in the last pass

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the loss on a batch."""
        self.inputs = [x]
        for layer in self.layers[:-1]:
            self.inputs.append(self.respond(layer(self.inputs[-1])))
        outputs = self.layers[-1](self.inputs[-1])
        if self.is_classifier:
            outputs, y = outputs.softmax(dim=1), nn.functional.one_hot(y, outputs.shape[1]).to(outputs.dtype)
        return (outputs - y).square().sum(dim=1).mean()


class Recurrent(nn.Module):
    """PyTorch's recurrent net of tanh cells with a linear head and cross entropy."""

    def __init__(self, net: RNN, params: Any):
        super().__init__()
        if net.cell != "tanh":
            raise NotImplementedError(f"no PyTorch module is written for {net}")
        self.rnn = nn.RNN(net.inputs, net.hidden, net.depth, batch_first=True)
        self.head = nn.Linear(net.hidden, net.outputs)
        names = {"weight_input": "weight_ih", "weight_recurrent": "weight_hh"}
        names |= {"bias_input": "bias_ih", "bias_recurrent": "bias_hh"}
        with torch.no_grad():
            for i, layer in enumerate(params["layers"]):
                for ours, theirs in names.items():
                    getattr(self.rnn, f"{theirs}_l{i}").copy_(torch.from_numpy(np.array(layer[ours].T)))
        self.head.weight, self.head.bias = _tensor(params["head"]["weight"].T), _tensor(params["head"]["bias"])

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the loss on a batch."""
        states, _ = self.rnn(x)
        return nn.functional.cross_entropy(self.head(states[:, -1]), y)


class ConvNorm(nn.Module):
    """A convolution and a layer norm over channels and positions."""

    def __init__(self, own: Any, stride: int):
        super().__init__()
        size, _, fan_in, channels = own["weight"].shape
        self.conv = nn.Conv2d(fan_in, channels, size, stride, padding=size // 2, bias=False)
        self.norm = nn.GroupNorm(1, channels)
        self.conv.weight = _tensor(own["weight"].transpose(3, 2, 0, 1))
        self.norm.weight, self.norm.bias = _tensor(own["scale"]), _tensor(own["offset"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the normalised channels."""
        return self.norm(self.conv(x))


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, own: Any, stride: int):
        super().__init__()
        self.first, self.second = ConvNorm(own["conv1"], stride), ConvNorm(own["conv2"], 1)
        self.shortcut = ConvNorm(own["shortcut"], stride) if "shortcut" in own else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the next block sees."""
        return torch.relu(self.second(torch.relu(self.first(x))) + self.shortcut(x))


class Residual(nn.Module):
    """ResNet-18 with layer norm, and cross entropy."""

    def __init__(self, net: ResNet, params: Any):
        super().__init__()
        blocks = [
            Block(own, stride=2 if i > 0 and j == 0 else 1)
            for i, stage in enumerate(params["stages"])
            for j, own in enumerate(stage)
        ]
        pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.body = nn.Sequential(ConvNorm(params["stem"], 2), nn.ReLU(), pool, *blocks)
        self.head = nn.Linear(net.channels[-1], net.outputs)
        self.head.weight, self.head.bias = _tensor(params["head"]["weight"].T), _tensor(params["head"]["bias"])

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the loss on a batch of images whose channels are last, as the workload's are."""
        h = self.body(x.permute(0, 3, 1, 2).contiguous())
        return nn.functional.cross_entropy(self.head(h.mean(dim=(2, 3))), y)
