"""Fig. 5: aMC trains a simple recurrent net whose gradients vanish or explode. Paper: Sec. II D."""

from gradless.experiments.fig5.drawing import draw
from gradless.experiments.fig5.judging import check
from gradless.experiments.fig5.problem import recurrent
from gradless.experiments.fig5.running import run
from gradless.experiments.fig5.settings import SCALES, TITLE

__all__ = ["SCALES", "TITLE", "check", "draw", "recurrent", "run"]
