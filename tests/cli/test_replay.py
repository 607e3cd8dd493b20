"""`gradless replay`: the net at a step, compared and written."""

from pathlib import Path

import pytest
from safetensors.numpy import load_file

from gradless.records import load_newest


@pytest.fixture
def stored(cli):
    cli("train", "tiny:fit", "--run", "run", "--steps", 20, "--quiet")
    return "run"


def test_a_replay_says_where_the_net_stood_and_that_the_checkpoints_agree(cli, stored):
    words = cli("replay", "run", "--trust", "--step", 20, "--verify").output
    assert words.splitlines()[0].startswith("step 20  U ")
    assert words.splitlines()[1:] == ["checkpoint 0: equal bit for bit", "checkpoint 20: equal bit for bit"]


def test_several_chains_have_a_line_each(cli):
    cli("train", "tiny:fit", "--run", "run", "--steps", 10, "--chains", 2, "--quiet")
    words = cli("replay", "run", "--trust", "--step", 5).output
    assert [line.split(":")[0] for line in words.splitlines()] == ["chain 0", "chain 1"]


def test_the_parameters_are_written_and_an_existing_file_is_kept(cli, refusal, stored):
    cli("replay", "run", "--trust", "--step", 20, "--out", "net.safetensors")
    newest = load_newest(Path("run/checkpoints"), pytest.fail).tensors["state.x"][0]
    assert load_file("net.safetensors")["x"].tobytes() == newest.tobytes()
    Path("net.safetensors").write_text("mine")
    told = refusal("replay", "run", "--trust", "--step", 20, "--out", "net.safetensors")
    assert told == "net.safetensors exists: choose another name, or give --overwrite"
    assert Path("net.safetensors").read_text() == "mine"
    cli("replay", "run", "--trust", "--step", 20, "--out", "net.safetensors", "--overwrite")
    assert load_file("net.safetensors")["x"].shape == (2,)


def test_a_difference_exits_with_1(cli, stored, monkeypatch):
    monkeypatch.setattr("gradless.runs.replay.differing", lambda states, tensors: "mu")
    words = cli("replay", "run", "--trust", "--step", 20, "--verify", code=1).output
    assert "checkpoint 20: mu differs" in words


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "--step", "21"], "step must be from 0 to 20, the last checkpoint of run, got 21"),
        (["run", "--step", "-1"], "-1 is not in the range x>=0"),
        (["run", "--step", "x"], "'x' is not a valid integer"),
        (["run", "--step", "3", "--out", "nowhere/net"], "nowhere/net cannot be written: there is no folder nowhere"),
        (["run", "--step", "3", "--out", "."], "is a directory"),
        (["nosuch", "--step", "3"], "nosuch is not a folder"),
    ],
)
def test_wrong_use_is_refused_in_a_line(refusal, stored, words, told):
    assert told in refusal("replay", "--trust", *words)


def test_a_gradient_baseline_is_refused_in_a_line(cli, refusal):
    cli("train", "tiny:fit", "--algorithm", "gd", "--run", "run", "--steps", 5, "--quiet")
    assert refusal("replay", "run", "--trust", "--step", 3) == "algorithm gd has no accepted steps to replay"


def test_a_damaged_log_is_refused_in_a_line(refusal, stored):
    log = Path("run/accepted.log")
    log.write_bytes(log.read_bytes()[:-2])
    assert "accepted.log is whole only up to step 0 of chain 0" in refusal("replay", "run", "--trust", "--step", 20)
