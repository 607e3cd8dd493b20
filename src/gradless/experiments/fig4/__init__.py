"""Fig. 4: adaptivity speeds learning of high-frequency features. Paper: Sec. II C, Eq. (7)."""

from gradless.experiments.fig4.drawing import draw
from gradless.experiments.fig4.judging import check
from gradless.experiments.fig4.running import run
from gradless.experiments.fig4.settings import SCALES, TITLE

__all__ = ["SCALES", "TITLE", "check", "draw", "run"]
