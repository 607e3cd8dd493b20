"""The command line, called in this process, in a folder of its own, with small problems that compile once."""

import sys
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

import gradless as gl
from gradless.cli import main
from gradless.models import mse

X = np.linspace(-1, 1, 12, dtype=np.float32)[:, None]
DATA = (X, X**2)


def fit(params, batch):
    return mse(batch[0] * params[0] + params[1], batch[1])


def square(x):
    return jnp.sum(x**2)


tiny = ModuleType("tiny")
tiny.square = gl.Problem(np.ones(3, np.float32), square, algorithms={"amc": {"sigma": 0.1}}, steps=40)
tiny.fit = gl.Problem(
    lambda key: jax.random.normal(key, (2,)),
    fit,
    data=DATA,
    test=DATA,
    metrics=lambda params, test: {"error": fit(params, test)},
    error=fit,
    algorithms={"amc": {"sigma": 0.1, "n_s": 5}, "mc": {"sigma": 0.1}, "gd": {"learning_rate": 0.1}, "adam": {}},
    steps=40,
)
tiny.vector = gl.Problem(np.ones(3), lambda x: x**2)
tiny.nan = gl.Problem(np.ones(3), lambda x: jnp.sum(x) * jnp.nan)


@pytest.fixture
def figures():
    """For the tests that look at figures; in the others none are drawn, which takes more time than all the rest."""


@pytest.fixture
def cli(request, tmp_path, monkeypatch):
    """Run a command as a person would, and expect an exit code; a stack trace is always a failure."""
    if "figures" not in request.fixturenames:
        monkeypatch.setattr("gradless.cli.follow.draw_figures", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "tiny", tiny)
    monkeypatch.setattr("gradless.records.disk.fsync", lambda fd: None)
    monkeypatch.setattr("gradless.records.disk.fsync_folder", lambda folder: None)
    before = jax.config.jax_enable_x64

    def run(*words, code=0):
        result = CliRunner().invoke(main, [str(word) for word in words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert "Traceback" not in result.output
        assert result.exit_code == code, result.output
        return result

    yield run
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def refusal(cli):
    """Run a command that must be refused: exit code 2, and one line that says why."""

    def run(*words):
        result = cli(*words, code=2)
        assert result.stdout == ""
        *usage, line = result.stderr.rstrip("\n").splitlines()
        assert line.startswith("Error: ")
        assert usage == [] or usage[0].startswith("Usage: ")
        return line.removeprefix("Error: ")

    return run
