"""The paper's figures, a module each: its settings at three scales, `run`, `draw` and `check`."""

FIGURES = ("F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "E2")
SCALES = ("smoke", "quick", "paper")


def module_of(figure: str) -> str:
    """Return the module that holds a figure."""
    return "gradless.experiments.langevin" if figure == "E2" else f"gradless.experiments.fig{figure[1:]}"
