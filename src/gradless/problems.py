"""The problems that gradless knows by name: the paper's, and digits as a first one that needs no download.

A problem is a function with a default for every option, returning a `Problem`; `gradless train NAME --help` shows the
options. The settings to begin with are the paper's for that problem.
"""

import difflib
import importlib
import inspect
import math
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from gradless import data
from gradless.data.functions import log_term
from gradless.models import MLP, RNN, ResNet, accuracy, cross_entropy, mse, zero_one_error
from gradless.problem import Problem
from gradless.types import Key, Params

Init = Annotated[str, "first parameters: gaussian (of width sigma), gaussian:WIDTH, pytorch or kaiming"]
Width = Annotated[int, "neurons per hidden layer"]
Depth = Annotated[int, "number of hidden layers"]
Points = Annotated[int, "number of data points"]
Activation = Annotated[str, "tanh, relu, sigmoid, sine, step (hard threshold) or identity"]
Skip = Annotated[bool, "skip connections"]
LayerNorm = Annotated[bool, "layer norm"]
DataDir = Annotated[str, "folder with the MNIST files; by default they are looked for, then downloaded"]

Settings = dict[str, dict[str, Any]]
MAX_PARAMETERS = 2**31 - 1  # indices on the device have 32 bits
MAX_DEPTH = 10_000
DEEP = {"sigma": 1e-2, "epsilon": 1e-2, "n_s": 100, "signal_norm": True}  # the paper's for Figs. 2(c,d) and 6


def rosenbrock(
    x: Annotated[float, "first coordinate of the start"] = -2.0, y: Annotated[float, "second coordinate"] = 2.0
) -> Problem:
    """A particle in the Rosenbrock function's bent valley, minimum at (1, 1). Paper: Eq. (6), Fig. 3."""

    def loss(position: jax.Array) -> jax.Array:
        x, y = position
        return (1 - x) ** 2 + 100 * (y - x**2) ** 2

    return Problem(
        init=lambda key: np.array([x, y]),
        loss=loss,
        metrics=lambda position: {"distance": jnp.hypot(position[0] - 1, position[1] - 1)},
        algorithms={"amc": {"sigma": 1e-3, "epsilon": 1e-2, "n_s": 20}, "mc": {"sigma": 1e-3}},
        steps=10_000,
        precision="float64",
    )


def sine(width: Width = 10, depth: Depth = 2, points: Points = 1000, init: Init = "gaussian") -> Problem:
    """One period of a sine, by a net of any width and depth. Paper: Sec. II B, Fig. 2."""
    if not 0 <= depth <= MAX_DEPTH:
        raise ValueError(f"depth must be from 0 to {MAX_DEPTH}, got {depth}")
    settings = {"amc": DEEP, "mc": {"sigma": 1e-3}}
    return _regression(MLP((1, *[width] * depth, 1)), data.sine(points), init, settings, steps=20_000)


def log_sine(width: Width = 100, points: Points = 1000, init: Init = "gaussian") -> Problem:
    """A logarithm with a small fast sine on it; which is learnt first? Paper: Sec. II C, Eq. (7), Fig. 4."""
    net = MLP((1, width, 1))
    theta, _ = data.log_sine(points)
    rates = {"gd": {"learning_rate": 5e-3}, "adam": {"learning_rate": 5e-3}}
    settings = {"amc": {"sigma": 0.1, "epsilon": 5e-3, "n_s": 50}, **rates}
    problem = _regression(net, data.log_sine(points), init, settings, steps=100_000)

    def metrics(params: Params, test: Any) -> dict[str, jax.Array]:
        return {"pseudo_loss": mse(net.apply(params, test[0]), test[1])}

    return replace(problem, test=(theta, log_term(theta)), metrics=metrics)


def step(
    depth: Depth = 16,
    points: Points = 1000,
    init: Init = "gaussian",
    skip: Skip = False,
    layer_norm: LayerNorm = False,
) -> Problem:
    """A step function by a deep net: depth - 1 layers of 4 neurons, then one of 10. Paper: Sec. II E, Fig. 6."""
    if not 1 <= depth <= MAX_DEPTH:
        raise ValueError(f"depth must be from 1 to {MAX_DEPTH}, got {depth}")
    net = MLP((1, *[4] * (depth - 1), 10, 1), skip=skip, layer_norm=layer_norm)
    settings = {"amc": DEEP, "gd": {"learning_rate": 1e-3}, "adam": {"learning_rate": 1e-4}}
    return _regression(net, data.step(points), init, settings, steps=100_000)


def digits(hidden: Annotated[int, "neurons in each of the two hidden layers"] = 16, init: Init = "gaussian") -> Problem:
    """scikit-learn's 8x8 handwritten digits by a 64-16-16-10 net; comes with gradless, needs no download."""
    settings = {
        "amc": {"sigma": 3e-2, "epsilon": 0.0, "n_s": 50, "signal_norm": True},
        "mc": {"sigma": 1e-2},
        "gd": {"learning_rate": 0.1},
        "adam": {"learning_rate": 1e-2},
    }
    return _classification(MLP((64, hidden, hidden, 10), head="softmax"), data.digits(), init, settings, steps=30_000)


def mnist(
    hidden: Annotated[int, "neurons in each of the two hidden layers"] = 16,
    init: Init = "gaussian",
    activation: Activation = "tanh",
    data_dir: DataDir = "",
) -> Problem:
    """MNIST by a 784-16-16-10 net, softmax and mean squared error. Paper: Secs. II A and II F, Figs. 1 and 7."""
    net = MLP((784, hidden, hidden, 10), activation=activation, head="softmax")
    settings = {
        "amc": {"sigma": 1e-2, "epsilon": 0.0, "n_s": 20, "signal_norm": True},
        "mc": {"sigma": 2e-3},
        "gd": {"learning_rate": 4.5e-2},
    }
    return _classification(net, data.mnist.images(data_dir or None), init, settings, steps=10_000)


def mnist_rnn(
    hidden: Annotated[int, "neurons per recurrent layer"] = 64,
    depth: Annotated[int, "recurrent layers"] = 2,
    cell: Annotated[str, "tanh or gru"] = "tanh",
    shrink: Annotated[int, "side of the squares of pixels that are averaged first; 1 is the paper's"] = 1,
    init: Init = "gaussian",
    data_dir: DataDir = "",
) -> Problem:
    """Zeros against ones, pixel by pixel, by a simple recurrent net. Paper: Sec. II D, Fig. 5."""
    net = RNN(hidden=hidden, depth=depth, cell=cell)
    images = data.mnist.zeros_and_ones(shrink=shrink, data_dir=data_dir or None)

    def loss(params: Params, batch: Any) -> jax.Array:
        return cross_entropy(net.apply(params, batch[0]), batch[1])

    clipped = {"learning_rate": 1e-3, "clip": 1.0}
    settings = {"amc": {"sigma": 1e-3, "n_s": 100}, "gd": clipped, "adam": clipped}
    return _judged_by_accuracy(net, images, loss, init, settings, steps=40_000, batch="1500")


def mnist_resnet(
    channels: Annotated[int, "channels of the first stage; 64 is ResNet-18"] = 64,
    init: Init = "kaiming",
    data_dir: DataDir = "",
) -> Problem:
    """MNIST by ResNet-18 with layer norm, 11 million parameters. Paper: Sec. II F, Fig. 8."""
    net = ResNet(channels=(channels, 2 * channels, 4 * channels, 8 * channels))
    images = data.mnist.images(data_dir or None)
    images = images._replace(train_x=images.train_x.reshape(-1, 28, 28, 1), test_x=images.test_x.reshape(-1, 28, 28, 1))

    def loss(params: Params, batch: Any) -> jax.Array:
        return cross_entropy(net.apply(params, batch[0]), batch[1])

    settings = {
        "amc": {"sigma": 1e-3, "epsilon": 1e-3, "n_s": 100},
        "gd": {"learning_rate": 1e-3, "clip": 1.0},
    }
    return _judged_by_accuracy(net, images, loss, init, settings, steps=1_000, batch="1000")


PROBLEMS: dict[str, Callable[..., Problem]] = {
    factory.__name__.replace("_", "-"): factory
    for factory in (digits, rosenbrock, sine, log_sine, step, mnist, mnist_rnn, mnist_resnet)
}


def find_problem(name: str) -> Callable[..., Problem]:
    """Return what makes the problem of that name, or of `module:object`; its keyword arguments are the options."""
    if ":" in name:
        return _import_problem(name)
    if name not in PROBLEMS:
        close = difflib.get_close_matches(name, PROBLEMS, n=3, cutoff=0.4) or list(PROBLEMS)
        raise ValueError(f"there is no problem {name!r}; did you mean {' or '.join(close)}? Your own is module:object")
    return PROBLEMS[name]


def _import_problem(name: str) -> Callable[..., Problem]:
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ValueError(f"problem {name!r} must name a module and what to take from it, as in my_module:problem")
    is_ours = module_name.partition(".")[0] == "gradless"  # a file of the user's must not stand in for what we import
    if not is_ours and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        if module_name.startswith("."):  # a path: relative to a package of ours it would be looked for
            raise ModuleNotFoundError(f"{module_name} is no name of a module")
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = "" if isinstance(error, ImportError | SyntaxError) else f", {place.filename} line {place.lineno}"
        words = f"{type(error).__name__}: {error}{where}"
        is_path = os.sep in module_name or module_name.startswith(".")
        hint = f": give its name, without folder and .py, as in {_stem(module_name)}:{attribute}"
        hint = hint if is_path or module_name.endswith(".py") else ""
        raise ValueError(f"problem {name!r}: module {module_name} cannot be imported ({words}){hint}") from error
    if not hasattr(module, attribute):
        raise ValueError(f"problem {name!r}: module {module_name} has no {attribute}")
    found = getattr(module, attribute)
    if isinstance(found, Problem):
        return lambda: found
    if not callable(found):
        raise ValueError(f"problem {name!r} must be a Problem, or a function that returns one, got {found!r}")
    return found


def _stem(module_name: str) -> str:
    """Return the name of the module that a path leads to; it is looked for in the present folder."""
    return os.path.basename(module_name.removesuffix(".py"))


def make_problem(name: str, options: dict[str, Any]) -> Problem:
    """Return the problem of that name with these options."""
    factory = find_problem(name)
    known = inspect.signature(factory).parameters
    for option, value in options.items():
        if option not in known:
            raise ValueError(f"problem {name} has no option {option!r}; it has {', '.join(known) or 'none'}")
        _check_option(option, value, known[option].default)
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        raise ValueError(f"problem {name!r}: {error}") from None
    try:
        problem = factory(**options)
    except SystemExit as error:
        raise ValueError(f"problem {name!r} must return a gradless.Problem, it ended with exit {error.code}") from error
    if not isinstance(problem, Problem):
        raise ValueError(f"problem {name!r} must return a gradless.Problem, got {type(problem).__name__}")
    return problem


def _check_option(name: str, value: Any, default: Any) -> None:
    """Refuse a value of another kind than the default, where that is a plain one: settings.json can hold anything."""
    if isinstance(default, float):
        is_right = isinstance(value, int | float) and not isinstance(value, bool)
    else:
        is_right = not isinstance(default, int | str) or type(value) is type(default)
    if not is_right:
        raise ValueError(f"{name} must be of the kind of {default!r}, got {value!r}")


def _regression(net: MLP, points: Any, init: str, settings: Settings, steps: int) -> Problem:
    def loss(params: Params, batch: Any) -> jax.Array:
        return mse(net.apply(params, batch[0]), batch[1])

    start = _initializer(net, init, settings["amc"]["sigma"])
    return Problem(start, loss, points, outputs=net.apply, algorithms=settings, steps=steps, precision="float64")


def _classification(net: MLP, images: data.Dataset, init: str, settings: Settings, steps: int) -> Problem:
    def loss(params: Params, batch: Any) -> jax.Array:
        one_hot = jax.nn.one_hot(batch[1], net.widths[-1])
        return mse(net.apply(params, batch[0]), one_hot)

    return _judged_by_accuracy(net, images, loss, init, settings, steps, batch="full")


def _judged_by_accuracy(
    net: Any, images: data.Dataset, loss: Any, init: str, settings: Settings, steps: int, batch: str
) -> Problem:
    def metrics(params: Params, test: Any) -> dict[str, jax.Array]:
        return {"accuracy": accuracy(net.apply(params, test[0]), test[1])}

    def error(params: Params, batch: Any) -> jax.Array:
        return zero_one_error(net.apply(params, batch[0]), batch[1])

    return Problem(
        init=_initializer(net, init, settings["amc"]["sigma"]),
        loss=loss,
        data=(images.train_x, images.train_y),
        test=(images.test_x, images.test_y),
        metrics=metrics,
        error=error,
        outputs=net.apply,
        algorithms=settings,
        steps=steps,
        batch=batch,
    )


def _initializer(net: Any, init: str, usual: float) -> Callable[..., Params]:
    """Return the draw of a start; a plain "gaussian" takes the chain's own sigma, or the usual one without sigma."""

    def start(key: Key, sigma: float | None = None) -> Params:
        width = usual if sigma is None else float(sigma)
        return net.init(key, f"gaussian:{width}" if init == "gaussian" else init)

    # A wrong name, or a net that no machine holds, is refused now, not in the middle of a command.
    shapes = jax.tree.leaves(jax.eval_shape(lambda: start(jax.random.key(0))))
    num_parameters = sum(math.prod(leaf.shape) for leaf in shapes)
    if num_parameters > MAX_PARAMETERS:
        raise ValueError(f"the net must have at most {MAX_PARAMETERS:.1e} parameters, got {num_parameters:.1e}")
    return start
