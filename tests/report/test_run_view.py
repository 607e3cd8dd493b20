"""What a page says of a run, whatever state the run is in."""

import json
import os
import shutil
import socket
import sys
import time

import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.records import Metrics, RunDirectory, RunError, list_checkpoints
from gradless.report import RunView
from gradless.report.numbers import count, duration, flat_rows
from gradless.report.verdict import ENDS, state_of


def facts(path, **flags):
    found = RunView(path, **flags).facts()
    json.dumps(found)  # plain values all through
    return found


def test_a_finished_run(bowl_run):
    found = facts(bowl_run)
    rows = list(Metrics(bowl_run / "metrics.jsonl").rows())
    assert (found["name"], found["state"], found["step"], found["algorithm"]) == ("bowl", "ended", 60, "aMC")
    assert found["verdict"].startswith(
        f"Adaptive Monte Carlo took the loss U from 3 to {rows[-1]['loss']:.4g} in 60 steps"
    )
    assert found["verdict"].endswith("All steps are done.")
    assert found["notes"] == []
    assert [one["name"] for one in found["curves"]["series"]] == ["loss", "acceptance", "sigma"]
    assert found["curves"]["x"]["step"] == [row["step"] for row in rows]
    assert ["algorithm.n_s", "5"] in found["settings"]


def test_the_acceptance_it_tells_is_that_of_the_result(tmp_path):
    result = gl.train(gl.metropolis(sigma=0.1), lambda x: x @ x, np.ones(3), steps=100, run=tmp_path / "run")
    numbers = {one["label"]: one["value"] for one in facts(tmp_path / "run")["numbers"]}
    assert numbers["acceptance A"] == f"{result.acceptance:.4g}"
    assert numbers["loss U"] == f"{result.loss:.4g}"


def test_chains(case_named):
    case = case_named("amc chains")
    found = facts(case.whole)
    assert found["num_chains"] == 3
    assert "in 3 chains" in found["verdict"]
    assert "median; " in found["verdict"]
    assert found["chains"][0] == ["chain", "sigma", "loss", "error", "at the end: sigma", "acceptance"]
    assert [row[:2] for row in found["chains"][1:]] == [["0", "0.1"], ["1", "0.2"], ["2", "0.3"]]
    assert len(found["curves"]["series"][0]["chains"]) == 3


def test_chains_go_by_their_own_numbers(tmp_path):
    gl.train(gl.metropolis(), lambda x: x @ x, np.ones(3), steps=5, chains=[3, 7], run=tmp_path / "run")
    assert [row[0] for row in facts(tmp_path / "run")["chains"]] == ["chain", "3", "7"]


def test_a_gradient_that_has_vanished_is_told_as_its_summary_tells_it(tmp_path):
    with pytest.warns(UserWarning, match="vanished"):
        result = gl.train(
            gl.gradient_descent(learning_rate=0.1),
            lambda x: jnp.sum(0.0 * x),
            np.ones(2, np.float32),
            steps=20,
            run=tmp_path / "run",
        )
    assert [note.lower() for note in facts(tmp_path / "run")["notes"]] == [f"{result.advice}.".lower()]


def test_a_run_that_someone_holds_is_running_and_then_stopped(bowl_copy, edit_settings):
    edit_settings(bowl_copy, lambda settings: settings["plan"].update(steps=500))
    view = RunView(bowl_copy)
    before = view.stamp()
    with RunDirectory.resume(bowl_copy):
        assert view.stamp() != before
        found = view.facts()
        assert (found["state"], found["steps"]) == ("running", 500)
        assert "still running, at step 60 of 500" in found["verdict"]
    found = view.facts()
    assert found["state"] == "stopped"
    assert "stands at step 60 of 500" in found["verdict"]


def test_a_run_of_another_machine_is_running_while_its_records_are_fresh(bowl_copy):
    holder = {"pid": 1, "host": "another.example", "since": "2026-01-01"}
    (bowl_copy / "run.lock").write_text(json.dumps(holder))
    now = time.time()
    os.utime(bowl_copy / "metrics.jsonl", (now, now))
    assert facts(bowl_copy)["state"] == "running"
    os.utime(bowl_copy / "metrics.jsonl", (now - 1000, now - 1000))
    assert facts(bowl_copy)["state"] == "ended"
    here = holder | {"pid": 2**22 + 1, "host": socket.gethostname()}  # beyond the greatest number of a process
    (bowl_copy / "run.lock").write_text(json.dumps(here))
    assert facts(bowl_copy)["state"] == "ended"


def test_a_run_whose_last_step_has_no_record_has_ended_all_the_same(tmp_path):
    gl.train(gl.metropolis(), lambda x: x @ x, np.ones(3), steps=60, record_every=7, run=tmp_path / "bowl")
    assert [row["step"] for row in Metrics(tmp_path / "bowl" / "metrics.jsonl").rows()][-1] == 56
    found = facts(tmp_path / "bowl")
    assert (found["step"], found["state"]) == (60, "ended")
    assert found["verdict"].endswith("All steps are done.")


def test_a_view_follows_a_run_that_is_resumed(bowl_copy):
    view = RunView(bowl_copy)
    assert view.facts()["step"] == 60
    before = view.stamp()
    gl.resume(bowl_copy, steps=90, loss=lambda x: jnp.sum(x**2), params=np.ones(3, np.float32))
    assert view.stamp() != before
    assert view.facts()["step"] == 90


def test_an_empty_run(bowl_copy):
    (bowl_copy / "metrics.jsonl").write_bytes(b"")
    for path in list_checkpoints(bowl_copy / "checkpoints"):
        path.unlink()
    found = facts(bowl_copy)
    assert (found["state"], found["step"], found["numbers"], found["curves"]["series"]) == ("empty", None, [], [])
    assert found["verdict"] == "There is no record to show: it ended before its first record."


def test_a_diverged_run_says_so_and_what_the_loss_was_before(tmp_path):
    step_out = gl.gradient_descent(learning_rate=1.5)
    gl.train(step_out, lambda x: jnp.sum(x**2), np.ones(3, np.float32), steps=500, run=tmp_path / "run")
    found = facts(tmp_path / "run")
    assert found["state"] == "ended"
    assert found["verdict"].endswith("It diverged: the loss is no longer a number.")
    assert found["notes"] == ["The loss is no longer a number: lower the learning rate or clip the gradient."]
    assert [one["name"] for one in found["curves"]["series"]] == ["loss"]  # no acceptance of a gradient step


def test_a_run_that_met_a_minibatch_without_a_loss_says_so_as_its_summary_does(tmp_path):
    data = np.array([1.0, 1.0, 1.0, np.nan], np.float32)
    given = {"data": data, "batches": gl.minibatch(1), "steps": 8, "record_every": 1, "seed": 0}
    result = gl.train(gl.amc(), lambda x, batch: jnp.mean(x * batch), np.float32(1), **given, run=tmp_path / "run")
    assert result.stopped_by == "steps"
    assert "look for NaN in the data" in result.advice
    assert facts(tmp_path / "run")["notes"][0].lower() == f"{result.advice}.".lower()


def test_a_frozen_run_says_so(tmp_path):
    flat = {"stop_when_frozen": True, "record_every": 10, "steps": 100_000}
    algorithm = gl.amc(sigma=1e-3, n_s=1)
    with pytest.warns(UserWarning, match="frozen"):
        gl.train(algorithm, lambda x: jnp.sum((x - 7) ** 2), np.full(2, 7.5, np.float32), run=tmp_path / "run", **flat)
    found = facts(tmp_path / "run")
    assert found["state"] == "ended"
    assert "It froze" in found["verdict"]
    assert any(words.startswith("Frozen: sigma") for words in found["notes"])


def test_a_run_that_does_not_train_says_what_to_try_as_its_summary_does(tmp_path):
    start = np.ones(20, np.float32)
    for sigma, chains, words in ((100.0, 1, "sigma is too large"), (1e-7, 3, "sigma is too small"), (0.03, 1, None)):
        run = tmp_path / f"sigma {sigma}"
        result = gl.train(gl.metropolis(sigma), lambda x: jnp.sum(x**2), start, steps=600, chains=chains, run=run)
        if words is None:
            assert result.advice is None
            assert facts(run)["notes"] == []
        else:
            assert words in result.advice
            assert [note.lower() for note in facts(run)["notes"]] == [f"{result.advice}.".lower()]


def test_proposals_that_were_no_numbers_are_told(tmp_path):
    rough = gl.metropolis(sigma=1.0)
    gl.train(rough, lambda x: jnp.sum(jnp.log(x)), np.full(3, 0.1), steps=50, run=tmp_path / "run")
    assert any("loss was not a number" in words for words in facts(tmp_path / "run")["notes"])


def test_damage_is_told_and_the_rest_is_shown(bowl_copy):
    lines = (bowl_copy / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    lines[3] = b"{garbage\n"
    (bowl_copy / "metrics.jsonl").write_bytes(b"".join(lines) + b'{"step":61')
    for path in list_checkpoints(bowl_copy / "checkpoints"):
        path.write_bytes(b"no checkpoint")
    before = sorted(path.name for path in (bowl_copy / "checkpoints").iterdir())
    found = facts(bowl_copy)
    assert any("no readable checkpoint" in words for words in found["notes"])
    assert any("1 damaged or unlike lines" in words for words in found["notes"])
    assert len(found["curves"]["x"]["step"]) == len(lines) - 1
    assert sorted(path.name for path in (bowl_copy / "checkpoints").iterdir()) == before


def test_code_that_a_run_names_is_not_run_without_trust(bowl_copy, tmp_path, monkeypatch, edit_settings):
    (tmp_path / "trap_of_a_run.py").write_text("raise SystemExit('it ran')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    edit_settings(bowl_copy, lambda settings: settings.update(problem="trap_of_a_run:x"))
    reason = facts(bowl_copy)["no_nets"]["reason"]
    assert reason == (
        "What the net says cannot be shown: that would run the code of trap_of_a_run:x; if you know it, give --trust."
    )
    assert "it ran" in facts(bowl_copy, trust=True)["no_nets"]["reason"]


def test_a_data_set_that_is_not_here_is_not_fetched(bowl_copy, monkeypatch, edit_settings):
    monkeypatch.setattr("gradless.data.mnist.is_here", lambda folder: False)
    edit_settings(bowl_copy, lambda settings: settings.update(problem="mnist", options={}))
    assert "MNIST is not on this machine" in facts(bowl_copy)["no_nets"]["reason"]
    edit_settings(bowl_copy, lambda settings: settings.update(problem="mnist_of_mine:x"))
    assert "mnist_of_mine" in facts(bowl_copy, trust=True)["no_nets"]["reason"]


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.update(algorithm="x", plan=7, problem=["a"], options=3),
        lambda s: s.update(algorithm={"name": 5, "sigma": [{}, "x"]}, sweep="yes", problem="digits"),
        lambda s: s.update(plan={"steps": "many", "chains": {}, "batches": []}, environment=None),
        lambda s: [s.pop(name) for name in list(s)],
        lambda s: s.update(optimize=[1], sitting=2),
    ],
)
def test_settings_that_nobody_of_ours_wrote_still_make_a_page(bowl_copy, change, edit_settings):
    edit_settings(bowl_copy, change)
    assert facts(bowl_copy)["verdict"]


def test_a_run_whose_environment_cannot_be_read_is_shown_without_it(bowl_copy):
    (bowl_copy / "environment.json").write_text("{")
    ((name, reason),) = facts(bowl_copy)["environment"]
    assert name == "not known"
    assert "environment.json is not JSON" in reason


def test_a_folder_that_is_no_run_is_refused(tmp_path, bowl_copy):
    with pytest.raises(RunError, match="holds no gradless run"):
        facts(tmp_path)
    shutil.rmtree(bowl_copy)
    with pytest.raises(RunError, match="is not a folder"):
        facts(bowl_copy)


@pytest.mark.parametrize(("status", "words"), ENDS.items())
def test_why_a_run_ended(status, words):
    assert state_of(False, 10, {"steps": 20}, [status, status]) == ("ended", words)
    assert state_of(False, 10, {"steps": 20}, [status, 0]).word == "stopped"
    assert state_of(False, 20, {"steps": 20}, []) == ("ended", "all steps are done")
    assert state_of(True, None, {}, []).reason == "it is still running, without a record yet"


def test_numbers_as_people_say_them():
    assert [count(number) for number in (7, 12_345, 1.5e6, 2e9)] == ["7", "12,345", "1.5 million", "2 billion"]
    assert [duration(seconds) for seconds in (3, 600, 7200)] == ["3 s", "10 min", "2 h"]
    nested = {"a": {"b": [1, 2], "c": None}, "d": True, "e": {}}
    assert flat_rows(nested) == [["a.b", "1, 2"], ["a.c", "none"], ["d", "yes"], ["e", "none"]]


@pytest.mark.parametrize(
    ("kept", "sentence"),
    [
        (30, "Its records end at step {last}, and its checkpoint knows of a record at step 60: metrics.jsonl has lost"),
        (0, "There is no record to show: its checkpoint knows of a record at step 60: metrics.jsonl has lost some."),
    ],
)
def test_records_that_are_lost_are_told(bowl_copy, kept, sentence):
    """Its checkpoint is at step 60, where the run has ended: a shorter file would tell of a shorter run."""
    path = bowl_copy / "metrics.jsonl"
    rows = [row for row in Metrics(path).rows() if row["step"] < kept]
    path.write_text("".join(path.read_text().splitlines(keepends=True)[: len(rows)]))
    found = facts(bowl_copy)
    assert found["state"] == "stopped"
    assert sentence.format(last=rows[-1]["step"] if rows else 0) in found["verdict"]
