"""The examples for PyTorch run, small, and show what they say they show."""

import importlib.util
from pathlib import Path

import pytest

from gradless.data.store import DataUnavailable

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name):
    """Return an example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_run():
    named = "".join(path.read_text() for path in Path(__file__).parent.glob("*.py"))
    assert all(f'"{path.stem}"' in named for path in EXAMPLES.glob("*.py"))


def test_pytorch_threshold(capsys):
    accuracy = example("pytorch_threshold").main(steps=2000)
    assert "a path from the loss to a weight? no" in capsys.readouterr().out
    assert accuracy > 0.7  # no to everything is right in 63%


def test_pytorch_rnn(capsys, monkeypatch):
    """Without a network; the digits of scikit-learn stand in for MNIST."""
    module = example("pytorch_rnn")

    def unavailable(shrink):
        raise DataUnavailable

    monkeypatch.setattr(module, "zeros_and_ones", unavailable)
    accuracy = module.main(steps=600, hidden=8, batch=50, sigma=0.03)
    said = capsys.readouterr().out
    assert "MNIST cannot be fetched" in said
    assert said.count("step ") == 10
    assert accuracy > 0.8


@pytest.mark.filterwarnings("ignore")  # Lightning's own
def test_pytorch_lightning(capsys):
    loss = example("pytorch_lightning").main(epochs=50)
    if importlib.util.find_spec("lightning") is None:
        assert loss is None
        assert "Lightning is not installed: pip install lightning" in capsys.readouterr().out
    else:
        assert loss < 0.4  # always saying 0 has 0.5
