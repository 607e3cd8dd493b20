"""The examples in cells run as plain scripts, small, and leave the pictures whose names they print."""

import itertools
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from matplotlib.colors import to_rgb

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {
    "rosenbrock_paths": {"STEPS": 300},
    "deep_net": {"DEPTH": 1, "STEPS": 300, "ADAM_STEPS": 20, "CHAINS": 2},
    "threshold_net": {"STEPS": 300},
    "flax_model": {"STEPS": 60, "BATCH_START": 1437},
    "pytorch_model": {"STEPS": 100},
    "simulator": {"EVALUATIONS": 200, "PATHS": 200},
}
SAYS = {
    "rosenbrock_paths": "epsilon 0.1   distance from the minimum",
    "deep_net": "chains have left the plateau",
    "threshold_net": "largest derivative of the loss: 0.0",
    "flax_model": "1,370 parameters",
    "pytorch_model": "the same net? yes",
    "simulator": "theory         mean work 8.3",
}


@pytest.fixture
def precision():
    """An example may turn float64 on for its whole process."""
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


def smaller(source, settings):
    """Return an example with other numbers in its settings; one that is not there is an error."""
    for name, value in settings.items():
        source, found = re.subn(rf"^{name} = [\d_]+$", f"{name} = {value}", source, flags=re.MULTILINE)
        assert found == 1, name
    return source


@pytest.mark.parametrize("name", SMALL)
def test_an_example_runs_from_top_to_bottom(name, tmp_path, monkeypatch, capsys, precision):
    if name == "flax_model":
        pytest.importorskip("flax")
    monkeypatch.chdir(tmp_path)
    source = (EXAMPLES / f"{name}.py").read_text()
    names = {"__name__": "__main__"}
    exec(compile(smaller(source, SMALL[name]), f"{name}.py", "exec"), names)  # noqa: S102
    said = capsys.readouterr().out
    assert SAYS[name] in said
    assert said.splitlines()[-1] == f"{name}.png"
    picture = (tmp_path / f"{name}.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000  # more than empty axes
    for axes in names["figure"].axes:
        for one, other in itertools.combinations(axes.get_legend_handles_labels()[0], 2):
            assert differs_in_grey(one, other), (one.get_label(), other.get_label())


def test_the_biases_of_the_threshold_net_are_no_copy_of_its_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = (EXAMPLES / "threshold_net.py").read_text().partition("def answer")[0]  # up to the start of a net
    names = {}
    exec(compile(source, "threshold_net.py", "exec"), names)  # noqa: S102
    for layer in names["init"](jax.random.key(0)):
        rows = layer["weight"] * len(layer["weight"]) ** 0.5  # as they were drawn
        assert not np.isclose(rows, layer["bias"], rtol=1e-3).all(axis=1).any()


def differs_in_grey(one, other):
    """Whether two curves have unlike dashes, markers or widths, or a brightness of their own."""
    if any(getattr(one, f"get_{what}")() != getattr(other, f"get_{what}")() for what in ("linestyle", "marker", "lw")):
        return True
    bright, dark = (np.dot(to_rgb(curve.get_color()), (0.299, 0.587, 0.114)) for curve in (one, other))
    return abs(bright - dark) > 0.15


@pytest.mark.parametrize("name", SMALL)
def test_an_example_opens_as_a_notebook(name):
    """Cells begin with `# %%`; those with `[markdown]` hold comments alone, the first a title."""
    source = (EXAMPLES / f"{name}.py").read_text()
    first, *cells = re.split(r"^# %%", source, flags=re.MULTILINE)
    assert first == ""
    assert cells[0].startswith(" [markdown]\n# # ")
    texts = [cell for cell in cells if cell.startswith(" [markdown]")]
    assert len(texts) >= 2
    for text in texts:
        assert all(line.startswith("#") for line in text.splitlines()[1:] if line.strip())
