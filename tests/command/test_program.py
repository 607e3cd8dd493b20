"""Real programs: results, failures, time limits, and nothing left behind."""

import math
import shlex
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from gradless.command.program import Job, OutsideProgram

X = np.array([1.5, -2.0])
PYTHON = f"{sys.executable} -S -I"


@pytest.fixture
def script(tmp_path):
    """Return the words of a command that runs a script, in a folder whose name has a space and a quote in it."""

    def make(text):
        folder = tmp_path / "a 'folder"
        folder.mkdir(exist_ok=True)
        (folder / "sim.py").write_text("import sys, time, os\nargs = sys.argv[1:]\n" + text)
        return f'{PYTHON} "{folder}/sim.py"'

    return make


def run(program, tmp_path, seed=7):
    outcome = Job(program, X, seed, tmp_path / "a 'folder" / "work" / "1").run()
    assert not (tmp_path / "a 'folder" / "work" / "1").exists()
    return outcome


@pytest.mark.parametrize("uses_shell", [False, True])
def test_files_go_in_and_a_number_comes_out(script, tmp_path, uses_shell):
    text = "x = [float(v) for v in open(args[0])]\nopen(args[1], 'w').write(repr(sum(x) + int(args[2])))"
    program = OutsideProgram(script(text) + " {params} {result} {seed}", uses_shell)
    program.check()
    outcome = run(program, tmp_path)
    assert (outcome.loss, outcome.why, outcome.tries) == (6.5, "", 1)


def test_standard_output_json_and_npy(script, tmp_path):
    text = "data = open(args[0], 'rb').read()\nprint('hello')\nprint('{\"work\": %d}' % (data[:6] == b'\\x93NUMPY'))"
    program = OutsideProgram(script(text) + " {params}", params_format="npy", result_key="work")
    assert run(program, tmp_path).loss == 1.0


def test_only_a_shell_is_a_shell(script, tmp_path):
    command = script("print(len(args))") + " {params} ; echo 5 $(echo 6) {other}"
    assert run(OutsideProgram(command), tmp_path).loss == 7.0  # all of it are words
    assert run(OutsideProgram(command.replace("{other}", ""), uses_shell=True), tmp_path).why.startswith(
        "its result is not"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sys.exit(3)", "exit code 3"),
        ("sys.stderr.write('first\\nno convergence\\n'); sys.exit(1)", "exit code 1: no convergence"),
        ("pass", "it gave no result"),
        ("print('sorry')", "its result is not a number: 'sorry'"),
        ("os.kill(os.getpid(), 9)", "ended by signal 9"),
    ],
)
def test_failures_are_said(script, tmp_path, text, why):
    outcome = run(OutsideProgram(script(text) + " {params}", retries=1), tmp_path)
    assert math.isnan(outcome.loss)
    assert (outcome.why, outcome.tries) == (why, 2)


def test_a_mistake_of_ours_is_a_failure_too_and_not_a_thread_that_is_waited_for(script, tmp_path, monkeypatch):
    def fail(text, key):
        raise RuntimeError

    monkeypatch.setattr("gradless.command.program.parse_loss", fail)
    assert run(OutsideProgram(script("print(1)") + " {params}"), tmp_path).why == "RuntimeError"


def test_a_folder_may_be_named_as_a_place(tmp_path):
    params, result = tmp_path / "{seed} {result}" / "params", tmp_path / "{seed} {result}" / "result"
    for program in (
        OutsideProgram("sim {params} {result} {seed}"),
        OutsideProgram("sim {params} {result} {seed}", uses_shell=True),
    ):
        words = program.words(params, result, seed=7)
        words = words if not program.uses_shell else shlex.split(words[2])
        assert words == ["sim", str(params), str(result), "7"]


def test_what_fails_once_is_tried_again(script, tmp_path):
    flag = tmp_path / "flag"
    text = f"import os\nif not os.path.exists({str(flag)!r}):\n    open({str(flag)!r}, 'w'); sys.exit(1)\nprint(4)"
    outcome = run(OutsideProgram(script(text) + " {params}", retries=2), tmp_path)
    assert (outcome.loss, outcome.why, outcome.tries) == (4.0, "", 2)


def test_nan_is_an_answer_and_not_tried_again(script, tmp_path):
    outcome = run(OutsideProgram(script("print('nan')") + " {params}", retries=2), tmp_path)
    assert math.isnan(outcome.loss)
    assert (outcome.why, outcome.tries) == ("", 1)


STUBBORN = """
import signal
if %r == "both":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(%r, "w").write(str(os.getpid()))
    time.sleep(1000)
time.sleep(1000)
"""


def wait_until(condition):
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(("by", "who"), [("timeout", "both"), ("end", "both"), ("end", "its child")])
def test_a_stubborn_program_is_ended_with_all_that_it_started(script, tmp_path, monkeypatch, by, who):
    monkeypatch.setattr("gradless.command.program.GRACE", 0.2)
    child = tmp_path / "child"
    program = OutsideProgram(
        script(STUBBORN % (who, str(child))) + " {params}", timeout=1.0 if by == "timeout" else None, retries=0
    )
    job = Job(program, X, 0, tmp_path / "work")
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(job.run()))
    thread.start()
    wait_until(lambda: child.exists() and child.read_text())
    if by == "end":
        job.end()
    thread.join(30)
    assert not thread.is_alive()
    assert math.isnan(outcomes[0].loss)
    assert by == "end" or outcomes[0].why == "it was ended after 1 s"
    wait_until(lambda: not is_running(int(child.read_text())))
    assert not (tmp_path / "work").exists()


def test_a_program_that_ends_in_time_is_not_touched(script, tmp_path):
    assert run(OutsideProgram(script("print(1)") + " {params}", timeout=30.0), tmp_path).loss == 1.0


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("./simulate", r"command must say where the file of parameters goes, \{params\}, got './simulate'"),
        ("./nowhere {params}", "command must begin with a program that can be run, got './nowhere'"),
        ("cat {params} > {result}", "command has '>', which only a shell understands: give --shell too"),
        ("'./simulate {params}", r"command must be words as in a shell \(No closing quotation\)"),
    ],
)
def test_commands_that_cannot_work(command, words):
    with pytest.raises(ValueError, match=words):
        OutsideProgram(command).check()
