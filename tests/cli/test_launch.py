"""Real processes on this machine that work on one run: the same chain, other layouts, and a death."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gradless.cli.devices import from_torchrun
from gradless.records import AcceptedLog, list_checkpoints, load_newest

PATIENCE = 120  # seconds, on a busy machine
RUN = [sys.executable, "-m", "gradless"]


def gradless(*words):
    return subprocess.run([*RUN, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE, check=False)


def chain_of(run):
    """Return the tensors of the newest checkpoint and the accepted steps."""
    newest = load_newest(Path(run, "checkpoints"), pytest.fail, set_aside=False)
    accepted = AcceptedLog(Path(run, "accepted.log"), 1).read(0, newest.step)
    return newest.step, {name: one.tobytes() for name, one in newest.tensors.items()}, accepted.tolist()


@pytest.fixture(scope="module")
def alone_run(tmp_path_factory):
    run = tmp_path_factory.mktemp("alone") / "run"
    assert gradless("train", "rosenbrock", "--steps", 3000, "--run", run, "--quiet").returncode == 0
    return run


@pytest.fixture(scope="module")
def alone(alone_run):
    return chain_of(alone_run)


def test_two_processes_make_the_chain_of_one_and_one_goes_on_with_it(alone, tmp_path):
    run = tmp_path / "run"
    words = ["train", "rosenbrock", "--mesh", "proposals=2", "--run", run, "--record-every", 3]
    begun = gradless("launch", "-n", 2, "--", *words, "--steps", 1500, "--json")
    assert begun.returncode == 0, begun.stderr
    lines = [json.loads(line) for line in begun.stdout.splitlines()]  # of process 0 alone, and nothing else
    assert lines[-1]["steps"] == 1500
    assert gradless("resume", run, "--steps", 3000, "--quiet").returncode == 0
    assert chain_of(run) == alone


@pytest.mark.parametrize("victim", [pytest.param(0, marks=pytest.mark.soak), 1])
def test_when_a_process_dies_the_others_end_and_the_run_goes_on(tmp_path, victim):
    run = tmp_path / "run"
    words = [
        "train",
        "rosenbrock",
        "--mesh",
        "proposals=2",
        "--run",
        run,
        "--steps",
        10**8,
        "--checkpoint-every",
        "0.5",
    ]
    words = [*RUN, "launch", "-n", "2", "--", *map(str, words)]
    launcher = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: newest(run) > 0, launcher)
    os.kill(process(launcher.pid, victim), signal.SIGKILL)
    began = time.monotonic()
    _, told = launcher.communicate(timeout=PATIENCE)
    assert time.monotonic() - began < 60
    assert launcher.returncode != 0
    assert "another process of this run has ended" in told
    assert "Traceback" not in told
    step = newest(run)
    assert gradless("resume", run, "--steps", step + 500, "--quiet").returncode == 0
    assert newest(run) == step + 500


def test_ctrl_c_at_a_terminal_comes_once_and_saves_everything(tmp_path):
    """A terminal signals the whole process group; a second SIGINT would end a run without its last checkpoint."""
    run = tmp_path / "run"
    words = ["train", "rosenbrock", "--mesh", "chains=2", "--chains", "2", "--run", str(run), "--steps", str(10**8)]
    words = [*RUN, "launch", "-n", "1", "--", *words, "--checkpoint-every", "0.5"]
    launcher = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)
    wait_until(lambda: newest(run) > 0, launcher)
    assert os.getpgid(process(launcher.pid, 0)) != launcher.pid
    os.killpg(launcher.pid, signal.SIGINT)
    _, told = launcher.communicate(timeout=PATIENCE)
    assert launcher.returncode == 130
    assert f"stopped by SIGINT at step {newest(run):,}" in told


def test_a_refusal_is_told_in_lines_and_leaves_nobody_waiting(alone_run):
    """The folder holds a run, which process 0 sees; else the others would go on and be aborted when it leaves."""
    began = time.monotonic()
    told = gradless("launch", "-n", 2, "--", "train", "rosenbrock", "--mesh", "proposals=2", "--run", alone_run)
    assert time.monotonic() - began < 60
    assert told.returncode == 2
    assert f"Error: {alone_run} already holds a run" in told.stderr
    assert "Error: process 0 has refused the run" in told.stderr
    assert "another process" not in told.stderr
    assert "stack trace" not in told.stderr


def newest(run):
    folder = Path(run, "checkpoints")
    return max((int(path.stem) for path in list_checkpoints(folder)), default=-1) if folder.is_dir() else -1


def wait_until(condition, process):
    until = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


def process(launcher, place):
    """Return the id of one of the processes that a launcher has started."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if parent == launcher and words[words.index(b"--process") + 1] == str(place).encode():
                return int(entry.name)
    raise AssertionError(f"process {place} is not there")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "rosenbrock", "--process", 0], "belong together"),
        (["train", "rosenbrock", "--coordinator", "here", "--process", 0, "--processes", 2], "must be HOST:PORT"),
        (["train", "rosenbrock", "--coordinator", "a:1", "--process", 2, "--processes", 2], "must be below the 2"),
        (["train", "rosenbrock", "--mesh", "proposals=two"], "must look like proposals=4,data=2"),
        (["train", "rosenbrock", "--mesh", "rows=2"], "must look like proposals=4,data=2"),
        (["train", "rosenbrock", "--speculate", "often"], "must be a whole number or auto"),
        (["launch", "--", "doctor"], "launch starts train or resume"),
    ],
)
def test_wrong_use_is_one_line(cli, words, told):
    assert told in cli(*words, code=2).output


def test_that_there_is_no_mesh_to_share_is_known_before_others_are_waited_for(refusal, monkeypatch):
    monkeypatch.setattr("gradless.cli.devices.connect", lambda *_: pytest.fail("waits for others"))
    words = ["--coordinator", "a:1", "--process", 0, "--processes", 2]
    assert refusal("train", "rosenbrock", *words).startswith("several processes need a mesh to share")


def test_torchruns_variables_are_understood():
    variables = {"MASTER_ADDR": "node7", "MASTER_PORT": "29500", "RANK": "3", "WORLD_SIZE": "8"}
    assert from_torchrun(variables) == {"coordinator_address": "node7:29501", "num_processes": 8, "process_id": 3}
    assert from_torchrun({"RANK": "3"}) == {}


@pytest.mark.soak  # the other way round is tested above
def test_two_processes_go_on_with_a_run_of_one(alone, tmp_path):
    run = tmp_path / "run"
    words = ["--steps", 1500, "--run", run, "--quiet", "--mesh", "proposals=2", "--speculate", "auto"]
    assert gradless("train", "rosenbrock", *words).returncode == 0
    again = gradless("launch", "-n", 2, "--", "resume", run, "--steps", 3000, "--mesh", "proposals=4", "--quiet")
    assert again.returncode == 0, again.stderr
    assert chain_of(run) == alone
    assert np.all(np.diff(alone[2]) > 0)
