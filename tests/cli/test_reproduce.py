"""`gradless reproduce`: data, pictures, a page and a table of verdicts; stopped, it goes on with the same command."""

import json
import shutil
import signal
import subprocess
import sys
import time

import jax
import pytest
from click.testing import CliRunner
from rich.console import Console

from gradless.cli import main
from gradless.cli.reproduce import Reproduction
from gradless.data.store import DataUnavailable
from gradless.experiments import fig3, langevin
from gradless.experiments.claims import FAIL, judge


@pytest.fixture
def reproduce(cli):
    return lambda *arguments, code=0: cli("reproduce", *arguments, code=code).output


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make F3 and E2 once; return the folder and what was said."""
    folder, before = tmp_path_factory.mktemp("reproduce"), jax.config.jax_enable_x64
    result = CliRunner().invoke(main, ["reproduce", "F3", "e2", "--scale", "smoke", "-o", str(folder)])
    jax.config.update("jax_enable_x64", before)
    assert result.exit_code == 0, result.output
    return folder, result.output


@pytest.fixture
def copied(made, tmp_path):
    return shutil.copytree(made[0], tmp_path / "copied")


def test_one_command_leaves_data_pictures_verdicts_and_a_page(reproduce, made, copied):
    words = made[1]
    assert "F3a" in words
    assert "E2" in words
    assert {path.suffix for path in (copied / "F3").iterdir()} >= {".csv", ".png", ".svg"}
    page = (copied / "index.html").read_text()
    assert page.count("<svg") == 2
    claims = [verdict["claim"] for verdict in json.loads((copied / "verdicts.json").read_text())]
    assert claims == ["F3a", "F3b", "E2"]
    reproduce("E2", "--scale", "smoke", "-o", copied)  # what was there before stays on the page
    assert claims == [verdict["claim"] for verdict in json.loads((copied / "verdicts.json").read_text())]
    assert (copied / "index.html").read_text().count("<svg") == 2


def test_redraw_uses_the_saved_data_alone(reproduce, copied, monkeypatch):
    (copied / "F3" / "fig3.png").unlink()
    monkeypatch.setattr(fig3, "run", lambda *arguments: pytest.fail("it ran again"))
    words = reproduce("F3", "f3", "--scale", "smoke", "-o", copied, "--redraw")
    assert words.count("F3a") == 1  # named twice, it is still one figure
    assert (copied / "F3" / "fig3.png").exists()


def test_redraw_of_all_leaves_out_what_has_not_been_run(reproduce, copied, tmp_path):
    words = reproduce("--scale", "smoke", "-o", copied, "--redraw")
    assert "F4 is left out: it has not been run" in words
    assert "F3a" in words
    assert "largest |z|" in words  # of E2, the last of all
    (tmp_path / "empty").mkdir()
    assert "empty has no saved data" in reproduce("--scale", "smoke", "-o", tmp_path / "empty", "--redraw", code=2)


def test_a_claim_that_fails_is_exit_code_1(reproduce, copied, monkeypatch):
    bad = judge("F3a", "says", "measured", "rule", holds=False)
    monkeypatch.setattr(fig3, "check", lambda out, scale: [bad])
    assert FAIL in reproduce("F3", "--scale", "smoke", "-o", copied, code=1)


def test_wrong_use_is_one_line(reproduce, tmp_path):
    assert "figures must be among F1, F2" in reproduce("F9", "-o", tmp_path, code=2)
    words = reproduce("F3", "-o", tmp_path, "--redraw", code=2)
    assert "F3 has no saved data" in words
    assert "Traceback" not in words


def test_a_folder_keeps_to_one_scale(reproduce, copied):
    before = (copied / "verdicts.json").read_text()
    for more in ((), ("--redraw",)):
        words = reproduce("F3", "--scale", "quick", "-o", copied, *more, code=2)
        assert "holds figures of --scale smoke: give that scale, or another --out" in words
    assert (copied / "verdicts.json").read_text() == before
    (copied / "scale.txt").unlink()
    words = reproduce("F3", "--scale", "smoke", "-o", copied, code=2)
    assert "holds tables of an unknown scale" in words
    assert not (copied / "scale.txt").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2].rstrip("0123456789."),  # cut off, as by a full disk
        lambda text: "",
        lambda text: "\0\0\0\xff",
        lambda text: text.replace("distance", "other"),
    ],
)
def test_damaged_data_are_one_line(reproduce, copied, damage):
    table = copied / "F3" / "convergence.csv"
    table.write_bytes(damage(table.read_text()).encode("latin-1"))
    words = reproduce("F3", "--scale", "smoke", "-o", copied, "--redraw", code=2)
    assert "the saved data of F3" in words
    assert "F3a" in reproduce("F3", "--scale", "smoke", "-o", copied)  # made anew from the runs


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("moments.csv", None, "moments.csv, from which it was drawn: restore it, or run E2 again"),
        ("moments.csv", "", "moments.csv is no table"),
        ("moments.csv", "axis\ndownhill\n", "the saved data of E2"),
        ("langevin.svg", "<svg", "langevin.svg is damaged: draw it again with `gradless reproduce E2 --redraw`"),
    ],
)
def test_damaged_data_of_another_figure_do_not_hide_the_verdicts(reproduce, copied, name, text, told):
    (copied / "E2" / name).unlink()
    if text is not None:
        (copied / "E2" / name).write_text(text)
    words = reproduce("F3", "--scale", "smoke", "-o", copied, code=2)
    assert "F3a" in words
    assert told in words


def test_a_figure_that_cannot_be_made_does_not_hide_the_verdicts_before_it(reproduce, copied, monkeypatch):
    def run(out, scale, workshop):
        raise DataUnavailable("MNIST is not on this machine")

    monkeypatch.setattr(fig3, "run", run)
    words = reproduce("E2", "F3", "--scale", "smoke", "-o", copied, code=2)
    assert "largest |z|" in words
    assert "MNIST is not on this machine" in words.splitlines()[-1]


def test_without_their_data_figures_are_left_out_of_all(reproduce, copied, monkeypatch):
    def run(out, scale, workshop):
        raise DataUnavailable("MNIST is not on this machine")

    monkeypatch.setattr(fig3, "run", run)
    monkeypatch.setattr("gradless.cli.reproduce.FIGURES", ("F3", "E2"))
    words = reproduce("--scale", "smoke", "-o", copied)
    assert "F3 is left out: MNIST is not on this machine" in words
    assert "largest |z|" in words


def test_what_a_stopped_reproduction_did_not_come_to_stays_on_the_page(reproduce, copied):
    before = (copied / "verdicts.json").read_text()
    (copied / "F3" / "runs" / "epsilon-0-n_s-20" / "finished").unlink()
    checkpoints = copied / "F3" / "runs" / "epsilon-0-n_s-20" / "checkpoints"
    (checkpoints / "2000.safetensors").unlink()
    words = reproduce("F3", "E2", "--scale", "smoke", "-o", copied, "--time", "0.01s")
    assert "time is up in F3" in words
    assert (copied / "verdicts.json").read_text() == before


def test_a_signal_during_a_figure_without_runs_is_told(copied, monkeypatch):
    def run(out, scale, workshop):
        workshop.halt.stop_requested = "SIGTERM"

    monkeypatch.setattr(langevin, "run", run)
    reproduction = Reproduction(Console(), copied, "smoke", is_quiet=True)
    assert reproduction.go_through(["E2", "F3"]) == "SIGTERM"
    assert list(reproduction.judged) == ["E2"]


@pytest.mark.parametrize("budget", ["0.01s", "0"])
def test_out_of_time_it_says_so_and_the_same_command_goes_on(reproduce, tmp_path, budget):
    arguments = ("F3", "--scale", "smoke", "-o", tmp_path)
    words = reproduce(*arguments, "--time", budget)
    assert "time is up in F3 (epsilon-0-n_s-20); go on with the same command" in words
    first = tmp_path / "F3" / "runs" / "epsilon-0-n_s-20"
    assert list((first / "checkpoints").iterdir())
    assert not (first / "finished").exists()
    assert "F3b" in reproduce(*arguments)
    assert (first / "finished").exists()


def test_a_signal_stops_it_with_everything_saved(tmp_path):
    command = [sys.executable, "-m", "gradless", "reproduce", "F6", "--scale", "paper", "-o", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    run = tmp_path / "F6" / "runs" / "aMC-on-2-gaussian-0"
    until = time.monotonic() + 120
    while not (run / "metrics.jsonl").exists() and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    words, _ = process.communicate(timeout=60)
    assert process.returncode == 143, words
    assert "stopped by SIGTERM in F6 (aMC-on-2-gaussian-0); go on with the same command" in words
    assert list((run / "checkpoints").iterdir())
