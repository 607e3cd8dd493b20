"""A run that Python begins is shown where somebody would see it, and nothing of it stays behind."""

import errno
import io
import math
import warnings
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.engine import progress
from gradless.engine.plan import Plan
from gradless.engine.train import prepare

pytestmark = pytest.mark.usefixtures("one_step_rounds")


class Terminal(io.StringIO):
    """A terminal of so many columns, which shows the last of what was written over one another."""

    encoding = "utf-8"

    def isatty(self):
        return True

    @property
    def drawn(self):
        return self.getvalue().split("\r")


@pytest.fixture
def stderr(monkeypatch):
    """Let runs be shown on a stream of the test's own; pytest has sys.stderr for itself."""

    def show(stream):
        monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream, stdout=None, modules={}))
        return stream

    return show


@pytest.fixture
def terminal(stderr, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    return stderr(Terminal())


def train(**settings):
    return gl.train(gl.amc(sigma=0.1), lambda x: jnp.sum(x**2), np.ones(2), steps=3, record_every=1, **settings)


def test_a_terminal_shows_a_line_and_is_left_as_it_was(terminal):
    train()
    before, compiling, *_, empty, after = terminal.drawn
    lines = [line for line in terminal.drawn if line.startswith("step")]
    assert (before, compiling, after) == ("", "compiling", "")
    assert [line.split("  ")[0] for line in lines] == [f"step {step} of 3" for step in (1, 2)]
    assert all("  U " in line and "steps/s" in line for line in lines)
    assert empty == ""
    wiped = terminal.drawn[terminal.drawn.index(lines[-1]) + 1]
    assert set(wiped) == {" "}
    assert len(wiped) == len(lines[-1])


def test_what_others_print_begins_a_line_of_its_own(terminal, tmp_path, monkeypatch):
    def speak(words):
        terminal.write(f"<{words}>")

    monkeypatch.setattr(warnings, "showwarning", lambda words, *where: speak(words))
    warnings.simplefilter("always")  # in tests a warning is an error; pytest puts the filters back
    given = {"loss": lambda x: jnp.sum(x**2), "params": np.ones(2)}
    given["callback"] = lambda run: speak(f"at step {run['step']}")
    gl.train(gl.amc(sigma=1e-30), **given, steps=2, record_every=1, run=tmp_path / "run", precision="float32")
    gl.resume(tmp_path / "run", **given, steps=4)
    spoken = [words for words in terminal.drawn if "<" in words]
    assert all(words.startswith("<") for words in spoken)
    assert "".join(spoken).count("<at step") == 6
    assert "".join(spoken).count("<frozen") == 2


def test_a_shorter_line_leaves_nothing_of_the_longer_one(terminal):
    line = progress.OneLine(terminal)
    for words in ("a long line", "short"):
        line.draw(words)
    assert terminal.drawn[-1] == "short      "


def test_a_line_does_not_wrap(terminal):
    progress.OneLine(terminal).draw("x" * 100)
    assert terminal.drawn[-1] == "x" * 59


def test_the_line_goes_also_when_the_run_cannot_begin(terminal):
    with pytest.raises(ValueError, match="the loss at the starting point"):
        gl.train(gl.amc(), lambda x: jnp.sum(x) / 0.0, np.ones(2), steps=3)
    assert terminal.drawn[1:] == ["compiling", " " * 9, ""]


def test_nothing_is_shown_where_nobody_looks_or_wants_it(stderr, terminal):
    train(progress=False)
    assert terminal.getvalue() == ""
    log = stderr(io.StringIO())
    train()
    assert log.getvalue() == ""


def test_a_log_gets_lines_if_it_is_wanted(stderr):
    log = stderr(io.StringIO())
    train(progress=True)
    (line,) = log.getvalue().splitlines()  # a second one would come after five seconds
    assert line.startswith("step 0 of 3  U 2 ")


def test_a_run_that_goes_on_is_shown_too(terminal, tmp_path):
    given = {"loss": lambda x: jnp.sum(x**2), "params": np.ones(2)}
    gl.train(gl.amc(sigma=0.1), **given, steps=3, run=tmp_path / "run", progress=False)
    gl.resume(tmp_path / "run", **given, steps=5)
    assert [line.split("  ")[0] for line in terminal.drawn if line.startswith("step")] == [
        "step 3 of 5",
        "step 4 of 5",
    ]


def test_tuning_is_one_run_with_a_line(terminal):
    gl.tune_sigma(gl.amc(), lambda x: jnp.sum(x**2), np.ones(2), sigmas=[0.1, 0.2], steps=2)
    assert any(line.startswith("step 1 of 2") for line in terminal.drawn)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), ValueError("closed")])
def test_a_run_does_not_end_for_want_of_an_audience(terminal, monkeypatch, error):
    def fail(words):
        raise error

    monkeypatch.setattr(terminal, "write", fail)
    assert train().steps == 3


def test_a_terminal_without_greek_letters_gets_the_rest(terminal, monkeypatch):
    monkeypatch.setattr(Terminal, "encoding", "ascii")
    train()
    assert any("  ? 0." in line for line in terminal.drawn)


@pytest.mark.parametrize("wrong", ["no", 1, []])
def test_it_is_a_switch(wrong):
    with pytest.raises(ValueError, match=r"^progress must be True or False, got"):
        train(progress=wrong)


def test_pace_and_acceptance_are_those_of_the_last_moments(monkeypatch):
    now = iter([10.0, 11.0, 13.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    recent = progress.Recent()
    recent.update(0, np.zeros((2, 0), bool))
    assert math.isnan(recent.acceptance(0))
    recent.update(4, np.array([[1, 0, 0, 0], [1, 1, 1, 1]], bool))
    assert (recent.pace, recent.acceptance(0), recent.acceptance(1)) == (4.0, 0.25, 1.0)
    recent.update(6, np.array([[1, 1], [0, 0]], bool))
    assert (recent.pace, recent.acceptance(0)) == (2.0, 0.5)
    assert recent.acceptance(1) == pytest.approx(4 / 6)


def test_the_best_chain_is_told_of_also_when_it_has_ended():
    """The first chain starts at its target and ends there; the records after that have no numbers of it."""
    lines = []
    session = prepare(
        gl.metropolis(sigma=np.array([1e-3, 2e-3])),
        lambda x: jnp.sum(x**2),
        lambda key, sigma: jnp.full(2, 0.1 if sigma == 1e-3 else 3.0),
        Plan(4, gl.full_batch(), chains=(0, 1), record_every=1, target_loss=1.0),
        metrics=lambda x: {"first": x[0]},
    )
    session.listeners.append(progress.PlainLines(lines.append, seconds=0.0))
    session.begin()
    session.go()
    assert len(session.rows) == 5
    assert "U 0.02  first 0.1" in lines[-1]
