"""Whatever a stored run says is looked at before it is used."""

import copy

import numpy as np
import pytest

import gradless as gl
from gradless.engine.disk.recording import snapshot
from gradless.engine.disk.stored import (
    SELECTIONS,
    check_rows,
    check_same_problem,
    check_same_run,
    checked_meta,
    stored_copies,
)
from gradless.engine.plan import Plan
from gradless.engine.train import prepare
from gradless.records import Checkpoint, RunError


def quadratic(x):
    return (x**2).sum()


def session_of(begun=True, **plan):
    algorithm = gl.amc(sigma=0.1, epsilon=0.1, n_s=3)
    session = prepare(algorithm, quadratic, np.ones(2, np.float32), Plan(**{"steps": 12, **plan}))
    if begun:
        session.begin()
        session.go()
    return session


@pytest.fixture(scope="module")
def meta_once():
    return snapshot(session_of())[1]


@pytest.fixture
def meta(meta_once):
    return copy.deepcopy(meta_once)


def test_a_checkpoint_of_other_chains_or_another_problem_is_refused(meta):
    about = {"problem": "sine", "options": {"width": 3}, "algorithm": {"name": "amc"}, "generator": "dice", "plan": {}}
    check_same_run({"settings": about, **meta}, about, session_of(begun=False))
    with pytest.raises(RunError, match=r"is of chains \[0\], the run's settings say \[0, 1\]"):
        check_same_run({"settings": about, **meta}, about, session_of(begun=False, chains=(0, 1)))
    for name in about.keys() - {"plan"}:
        with pytest.raises(RunError, match=f"the checkpoint is of {name} "):
            check_same_run({"settings": about, **meta}, about | {name: "other"}, session_of(begun=False))


def test_a_checkpoint_of_another_plan_is_refused_but_for_what_a_resume_may_change(meta):
    plan = Plan(steps=12).to_json()
    session = session_of(begun=False)
    for name, value in {"steps": 99, "time_budget": 5.0, "checkpoint_every": 1.0, "speculate": 4}.items():
        check_same_run({"settings": {"plan": plan}, **meta}, {"plan": plan | {name: value}}, session)
    for name in plan.keys() - {"steps", "time_budget", "checkpoint_every", "speculate"}:
        with pytest.raises(
            RunError, match=f"the checkpoint is of {name} .*, the run's settings say other: put the run"
        ):
            check_same_run({"settings": {"plan": plan}, **meta}, {"plan": plan | {name: "other"}}, session)


def broken(path, value):
    """A change of meta: `path` leads to what becomes `value`."""

    def change(meta):
        for part in path[:-1]:
            meta = meta[part]
        meta[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        dict.clear,
        broken(["prng"], 3),
        broken(["seconds"], "long"),
        broken(["seconds"], 10**400),
        broken(["seconds"], float("nan")),
        broken(["seconds"], float("inf")),
        broken(["spent"], None),
        broken(["spent"], -1.0),
        broken(["accepted"], [10**400]),
        broken(["chains", 0, "stage_start"], [0, 0.0, 10**400, 0]),
        broken(["chains", 0, "stage_start"], [0, float("nan"), 1, 0]),
        broken(["chains", 0, "last_record"], 13),
        broken(["accepted"], [1, 2]),
        broken(["accepted"], ["x"]),
        broken(["accepted"], None),
        broken(["chains"], []),
        broken(["chains"], {}),
        broken(["chains", 0], 5),
        broken(["chains", 0, "number"], -1),
        broken(["chains", 0, "growths"], None),
        broken(["chains", 0, "growths"], [13]),
        broken(["chains", 0, "growths"], ["x"]),
        broken(["chains", 0, "stage_start"], [1, 2]),
        broken(["chains", 0, "stage_start"], ["a", "b", "c", "d"]),
        broken(["chains", 0, "last_record"], "x"),
        broken(["chains", 0, "nonfinite"], None),
    ],
)
def test_text_that_no_session_wrote_is_refused(change, meta, tmp_path):
    checkpoint = Checkpoint(12, {}, meta, tmp_path / "12.safetensors")
    checked_meta(checkpoint)
    change(checkpoint.meta)
    with pytest.raises(RunError, match="its text is not what a session writes"):
        checked_meta(checkpoint)


GOOD = [[4, 0, 1], [4, 2, 3], [8, 3, 0]]


@pytest.mark.parametrize(
    "forged",
    [
        None,
        np.array(GOOD, np.int64),
        np.array(GOOD, np.float32),
        np.array(GOOD, bool),
        np.array(4, np.int32),
        np.zeros(3, np.int32),
        np.zeros((3, 2), np.int32),
        np.zeros((1, 3, 1), np.int32),
        np.zeros((3, 0), np.int32),
        np.array([[4, 0, 9]], np.int32),
        np.array([[4, -1, 0]], np.int32),
        np.array([[0, 0, 1]], np.int32),
        np.array([[-4, 0, 1]], np.int32),
        np.array([[13, 0, 1]], np.int32),
        np.array([[8, 0, 1], [4, 0, 1]], np.int32),
    ],
)
def test_selections_that_no_session_made_are_refused(forged, tmp_path):
    session = session_of(begun=False, chains=(0, 1, 2, 3), select_every=4)
    good = {SELECTIONS: np.array(GOOD, np.int32)}
    assert stored_copies(Checkpoint(12, good, {}, tmp_path), session) == [tuple(row) for row in GOOD]
    assert stored_copies(Checkpoint(12, {SELECTIONS: np.zeros((0, 3), np.int32)}, {}, tmp_path), session) == []
    tensors = {} if forged is None else {SELECTIONS: forged}
    with pytest.raises(RunError, match="holds selections that no session made: restore it from a copy"):
        stored_copies(Checkpoint(12, tensors, {}, tmp_path), session)


def test_selections_of_a_run_without_selection_are_refused(tmp_path):
    session = session_of(begun=False, chains=(0, 1))
    assert stored_copies(Checkpoint(12, {}, {}, tmp_path), session) == []
    with pytest.raises(RunError, match="holds selections that no session made"):
        stored_copies(Checkpoint(12, {SELECTIONS: np.array([[4, 0, 1]], np.int32)}, {}, tmp_path), session)


def test_rows_must_be_alike_and_hold_one_number_per_chain(tmp_path):
    rows = session_of().rows
    check_rows(rows, 1, tmp_path)
    check_rows([], 1, tmp_path)
    several = session_of(chains=(0, 1)).rows
    check_rows(several, 2, tmp_path)
    large = [rows[0], rows[1] | {"loss": 10**400}]
    for wrong, number in ((rows, 2), (several, 1), (several, 3), ([rows[0], several[1]], 1), (large, 1)):
        with pytest.raises(RunError, match="is damaged at step"):
            check_rows(wrong, number, tmp_path)


def test_data_of_no_number_of_samples_are_refused():
    session = session_of()
    check_same_problem(session.rows, session, {"num_data": 0})
    with pytest.raises(RunError, match=r"the run has data of \[1\] samples, now there are 0"):
        check_same_problem(session.rows, session, {"num_data": [1]})
