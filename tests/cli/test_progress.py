"""What a command shows while a run goes on, and what becomes of the run where that cannot be written."""

import io
import json
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import gradless as gl
from gradless.cli import main, progress, summary
from gradless.cli.console import told_if_possible
from gradless.engine.plan import Plan
from gradless.engine.train import prepare


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


@pytest.mark.parametrize("num_chains", [1, 4])
@pytest.mark.parametrize("width", [60, 80, 160])
def test_the_course_of_the_loss_fits_the_terminal(width, num_chains):
    """Its bars take the room that is left, 40 columns at most, and are left out where that is next to none."""
    console = Console(width=width, file=io.StringIO(), soft_wrap=True)
    result = gl.train(gl.amc(sigma=0.1), lambda x: jnp.sum(x**2), np.ones(3), steps=200, chains=num_chains)
    summary.show(console, result, "run", is_quiet=False)
    (line,) = [line for line in console.file.getvalue().splitlines() if line.startswith("loss U")]
    numbers = line.rstrip("▁▂▃▄▅▆▇█").rstrip()
    room = min(width - len(numbers) - 3, 40)
    assert len(line) - len(numbers) == (room + 3 if room >= 8 else 0)


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
