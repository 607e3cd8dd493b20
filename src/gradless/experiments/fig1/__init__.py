"""Fig. 1: Metropolis Monte Carlo and gradient descent train a net to read MNIST. Paper: Secs. II A and II F."""

from gradless.experiments.fig1.drawing import draw
from gradless.experiments.fig1.judging import check
from gradless.experiments.fig1.running import run
from gradless.experiments.fig1.settings import SCALES, TITLE

__all__ = ["SCALES", "TITLE", "check", "draw", "run"]
