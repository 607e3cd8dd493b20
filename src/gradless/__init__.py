"""gradless trains neural networks without gradients, by Metropolis Monte Carlo and its adaptive variant aMC.

import gradless as gl

algorithm = gl.amc(sigma=1e-2, epsilon=1e-2, n_s=100, signal_norm=True)
result = gl.train(algorithm, loss, params, data=(x, y), steps=100_000)
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradless.asktell import AskTell
    from gradless.engine.batches import full_batch, minibatch, progressive
    from gradless.engine.devices.mesh import mesh
    from gradless.engine.result import Result, Trace
    from gradless.engine.train import train
    from gradless.engine.tuning import Tuning, tune_sigma
    from gradless.kernels import AMC as amc
    from gradless.kernels import Adam as adam
    from gradless.kernels import Anneal as anneal
    from gradless.kernels import GradientDescent as gradient_descent
    from gradless.kernels import Metropolis as metropolis
    from gradless.minimize import minimize, scipy_method
    from gradless.plots import plot
    from gradless.problem import Problem
    from gradless.runs import resume
    from gradless.signal_norm import signal_norm

__version__ = "0.1.0"

__all__ = [
    "AskTell",
    "Problem",
    "Result",
    "Trace",
    "Tuning",
    "adam",
    "amc",
    "anneal",
    "full_batch",
    "gradient_descent",
    "mesh",
    "metropolis",
    "minibatch",
    "minimize",
    "plot",
    "progressive",
    "resume",
    "scipy_method",
    "signal_norm",
    "train",
    "tune_sigma",
]

# Where each public name comes from. It is imported on first use: `gradless.plots` and `gradless.records` need no JAX.
SOURCES = {
    "AskTell": "asktell:AskTell",
    "Problem": "problem:Problem",
    "Result": "engine.result:Result",
    "Trace": "engine.result:Trace",
    "Tuning": "engine.tuning:Tuning",
    "adam": "kernels:Adam",
    "amc": "kernels:AMC",
    "anneal": "kernels:Anneal",
    "full_batch": "engine.batches:full_batch",
    "mesh": "engine.devices.mesh:mesh",
    "gradient_descent": "kernels:GradientDescent",
    "metropolis": "kernels:Metropolis",
    "minibatch": "engine.batches:minibatch",
    "minimize": "minimize:minimize",
    "plot": "plots:plot",
    "progressive": "engine.batches:progressive",
    "resume": "runs:resume",
    "scipy_method": "minimize:scipy_method",
    "signal_norm": "signal_norm.trace:signal_norm",
    "train": "engine.train:train",
    "tune_sigma": "engine.tuning:tune_sigma",
}


def _import(name: str) -> Any:
    module, _, attribute = SOURCES[name].partition(":")
    return getattr(importlib.import_module(f"gradless.{module}"), attribute)


class _Package(ModuleType):
    """This package; the subpackage `signal_norm`, once it is imported, does not hide the function of that name."""

    def __getattr__(self, name: str) -> Any:
        if name not in SOURCES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        setattr(self, name, _import(name))
        return self.__dict__[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in SOURCES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*__all__, "__version__"})


sys.modules[__name__].__class__ = _Package
