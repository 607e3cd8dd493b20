"""The algorithms, each a frozen set of settings with pure functions, and the table of all of them."""

from gradless.kernels.amc import AMC
from gradless.kernels.gradient import Adam, GradientDescent
from gradless.kernels.metropolis import Metropolis

ALGORITHMS = {kernel.name: kernel for kernel in (Metropolis, AMC, GradientDescent, Adam)}

__all__ = ["ALGORITHMS", "AMC", "Adam", "GradientDescent", "Metropolis"]
