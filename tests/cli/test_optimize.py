"""`gradless optimize`: the chain of gl.AskTell by an outside program, whatever happens in between."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import gradless as gl

SIM = """
import sys
x = [float(v) for v in open(sys.argv[1])]
print(sum((v - 1) ** 2 for v in x))
"""
UNEQUAL = """
import sys, time
x = [float(v) for v in open(sys.argv[1])]
time.sleep(0.3 * (1e3 * x[0] % 1))  # so that later proposals often end before earlier ones
print(sum((v - 1) ** 2 for v in x))
"""
NOISY = """
import random, sys
x = [float(v) for v in open(sys.argv[1])]
print(sum((v - 1) ** 2 for v in x) + random.Random(int(sys.argv[2])).gauss(0, 0.3))
"""
PYTHON = f"{sys.executable} -S -I"
CHAIN = ["--dim", 2, "--sigma", 0.3, "--epsilon", 0.1, "--n-s", 4, "--seed", 3]
PATIENCE = 120


def loss(x):
    return sum((v - 1) ** 2 for v in x.tolist())


@pytest.fixture
def sim(tmp_path):
    def make(text=SIM, name="sim.py"):
        (tmp_path / name).write_text(text)
        return f"{PYTHON} {tmp_path / name} {{params}}"

    return make


def rows(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def course(run):
    """What must not depend on how a run came there: all but times and what was evaluated in vain."""
    metrics = [
        {name: row[name] for name in row if name not in ("seconds", "evaluations")}
        for row in rows(f"{run}/metrics.jsonl")
    ]
    return metrics, Path(run, "best.txt").read_text()


def used(run):
    """The evaluations in the journal by name; each must be there once."""
    lines = rows(f"{run}/journal.jsonl")
    named = {(row["after"], row["step"], row["kind"], row["draw"]): row["loss"] for row in lines}
    assert len(named) == len(lines)
    return named


def test_it_makes_the_moves_of_ask_and_tell(cli, sim):
    told = cli("optimize", "--command", sim(), *CHAIN, "--steps", 25, "--run", "run").output
    opt = gl.AskTell(np.zeros(2), gl.amc(sigma=0.3, epsilon=0.1, n_s=4), seed=3)
    while opt.step < 25:
        opt.tell(loss(opt.ask()))
    assert np.array_equal(np.loadtxt("run/best.txt"), opt.best.x)
    last = rows("run/metrics.jsonl")[-1]
    names = ("step", "loss", "acceptance", "sigma", "evaluations")
    assert [last[name] for name in names] == [25, opt.loss, opt.accepted / 25, opt.sigma, 26]
    assert 0 < opt.accepted < 25
    for words in ("25 (all steps done)", "evaluations       26; 0 thrown away", "best parameters   run/best.txt"):
        assert words in told


def test_losses_that_are_no_numbers_are_told(cli, sim):
    command = sim("import sys; x = [float(v) for v in open(sys.argv[1])]; print('nan' if any(x) else 1.0)")
    told = cli("optimize", "--command", command, *CHAIN, "--steps", 3, "--run", "run").output
    assert "3 for a loss that was not a number" in told


def test_more_steps_are_remembered_and_fewer_lose_nothing(cli, sim):
    cli("optimize", "--command", sim(), *CHAIN, "--steps", 5, "--run", "run", "--quiet")
    first = Path("run/best.txt").read_text()
    cli("optimize", "--resume", "--trust", "--run", "run", "--steps", 30, "--quiet")
    best = Path("run/best.txt").read_text()
    assert best != first
    told = cli("optimize", "--resume", "--trust", "--run", "run").output
    assert "30 (all steps done)" in told
    cli("optimize", "--resume", "--trust", "--run", "run", "--steps", 5, "--quiet")
    assert Path("run/best.txt").read_text() == best
    Path("run/best.txt").write_text(first)  # as it would be after a kill: it is not written at every step
    cli("optimize", "--resume", "--trust", "--run", "run", "--steps", 30, "--quiet")
    assert Path("run/best.txt").read_text() == best


def test_a_link_planted_in_a_copied_run_leads_no_write_out_of_it(cli, sim, tmp_path):
    cli("optimize", "--command", sim(), *CHAIN, "--steps", 2, "--run", "run", "--quiet")
    outside = tmp_path / "outside"
    outside.mkdir()
    Path("run/.work").symlink_to(outside)
    told = cli("optimize", "--resume", "--trust", "--run", "run", "--steps", 4, code=2).output
    assert ".work is a link to another folder: remove it" in told
    assert list(outside.iterdir()) == []


def test_a_limit_given_later_takes_the_place_of_the_default_steps(cli, sim, monkeypatch):
    monkeypatch.setattr("gradless.cli.optimize.STEPS", 5)
    assert "5 (all steps done)" in cli("optimize", "--command", sim(), *CHAIN, "--run", "run").output
    again = ["optimize", "--resume", "--trust", "--run", "run"]
    assert "5 (all steps done)" in cli(*again).output
    assert "11 (all evaluations done)" in cli(*again, "--evaluations", 12).output


def test_a_program_may_change_its_folder(cli, sim):
    text = "import os, sys; os.chdir('/'); print(sum((float(v) - 1) ** 2 for v in open(sys.argv[1])))"
    told = cli("optimize", "--command", sim(text), *CHAIN, "--steps", 2, "--run", "run").output
    assert "2 (all steps done)" in told


def test_a_command_that_fails_at_once_may_be_corrected_in_the_same_folder(cli, refusal, sim):
    words = [*CHAIN, "--steps", 3, "--run", "run", "--quiet"]
    assert "failed at the starting point" in refusal("optimize", "--command", sim("raise SystemExit(1)"), *words)
    cli("optimize", "--command", sim(), *words)
    assert Path("run/best.txt").exists()
    assert "already holds a run" in refusal("optimize", "--command", sim(), *words)


def test_a_folder_of_the_user_in_that_of_the_run_stays(cli, sim):
    cli("optimize", "--command", sim(), *CHAIN, "--steps", 2, "--run", "run", "--quiet")
    Path("run/work").mkdir()
    Path("run/work/notes.txt").write_text("precious")
    cli("optimize", "--resume", "--trust", "--run", "run", "--steps", 4, "--quiet")
    assert Path("run/work/notes.txt").read_text() == "precious"


def test_several_at_a_time_make_the_same_run(cli, sim):
    command = sim(UNEQUAL)
    for workers in (1, 3):
        words = ["--steps", 20, "--workers", workers, "--run", f"run{workers}", "--quiet"]
        told = cli("optimize", "--command", command, *CHAIN, *words).output
        assert told.startswith("U ")
        assert told.endswith(f"run{workers}\n")
    assert course("run1") == course("run3")
    assert used("run1").items() <= used("run3").items()
    wasted = len(used("run3")) - len(used("run1"))
    assert wasted > 0
    told = cli("optimize", "--resume", "--trust", "--run", "run3").output
    assert f"{21 + wasted}, 0 of them now; {wasted} thrown away" in told


def test_noise_is_averaged_and_looked_at_again_the_same_in_every_order(cli, sim):
    command = sim(NOISY) + " {seed}"
    noisy = ["--average", 2, "--reevaluate-every", 4, "--steps", 12]
    for workers in (1, 4):
        cli("optimize", "--command", command, *CHAIN, *noisy, "--workers", workers, "--run", f"run{workers}", "--quiet")
    assert course("run1") == course("run4")
    entries = used("run1")
    assert {(name[1], name[2]) for name in entries if name[2] == "again"} == {(4, "again"), (8, "again")}
    assert len(entries) == 2 * (1 + 12 + 2)
    assert len(set(entries.values())) == len(entries)  # every evaluation had a seed of its own


def test_failures_are_rejections_and_said(cli, sim):
    text = SIM + "if x[0] != 0 and (x[0] < 0.1 or x[1] < 0):\n    sys.exit('no convergence')\n"
    told = cli("optimize", "--command", sim(text), *CHAIN, "--steps", 12, "--retries", 1, "--run", "run").output
    assert "the program failed, a rejection: 2 times: exit code 1: no convergence" in told
    failed = [row for row in rows("run/journal.jsonl") if row["why"]]
    assert failed
    assert f"failed            {len(failed)} of the evaluations" in told
    best = np.loadtxt("run/best.txt")
    assert best[0] >= 0.1
    assert best[1] >= 0


def test_a_start_that_fails_is_refused_and_can_be_mended(cli, refusal, sim, tmp_path):
    command = sim("import sys\nsys.exit('out of order')")
    words = ["optimize", "--command", command, *CHAIN, "--steps", 3, "--run", "run"]
    told = cli(*words, "--quiet", code=2).stderr
    assert told == "Error: the program failed at the starting point: exit code 1: out of order\n"
    sim("print('nan')")
    assert "the loss of the starting point must be finite, got nan" in cli(*words, "--resume", "--quiet", code=2).stderr
    sim()
    cli(*words, "--resume")
    assert len(used("run")) == 4


def test_formats_x0_and_bounds(cli, sim):
    Path("x0.json").write_text("[[0.5], [0.5]]")
    text = """
import json, sys
x = json.load(open(sys.argv[1]))
json.dump({"work": (x[0][0] - 2) ** 2 + (x[1][0] - 2) ** 2}, open(sys.argv[2], "w"))
"""
    words = ["--x0", "x0.json", "--bounds", "0:1", "--result-key", "work", "--sigma", 0.3, "--n-s", 3, "--steps", 30]
    cli("optimize", "--command", sim(text) + " {result}", *words, "--run", "run", "--quiet")
    best = json.loads(Path("run/best.json").read_text())
    assert np.shape(best) == (2, 1)
    assert np.min(best) > 0.5
    assert np.max(best) <= 1


def test_limits(cli, sim):
    command = sim()
    cli("optimize", "--command", command, *CHAIN, "--evaluations", 7, "--workers", 2, "--run", "a")
    assert len(used("a")) == 7
    out = cli(
        "optimize", "--command", command, *CHAIN, "--target-loss", 0.5, "--run", "b", "--json"
    ).stdout.splitlines()
    result = json.loads(out[-1])
    assert result["stopped_by"] == "target"
    assert result["loss"] <= 0.5
    assert [json.loads(line)["event"] for line in out[:-1]] == ["record"] * (result["steps"] + 1)
    slow = sim("import sys, time\nprint(1.0)\nif float(open(sys.argv[1]).readline()):\n    time.sleep(1000)")
    began = time.monotonic()
    assert "time is up" in cli("optimize", "--command", slow, *CHAIN, "--time", "1s", "--run", "c").output
    assert time.monotonic() - began < 30


def test_wrong_use_is_one_clear_line(cli, refusal, sim):
    command = sim()
    assert "--command must name the program" in refusal("optimize", "--dim", 2)
    assert "give --dim N" in refusal("optimize", "--command", command)
    assert "give --dim N" in refusal("optimize", "--command", command, "--dim", 2, "--x0", "x")
    assert "No such file" in refusal("optimize", "--command", command, "--x0", "x")
    assert refusal("optimize", "--command", command, "--dim", 2, "--sigma", -1) == "sigma must be positive, got -1.0"
    assert "100000 is not in the range" in refusal("optimize", "--command", command, "--dim", 2, "--workers", 100_000)
    assert "must say where the file" in refusal("optimize", "--command", "ls", "--dim", 2)
    assert "must begin with a program" in refusal("optimize", "--command", "./no {params}", "--dim", 2)
    assert "does not apply to algorithm mc" in refusal(
        "optimize", "--command", command, "--dim", 2, "--algorithm", "mc", "--n-s", 3
    )
    assert "x0 must lie within" in refusal("optimize", "--command", command, "--dim", 2, "--bounds", "1:2")
    assert "must look like 0:1" in refusal("optimize", "--command", command, "--dim", 2, "--bounds", "1")
    assert "needs --steps" in refusal(
        "optimize", "--command", command, "--dim", 2, "--temperature", "1:0.1", "--evaluations", 3
    )
    assert not Path("runs").exists() or not list(Path("runs").iterdir())

    cli("optimize", "--command", command, *CHAIN, "--steps", 2, "--run", "run")
    again = ["optimize", "--command", command, *CHAIN, "--steps", 2, "--run", "run"]
    held = "run already holds a run: go on with `gradless optimize --resume --trust --run run`, or give --overwrite"
    assert held in refusal(*again)
    assert held in refusal("train", "digits", "--run", "run")
    assert "--seed must be that of the run, 3, got 4" in refusal(*again, "--resume", "--seed", 4)
    assert "--sigma must be that of the run, 0.3, got 0.4" in refusal(*again, "--resume", "--sigma", 0.4)
    assert "give --command again, or --trust" in refusal("optimize", "--run", "run", "--resume")
    assert "go on with `gradless optimize --resume --trust --run run`" in refusal("resume", "run")
    assert "go on with `gradless optimize" in refusal("replay", "run", "--step", 1)
    assert "--resume needs the folder" in refusal("optimize", "--resume")
    cli(*again, "--overwrite")
    assert len(used("run")) == 3

    cli("train", "rosenbrock", "--steps", 2, "--run", "a valley")
    held = "`gradless resume 'a valley'` (in Python gl.resume)"
    assert f"go on with {held}, or give --overwrite" in refusal(*again[:-1], "a valley")
    assert f"go on with {held}" in refusal(*again[:-1], "a valley", "--resume")


LISTENING = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # whatever nohup the tests run under


def start(*words):
    code = f"{LISTENING}; from gradless.cli import main; main()"
    command = [sys.executable, "-c", code, *(str(word) for word in words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until(condition, process):
    until = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.005)


def wait_for_evaluations(run, process, num):
    journal = Path(run, "journal.jsonl")
    wait_until(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= num, process)


@pytest.mark.parametrize(("workers", "kills"), [pytest.param(1, [9], marks=pytest.mark.soak), (3, [9, 25])])
def test_killed_at_any_moment_it_goes_on_and_repeats_nothing(cli, sim, workers, kills):
    command = sim() if workers == 1 else sim(NOISY) + " {seed}"
    words = [*CHAIN, "--steps", 20, "--average", 2, "--reevaluate-every", 7, "--workers", workers]
    cli("optimize", "--command", command, *words, "--run", "whole", "--quiet")
    process = start("optimize", "--command", command, *words, "--run", "cut")
    for num in kills:
        wait_for_evaluations("cut", process, num)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        with open("cut/journal.jsonl", "ab") as journal:
            journal.write(b'{"after":1,"st')  # a line that was torn
        process = start("optimize", "--resume", "--trust", "--run", "cut")
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "of them now" in out
    assert course("cut") == course("whole")
    whole, cut = used("whole"), used("cut")
    if workers == 1:
        assert cut == whole
    assert all(cut[name] == whole[name] for name in cut.keys() & whole.keys())
    assert not Path("cut/.work").exists()


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGHUP, 129), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak)],
)
def test_a_signal_ends_the_program_and_saves_everything(cli, sim, tmp_path, number, code):
    text = """
import os, sys, time
x = [float(v) for v in open(sys.argv[1])]
print(sum((v - 1) ** 2 for v in x), flush=True)
if len(sys.argv) > 2 and any(x):
    open(sys.argv[2], "w").write(str(os.getpid()))
    time.sleep(1000)
"""
    pid = tmp_path / "pid"
    process = start("optimize", "--command", f"{sim(text)} {pid}", *CHAIN, "--steps", 9, "--run", "run")
    wait_for_evaluations("run", process, 1)
    wait_until(lambda: pid.exists() and pid.read_text(), process)
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert "Traceback" not in out + err
    assert err.endswith("at step 0; go on with: gradless optimize --resume --trust --run run\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert len(used("run")) == 1
    assert not Path("run/work").exists()
