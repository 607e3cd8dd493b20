"""Fig. 6: deep nets learn a step function by aMC with signal norm where gradients vanish. Paper: Sec. II E."""

from gradless.experiments.fig6.drawing import draw
from gradless.experiments.fig6.judging import check
from gradless.experiments.fig6.running import run
from gradless.experiments.fig6.settings import SCALES, TITLE

__all__ = ["SCALES", "TITLE", "check", "draw", "run"]
