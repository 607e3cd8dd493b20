"""The tour: every command has its help, and what is no command is told in a line."""

import errno
import io
import subprocess
import sys

import pytest

import gradless as gl
from gradless.cli import COMMANDS, main


def test_the_tour_names_every_command(cli):
    words = cli("--help").output
    assert all(f"  {name} " in words for name in COMMANDS)
    assert "gradless train digits" in words
    assert cli("-h").output == words


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_help(cli, name):
    words = cli(name, "--help").output
    assert words.startswith("Usage: ")
    assert name in words.splitlines()[0]
    assert len(words.splitlines()) > 5


def test_the_help_of_a_problem_shows_its_own_options(cli):
    words = cli("train", "sine", "--help").output
    assert "--width" in words
    assert "neurons per hidden layer [10]" in words
    assert "--width" not in cli("train", "rosenbrock", "--help").output
    assert "--skip / --no-skip" in cli("train", "step", "--help").output


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("train", "<problem>"),
        ("sweep", "sweep-<problem>"),
        ("compare", "compare-<problem>"),
        ("optimize", "optimize"),
    ],
)
def test_the_help_names_the_folder_that_a_command_makes(cli, name, folder):
    assert f"folder of the run; runs/{folder}-<date>-<n>" in " ".join(cli(name, "--help").output.split())


def test_the_help_of_resume_and_replay_says_what_trust_means(cli):
    for command in ("resume", "replay"):
        assert "--trust" in cli(command, "--help").output


def test_the_version_is_told(cli):
    assert gl.__version__ in cli("--version").output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nosuch"], "there is no command 'nosuch': train, resume"),
        (["train"], "Missing argument 'PROBLEM'"),
        (["train", "sin"], "there is no problem 'sin'; did you mean sine or log-sine?"),
        (["train", "tiny:square", "--nosuch", "3"], "No such option '--nosuch'"),
        (["train", "tiny:square", "extra"], "Got unexpected extra argument (extra)"),
        (["train", "tiny:square", "--depth", "3"], "No such option '--depth'"),
        (["sweep", "tiny:square", "--chains", "3", "--sigma", "1,2"], "No such option '--chains'"),
        (["resume"], "Missing argument 'RUN'"),
        (["replay", "run"], "Missing option '--step'"),
        (["data", "cifar"], "'cifar' is not"),
    ],
)
def test_what_is_unknown_or_missing_is_told_in_a_line(refusal, words, told):
    assert told in refusal(*words)


def test_ctrl_c_before_a_run_has_begun_exits_with_130(cli, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("gradless.cli.follow.start_problem", interrupted)
    result = cli("train", "tiny:square", code=130)
    assert result.stderr == "stopped\n"


def test_who_stops_reading_the_output_is_told_nothing(cli, monkeypatch):
    def broken(*_, **__):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("gradless.cli.follow.start_problem", broken)
    assert cli("train", "tiny:square", code=1).stderr == ""


def test_a_terminal_without_greek_letters_shows_question_marks(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    main.main(["--version"], standalone_mode=False)
    print("\u03c3 = 1")
    stream.flush()
    assert stream.buffer.getvalue().endswith(b"? = 1\n")


def test_the_tour_is_quick_because_it_does_not_import_jax():
    program = (
        "from gradless.cli import main; import sys; main(['-h'], standalone_mode=False); print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_doctor_names_versions_devices_and_what_is_missing(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("GRADLESS_DATA", str(tmp_path))
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / name)
    monkeypatch.setattr("gradless.cli.doctor.version_of", lambda package: None if package == "flax" else "1.0")
    words = cli("doctor").output
    assert "gradless        1.0" in words
    assert "cpu:0" in words
    assert "threefry2x32" in words
    assert "not here yet: gradless data mnist fetches it" in words
    assert "missing; for your own flax models: pip install 'gradless[flax]'" in words


def test_doctor_says_where_mnist_is(cli, monkeypatch, tmp_path):
    from gradless.data.store import Report

    report = Report(tmp_path / "here", "cache", 1, (), ())
    monkeypatch.setattr("gradless.data.store.obtain", lambda *_, **__: ({}, report))
    assert f"in {tmp_path / 'here'}" in cli("doctor").output


def test_doctor_tells_of_a_wrong_data_folder_as_training_would(cli, monkeypatch):
    monkeypatch.setenv("GRADLESS_DATA", "nosuch")
    assert "GRADLESS_DATA must be a folder with the MNIST files, or unset, got 'nosuch'" in cli("doctor").output


def test_a_wrong_data_folder_is_told_in_a_line(cli):
    for words in (["data", "mnist"], ["train", "mnist", "--steps", "3"]):
        result = cli(*words, "--data-dir", "nosuch", code=2)
        assert result.output == "Error: data_dir must be a folder with the MNIST files, got 'nosuch'\n"
