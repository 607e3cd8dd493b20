"""`gradless resume`: on from the last checkpoint, and never anything unexpected from a run that came from elsewhere."""

import json
import shutil
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import gradless as gl
from gradless.records import RunDirectory, RunError
from gradless.runs import reopen


@pytest.fixture
def stored(cli):
    cli("train", "tiny:fit", "--run", "run", "--steps", 20, "--record-every", 4, "--quiet")
    return "run"


@pytest.fixture(scope="module")
def sine_once(tmp_path_factory):
    return tmp_path_factory.mktemp("sine") / "run"


@pytest.fixture
def sine(cli, sine_once):
    if not sine_once.exists():
        small = ["--width", 2, "--depth", 1, "--points", 4]
        cli("train", "sine", *small, "--run", sine_once, "--steps", 8, "--quiet")
    return shutil.copytree(sine_once, "sine")


def test_a_resumed_run_equals_an_unbroken_one(cli, stored, record_of):
    cli("resume", "run", "--trust", "--steps", 50, "--quiet")
    cli("train", "tiny:fit", "--run", "whole", "--steps", 50, "--record-every", 4, "--quiet")
    assert record_of("run") == record_of("whole")


def test_a_finished_run_says_so_and_stays_as_it_is(cli, figures, stored, contents):
    before = contents("run")
    words = cli("resume", "run", "--trust").output
    assert "nothing to do: run has made 20 steps; --steps gives it more" in words
    assert "steps/s" not in words
    after = contents("run")
    assert {name for name in before if after[name] != before[name]} <= {"training.svg", "training.png"}
    (line,) = cli("resume", "run", "--trust", "--quiet").output.splitlines()
    assert line.startswith("U ")


def test_json_of_a_finished_run_is_a_warning_and_the_result(cli, stored):
    events = [json.loads(line) for line in cli("resume", "run", "--trust", "--json").stdout.splitlines()]
    assert [event["event"] for event in events] == ["warning", "result"]


def test_time_counts_from_now(cli, stored):
    words = cli("resume", "run", "--trust", "--steps", 2_000_000_000, "--time", "0.3s").output
    assert "(time is up)" in words


def test_a_run_that_has_had_its_time_says_so_and_goes_on_when_told(cli, contents):
    cli("train", "tiny:fit", "--run", "run", "--time", "0.3s", "--quiet")
    before = contents("run")
    words = cli("resume", "run", "--trust").output
    assert "nothing to do: run has had its time; --time or --steps gives it more" in words
    assert contents("run") == before
    words = cli("resume", "run", "--trust", "--time", "0.2s").output
    assert "nothing to do" not in words
    assert "(time is up)" in words
    assert contents("run") != before


def test_a_run_of_the_command_line_goes_on_in_python_bit_for_bit(cli, record_of):
    # The command line adds up the losses of float32 nets in float64; Python by itself does not.
    cli("train", "tiny:fit", "--run", "run", "--steps", 20, "--record-every", 5, "--quiet")
    shutil.copytree("run", "other")
    cli("resume", "run", "--steps", 60, "--trust", "--quiet")
    jax.config.update("jax_enable_x64", False)
    gl.resume("other", steps=60, trust=True)
    assert not jax.config.jax_enable_x64
    assert record_of("run") == record_of("other")
    assert record_of("run")["tensors"]["state.loss"][0] == "float64"


def test_a_run_is_not_gone_on_with_in_another_mode(cli, stored):
    jax.config.update("jax_enable_x64", False)
    with pytest.raises(RunError, match="was made with JAX's jax_enable_x64"):
        reopen("run", trust=True)


def test_a_run_of_your_own_module_needs_trust(refusal, stored, contents):
    before = contents("run")
    for words in (["resume", "run"], ["replay", "run", "--step", 3]):
        told = refusal(*words)
        assert told.startswith("run is of the problem 'tiny:fit', which runs the code of the module 'tiny'")
        assert "give --trust" in told
    assert contents("run") == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nosuch"], "nosuch is not a folder: give the folder of a run"),
        (["."], ". holds no gradless run: it has no settings.json"),
        (["run", "--steps", "0"], "0 is not in the range x>=1"),
        (["run", "--steps", "99999999999", "--trust"], "steps must be a whole number from 1"),
        (["run", "--time", "x"], "must look like 90s"),
    ],
)
def test_wrong_use_is_refused_in_a_line(refusal, stored, words, told):
    shutil.rmtree("runs", ignore_errors=True)
    assert told in refusal("resume", *words)


def test_a_function_among_the_settings_is_that_of_the_problem(cli, record_of, monkeypatch):
    settings = {"mc": {"sigma": 0.1, "temperature": lambda n: 1 / (1 + n)}}
    hot = gl.Problem(np.ones(3, np.float32), lambda x: (x**2).sum(), algorithms=settings)
    monkeypatch.setattr(sys.modules["tiny"], "hot", hot, raising=False)
    cli("train", "tiny:hot", "--steps", 40, "--run", "whole")
    cli("train", "tiny:hot", "--steps", 20, "--run", "cut")
    cli("resume", "cut", "--trust", "--steps", 40)
    assert record_of("cut") == record_of("whole")


def test_a_run_in_use_is_refused_before_anything_is_imported(refusal, stored):
    with RunDirectory.resume("run"):
        assert "run is in use by process" in refusal("resume", "run")


def test_a_run_of_a_python_loss_is_told_how_to_go_on(refusal):
    gl.train(gl.metropolis(sigma=0.1), lambda x: (x**2).sum(), jax.numpy.ones(2), steps=3, run="python")
    assert "go on with gl.resume(..., loss=, params=, data=)" in refusal("resume", "python")


def test_settings_of_another_net_are_refused_with_the_reason(refusal, sine, contents, edit_settings):
    edit_settings(sine, lambda settings: settings["options"].update(width=3))
    before = contents(sine)
    told = refusal("resume", sine)
    assert "the checkpoint" in told
    assert "width" in told
    assert contents(sine) == before


HOSTILE = [
    {"problem": 3},
    {"problem": []},
    {"problem": {"name": "sine"}},
    {"problem": "os:system", "options": {"command": "touch executed"}},
    {"problem": "os:abort"},
    {"problem": "builtins:exec", "options": {"source": "open('executed', 'w')"}},
    {"problem": "../../planted:problem"},
    {"problem": "nosuch"},
    {"problem": "digits"},
    {"options": 3},
    {"options": {"width": "wide"}},
    {"options": {"width": 10**12}},
    {"options": {"width": -1}},
    {"options": {"depth": 10**12}},
    {"options": {"points": 0}},
    {"options": {"init": "planted:problem"}},
    {"options": {"init": ["gaussian"]}},
    {"options": {"self": 1}},
    {"algorithm": 3},
    {"algorithm": []},
    {"algorithm": {}},
    {"algorithm": {"name": "os"}},
    {"algorithm": {"name": ["amc"]}},
    {"algorithm": {"name": "amc", "sigma": "os:system"}},
    {"algorithm": {"name": "amc", "sigma": {"name": "anneal"}}},
    {"algorithm": {"name": "amc", "sigma": [[1]]}},
    {"algorithm": {"name": "amc", "sigma": [1, 2, 3]}},
    {"algorithm": {"name": "amc", "sigma": 10**400}},
    {"algorithm": {"name": "amc", "sigma": None}},
    {"algorithm": {"name": "amc", "signal_norm": 5}},
    {"algorithm": {"name": "amc", "__class__": 5}},
    {"plan": None},
    {"plan": []},
    {"plan": {}},
    {"plan": {"steps": 10**30, "chains": [0], "batches": {"name": "fullbatch"}}},
    {"plan": {"steps": 9, "chains": [10**30], "batches": {"name": "fullbatch"}}},
    {"plan": {"steps": 9, "chains": [1], "batches": {"name": "fullbatch"}}},
    {"plan": {"steps": 9, "chains": "0", "batches": {"name": "fullbatch"}}},
    {"plan": {"steps": 9, "chains": [0], "batches": {"name": "minibatch", "size": 10**12}}},
    {"plan": {"steps": 9, "chains": [0], "batches": {"name": "progressive", "start": 1}}},
    {"plan": {"steps": 9, "chains": [0], "batches": {"name": "fullbatch"}, "precision": "float128"}},
    {"plan": {"steps": 9, "chains": [0], "batches": {"name": "fullbatch"}, "target_metric": "x >= 1"}},
    {"x64": "yes"},
    {"generator": ["xorshift"]},
]


@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: json.dumps(change)[:60])
def test_hostile_settings_are_one_line_and_execute_nothing(refusal, sine, change, edit_settings):
    Path("planted.py").write_text("open('executed', 'w')\n")
    edit_settings(sine, lambda settings: settings.update(change))
    for words in (["resume", sine], ["replay", sine, "--step", 3]):
        refusal(*words)
    assert not Path("executed").exists()


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"3", b"null", b"\xff\xfe", b'{"format": "other"}', b"[" * 100_000, b'{"a":1,"a":2}']
)
def test_settings_that_are_no_settings_are_one_line(refusal, sine, text):
    Path(sine, "settings.json").write_bytes(text)
    for words in (["resume", sine], ["replay", sine, "--step", 3]):
        assert "settings.json" in refusal(*words)


def test_a_sweep_that_is_none_does_not_break_the_figures(cli, figures, sine, edit_settings):
    edit_settings(sine, lambda settings: settings.update(sweep=["nothing", 3]))
    assert "sweep" in cli("resume", sine, "--steps", 12, code=1).output


def test_a_damaged_checkpoint_is_told_and_the_one_before_used(cli, stored):
    newest = max(Path("run/checkpoints").iterdir(), key=lambda path: int(path.stem))
    newest.write_bytes(newest.read_bytes()[:-1])
    words = cli("resume", "run", "--trust").output
    (line,) = [line for line in words.splitlines() if "is damaged" in line]
    assert "using 0.safetensors" in line
    assert "20 (all steps done)" in words


def test_when_all_checkpoints_are_damaged_nothing_is_changed(refusal, stored, contents):
    for path in Path("run/checkpoints").iterdir():
        path.write_bytes(b"damaged")
    before = contents("run")
    assert "no readable checkpoint" in refusal("resume", "run", "--trust")
    assert contents("run") == before
