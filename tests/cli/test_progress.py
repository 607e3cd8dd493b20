"""What the line of progress says of the last moments."""

import io
import json
import math
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import gradless as gl
from gradless.cli import main, progress
from gradless.cli.console import told_if_possible
from gradless.engine.plan import Plan
from gradless.engine.train import prepare


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


@pytest.mark.parametrize("width", [60, 80, 160])
def test_the_live_line_fits_the_terminal_and_begins_with_step_share_and_time_left(width):
    """What does not fit is cut off at the end; sigma is the present one, not that of the last record."""
    console = Console(width=width, file=io.StringIO())
    live = progress.LiveLine(console)
    session = prepare(
        gl.amc(sigma=1.0, n_s=5),
        lambda x: jnp.sum(x**2),
        np.ones(9, np.float32),
        Plan(1000, gl.full_batch(), chains=(0,), record_every=10**6),
        metrics=lambda x: {"first": x[0], "a_metric_with_a_long_name": x[1]},
    )
    session.listeners.append(live)
    session.begin()
    session.go()
    with console.capture() as capture:
        console.print(live.progress)
    (line,) = capture.get().splitlines()
    assert len(line) <= width
    assert line.startswith("step 1,000")
    assert ("━" in line) == (width == 160)
    assert line.index("100%") < line.index("0:00") < line.index(" U ")
    sigma = float(session.chains[0].carry.state.sigma)
    assert sigma < 1
    assert (f"σ {sigma:.3g}" in line) == (width == 160)


def test_the_best_chain_is_told_of_also_when_it_has_ended():
    """The first chain starts at its target and ends there; the records after that have no numbers of it."""
    lines = io.StringIO()
    session = prepare(
        gl.metropolis(sigma=np.array([1e-3, 2e-3])),
        lambda x: jnp.sum(x**2),
        lambda key, sigma: jnp.full(2, 0.1 if sigma == 1e-3 else 3.0),
        Plan(4, gl.full_batch(), chains=(0, 1), record_every=1, target_loss=1.0),
        metrics=lambda x: {"first": x[0]},
    )
    session.listeners.append(progress.PlainLines(Console(file=lines), seconds=0.0))
    session.begin()
    session.go()
    assert len(session.rows) == 5
    assert "U 0.02  first 0.1" in lines.getvalue().splitlines()[-1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("words", [[], ["--json"], ["--quiet"]])
def test_a_run_whose_output_cannot_be_written_goes_on(cli, monkeypatch, words):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        main(["train", "tiny:fit", "--run", "run", *words], standalone_mode=False)
    assert json.loads(Path("run/metrics.jsonl").read_text().splitlines()[-1])["step"] == 40


def test_a_run_whose_reader_has_gone_ends():
    with pytest.raises(BrokenPipeError), told_if_possible():
        raise BrokenPipeError
