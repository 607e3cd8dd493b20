"""gradless trains neural networks without gradients, by Metropolis Monte Carlo and its adaptive variant aMC.

import gradless as gl

algorithm = gl.amc(sigma=1e-2, epsilon=1e-2, n_s=100, signal_norm=True)
result = gl.train(algorithm, loss, params, data=(x, y), steps=100_000)
"""

from gradless.engine.batches import full_batch, minibatch, progressive
from gradless.engine.result import Result, Trace
from gradless.engine.train import train
from gradless.engine.tuning import Tuning, tune_sigma
from gradless.kernels import AMC as amc
from gradless.kernels import Adam as adam
from gradless.kernels import Anneal as anneal
from gradless.kernels import GradientDescent as gradient_descent
from gradless.kernels import Metropolis as metropolis
from gradless.problem import Problem
from gradless.runs import resume
from gradless.signal_norm import signal_norm

__version__ = "0.1.0"

__all__ = [
    "Problem",
    "Result",
    "Trace",
    "Tuning",
    "adam",
    "amc",
    "anneal",
    "full_batch",
    "gradient_descent",
    "metropolis",
    "minibatch",
    "progressive",
    "resume",
    "signal_norm",
    "train",
    "tune_sigma",
]
