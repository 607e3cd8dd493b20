"""Real processes, real signals: everything is saved, the exit code says so, and the run goes on."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import gradless as gl
from gradless.cli import interrupts
from gradless.records import RunDirectory, list_checkpoints

PATIENCE = 120  # seconds, on a busy machine
STEPS = 400_000

SLOW = """
import jax, jax.numpy as jnp, numpy as np
import gradless as gl

def loss(x):  # quick at the start, then a step takes for ever
    rounds = jnp.where(jnp.all(x == 1), 1, 10**9)
    return jnp.sum(x**2) + 0 * jax.lax.fori_loop(0, rounds, lambda _, y: jnp.sin(y) + x[0], x[0])

problem = gl.Problem(np.ones(3), loss)
"""

SWALLOWS = """
import importlib, os, signal, time
from gradless import cli

def swallow(name):  # as some code that JAX imports does
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
    except BaseException:
        pass
    return importlib.import_module(name)

cli.importlib = type("importlib", (), {"import_module": staticmethod(swallow)})
cli.main(["doctor"])
"""


def start(*words):
    """Start the command in a process of its own."""
    command = [sys.executable, "-c", "from gradless.cli import main; main()", *(str(word) for word in words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition, process):
    until = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)


def wait_for_checkpoint(run, process, after=-1):
    """Wait until the run has a checkpoint later than step `after`; return its step."""

    def newest():
        folder = Path(run, "checkpoints")
        return max((int(path.stem) for path in list_checkpoints(folder)), default=-1) if folder.is_dir() else -1

    wait_for(lambda: newest() > after, process)
    return newest()


def finish(process):
    out, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in out + err
    return process.returncode, out, err


def test_sigint_and_sigterm_save_everything_and_a_second_process_is_refused(cli, refusal, record_of):
    words = ["--checkpoint-every", 0.05, "--record-every", 1000]
    process = start("train", "rosenbrock", "--run", "my run", "--steps", 2_000_000_000, *words)
    wait_for_checkpoint("my run", process, after=0)
    assert f"my run is in use by process {process.pid} on " in refusal("resume", "my run")
    process.send_signal(signal.SIGINT)
    code, _, told = finish(process)
    assert code == 130
    assert told.splitlines()[-1].startswith("stopped by SIGINT at step ")
    assert told.splitlines()[-1].endswith("; go on with: gradless resume 'my run'")
    step = record_of("my run")["step"]

    process = start("resume", "my run")
    wait_for_checkpoint("my run", process, after=step)
    process.send_signal(signal.SIGTERM)
    code, _, told = finish(process)
    assert code == 143
    assert "stopped by SIGTERM" in told
    reached = record_of("my run")["step"]  # reads all of the log, up to the last checkpoint
    assert reached > step
    assert Path("my run/training.png").exists()

    cli("train", "rosenbrock", "--run", "whole", "--steps", reached, "--record-every", 1000, "--quiet")
    cut, whole = record_of("my run"), record_of("whole")
    assert [cut[name] for name in ("tensors", "rows", "accepted")] == [
        whole[n] for n in ("tensors", "rows", "accepted")
    ]


def test_a_second_sigint_stops_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("slow.py").write_text(SLOW)
    process = start("train", "slow:problem", "--run", "run")
    wait_for_checkpoint("run", process)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):  # the present step is waited for
        process.wait(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130
    process.communicate()
    with RunDirectory.resume("run"):
        assert [path.name for path in list_checkpoints(Path("run/checkpoints"))] == ["0.safetensors"]


def test_a_closed_terminal_ends_a_run_but_not_under_nohup():
    before = signal.getsignal(signal.SIGHUP)
    try:
        for handler, ends in ((signal.SIG_DFL, True), (signal.SIG_IGN, False)):
            signal.signal(signal.SIGHUP, handler)
            assert (signal.SIGHUP in interrupts.ending()) == ends
    finally:
        signal.signal(signal.SIGHUP, before)


def test_sigint_while_a_command_is_imported_is_not_lost():
    process = subprocess.Popen(
        [sys.executable, "-c", SWALLOWS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert finish(process) == (130, "", "stopped\n")


LOSES = """
import os, signal, time
import numpy as np
import gradless as gl

def init(key):  # what a library drops before the run has begun
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
    except KeyboardInterrupt:
        pass
    return np.ones(3)

problem = gl.Problem(init, lambda x: (x**2).sum())
"""


def test_sigint_that_is_lost_before_the_run_begins_stops_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("loses.py").write_text(LOSES)
    code, _, told = finish(start("train", "loses:problem", "--run", "run", "--steps", 2_000_000_000))
    assert code == 130
    assert "stopped by SIGINT at step" in told


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_run_that_is_ended_before_it_begins_leaves_no_folder(cli, monkeypatch, number, code):
    def init(key):
        assert len(list(Path("runs").iterdir())) == 1
        os.kill(os.getpid(), number)
        return np.ones(3)

    monkeypatch.setattr(sys.modules["tiny"], "ended", gl.Problem(init, lambda x: (x**2).sum()), raising=False)
    monkeypatch.setattr(interrupts.os, "_exit", sys.exit)
    cli("train", "tiny:ended", code=code)
    assert list(Path("runs").iterdir()) == []
    assert signal.getsignal(number) == signal.SIG_DFL


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The unbroken run, in a process of its own like the others."""
    run = tmp_path_factory.mktemp("whole") / "run"
    process = start("train", "rosenbrock", "--run", run, "--steps", STEPS, "--record-every", 1000, "--quiet")
    assert finish(process)[0] == 0
    return run


def kill_and_resume(run, whole, record_of, kills, seed):
    moments = random.Random(seed)
    words = ["train", "rosenbrock", "--run", run, "--steps", STEPS, "--record-every", 1000, "--checkpoint-every", 0.01]
    process, step = start(*words, "--quiet"), -1
    for _ in range(kills):
        step = wait_for_checkpoint(run, process, after=step)
        time.sleep(moments.uniform(0, 0.05))
        was_running = process.poll() is None
        process.kill()
        process.communicate()
        assert process.returncode == (-signal.SIGKILL if was_running else 0)
        process = start("resume", run, "--quiet")
    code, _, told = finish(process)
    assert (code, told) == (0, "")
    cut, unbroken = record_of(run), record_of(whole)
    assert [cut[name] for name in cut if name != "settings"] == [unbroken[name] for name in cut if name != "settings"]


def test_a_run_killed_three_times_equals_the_unbroken_one(tmp_path, whole, record_of):
    kill_and_resume(tmp_path / "run", whole, record_of, kills=3, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(7))
def test_a_run_killed_again_and_again_equals_the_unbroken_one(tmp_path, whole, record_of, seed):
    kill_and_resume(tmp_path / "run", whole, record_of, kills=3, seed=seed)  # 21 kills in all


@pytest.mark.skipif(not Path("/dev/shm").is_dir() or os.geteuid() != 0, reason="needs to mount a small disk")
def test_a_disk_that_is_really_full_is_told_and_loses_nothing(tmp_path, figures, cli, record_of):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        told = cli("train", "tiny:fit", "--run", disk / "run", "--steps", 3000, "--record-every", 1, code=1).output
        assert "No space left on device; training goes on" in told
        assert "3,000 (all steps done)" in told
        saved = shutil.copytree(disk / "run", tmp_path / "saved")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    cli("resume", saved, "--trust", "--quiet")
    cli("train", "tiny:fit", "--run", "whole", "--steps", 3000, "--record-every", 1, "--quiet")
    assert record_of(saved) == record_of("whole")
