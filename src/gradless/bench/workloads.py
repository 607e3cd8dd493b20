"""The six workloads on which speed is measured: the paper's problems, from the one that costs nothing to ResNet-18.

Each is the named problem of `gradless.problems` with the paper's settings of aMC. `tiny` is the same net in small, on
made-up data, for tests.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from gradless.models import MLP, RNN, ResNet, cross_entropy, mse
from gradless.problem import Problem
from gradless.problems import make_problem
from gradless.types import Params


@dataclass(frozen=True)
class Workload:
    """What every contestant is given: a net, its data, a start, and the settings of aMC."""

    name: str
    title: str
    problem: Problem
    settings: Mapping[str, Any] = field(default_factory=dict)  # sigma, epsilon, n_s, signal_norm
    batch: int | None = None  # samples of a minibatch, a new one each step; None is all of the data at every step
    precision: str = "float32"

    @property
    def net(self) -> MLP | RNN | ResNet | None:
        """The net whose outputs the loss judges; None where x is not the parameters of a net."""
        return getattr(self.problem.outputs, "__self__", None)

    @property
    def dtype(self) -> np.dtype:
        """The floating-point type of parameters and data."""
        return np.dtype(self.precision)

    @property
    def data(self) -> Any:
        """The samples as NumPy arrays in the workload's precision; None where the loss has none.

        They fill a whole number of minibatches, so that every step of every contestant does the same work.
        """
        num = self.num_samples - self.num_samples % (self.batch or 1)
        return jax.tree.map(lambda array: self._cast(array[:num]), self.problem.data)

    @property
    def num_samples(self) -> int:
        """How many samples the problem has; 0 where the loss has no data."""
        return next((len(array) for array in jax.tree.leaves(self.problem.data)), 0)

    def start(self) -> Params:
        """Return the parameters from which every contestant starts, as NumPy arrays."""
        init = self.problem.init
        with jax.enable_x64(self.precision == "float64"):
            return jax.tree.map(self._cast, init(jax.random.key(0)) if callable(init) else init)

    @property
    def num_parameters(self) -> int:
        """N."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.start()))

    @property
    def samples_per_loss(self) -> int:
        """How many samples one evaluation of the loss sees; 1 where there are no data."""
        return self.batch or self.num_samples or 1

    @property
    def losses_per_step(self) -> int:
        """Evaluations of the loss in a step: two on a new minibatch. Paper: Sec. III A, last paragraph."""
        return 1 if self.batch is None else 2

    def _cast(self, array: Any) -> np.ndarray:
        array = np.asarray(array)
        return array.astype(self.dtype) if np.issubdtype(array.dtype, np.floating) else array


def _named(title: str, problem: str, options: dict[str, Any], batch: int | None = None) -> Callable[[str], Workload]:
    def make(name: str) -> Workload:
        made = make_problem(problem, options)
        return Workload(name, title, made, made.algorithms["amc"], batch)

    return make


WORKLOADS: dict[str, Callable[[str], Workload]] = {
    "W1": _named("MNIST 784-16-16-10, full batch of 60,000", "mnist", {}),
    "W2": _named("step, depth 128, signal norm, 1000 points", "step", {"depth": 128}),
    "W3": _named("Rosenbrock", "rosenbrock", {}),
    "W4": _named("RNN 2x64, sequences of 784, minibatch 1500", "mnist-rnn", {}, batch=1500),
    "W5": _named("ResNet-18, minibatch 256", "mnist-resnet", {}, batch=256),
    "W6": _named("sine, width 1000, depth 2, 1000 points", "sine", {"width": 1000}),
}


def make_workload(name: str) -> Workload:
    """Return the workload of that name, with its data; DataUnavailable where they cannot be had."""
    check_name(name)
    return WORKLOADS[name.upper()](name.upper())


def check_name(name: str) -> None:
    """Refuse a name that is none of the six."""
    if name.upper() not in WORKLOADS:
        close = difflib.get_close_matches(name.upper(), WORKLOADS, n=1) or list(WORKLOADS)
        raise ValueError(f"there is no workload {name!r}; did you mean {' or '.join(close)}?")


def tiny(name: str) -> Workload:
    """Return the workload in small: the same kind of net and settings on a few samples that need no download."""
    rng = np.random.default_rng(0)
    if name in ("W2", "W3", "W6"):
        options = {"W2": {"depth": 3, "points": 80}, "W3": {}, "W6": {"width": 12, "points": 20}}[name]
        problem = {"W2": "step", "W3": "rosenbrock", "W6": "sine"}[name]
        return _named(f"tiny {name}", problem, options)(name)
    nets: dict[str, tuple[Any, tuple[int, ...], dict[str, Any]]] = {
        "W1": (MLP((9, 4, 4, 3), head="softmax"), (30, 9), {"sigma": 1e-2, "n_s": 20, "signal_norm": True}),
        "W4": (RNN(hidden=5), (30, 7, 2), {"sigma": 1e-3, "n_s": 100}),
        "W5": (ResNet(channels=(2, 4), blocks=(1, 1)), (20, 8, 8, 1), {"sigma": 1e-3, "epsilon": 1e-3, "n_s": 100}),
    }
    net, shape, settings = nets[name]
    labels = rng.integers(0, _num_classes(net), shape[0]).astype(np.int32)

    def loss(params: Params, batch: Any) -> jax.Array:
        outputs = net.apply(params, batch[0])
        if name == "W1":
            return mse(outputs, jax.nn.one_hot(batch[1], outputs.shape[-1]))
        return cross_entropy(outputs, batch[1])

    def init(key: jax.Array) -> Params:
        return net.init(key, "pytorch")

    data = (rng.random(shape, np.float32), labels)
    problem_made = Problem(init, loss, data, outputs=net.apply, algorithms={"amc": settings})
    return Workload(name, f"tiny {name}", problem_made, settings, batch=None if name == "W1" else 8)


def _num_classes(net: MLP | RNN | ResNet) -> int:
    return net.widths[-1] if isinstance(net, MLP) else net.outputs
