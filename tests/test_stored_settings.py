"""What a run's settings.json says is read back only if gradless could have written it."""

import numpy as np
import pytest

import gradless as gl
from gradless.records import RunDirectory, RunError
from gradless.runs import parse_batch, resume, stored_plan, stored_problem
from gradless.threefry import NAME


def quadratic(x):
    return (x**2).sum()


PLAN = {"steps": 9, "chains": [0], "batches": {"name": "fullbatch"}}
NOT_PLANS = [
    None,
    [],
    "plan",
    {},
    PLAN | {"chains": 3},
    PLAN | {"chains": ["a"]},
    PLAN | {"chains": [-1]},
    PLAN | {"chains": [10**30]},
    PLAN | {"chains": [0.5]},
    PLAN | {"chains": []},
    PLAN | {"batches": "full"},
    PLAN | {"batches": {"name": "os"}},
    PLAN | {"batches": {"name": ["fullbatch"]}},
    PLAN | {"batches": {"name": "minibatch", "size": "x"}},
    PLAN | {"batches": {"name": "minibatch", "size": 5, "other": 1}},
    PLAN | {"steps": 1e9},
    PLAN | {"steps": 10**30},
    PLAN | {"steps": True},
    PLAN | {"seed": -1},
    PLAN | {"record_every": "x"},
    PLAN | {"precision": ["float32"]},
    PLAN | {"target_loss": "low"},
    PLAN | {"target_metric": 3},
    PLAN | {"select_fraction": {}},
    PLAN | {"select_every": "x"},
    PLAN | {"stop_when_frozen": []},
    PLAN | {"checkpoint_every": "x"},
    PLAN | {"time_budget": "x"},
    PLAN | {"time_budget": [1.0, 2.0]},
    PLAN | {"time_budget": 10**400},
]


@pytest.mark.parametrize("plan", NOT_PLANS, ids=str)
def test_a_plan_that_gradless_did_not_write_is_refused(plan, tmp_path):
    problem = gl.Problem(np.ones(2), quadratic)
    with pytest.raises((RunError, ValueError), match=r"did not write|must|needs"):
        stored_plan(tmp_path, {"plan": plan}, problem)
    assert stored_plan(tmp_path, {"plan": PLAN}, problem).steps == 9


def test_a_module_that_stored_settings_name_is_imported_only_on_trust(tmp_path, monkeypatch):
    (tmp_path / "planted.py").write_text("from pathlib import Path\nPath('executed').touch()\nproblem = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    with pytest.raises(RunError, match=r"runs the code of the module 'planted'.* --trust"):
        stored_problem("run", {"problem": "planted:problem"}, trust=False)
    assert not (tmp_path / "executed").exists()
    with pytest.raises(ValueError, match="must be a Problem"):
        stored_problem("run", {"problem": "planted:problem"}, trust=True)
    assert (tmp_path / "executed").exists()


@pytest.mark.parametrize("name", [3, [], {}, True, "", "nosuch"])
def test_a_problem_that_is_none_is_refused(name):
    with pytest.raises((RunError, ValueError), match=r"did not write|there is no problem"):
        stored_problem("run", {"problem": name}, trust=False)


def test_options_of_a_stored_problem_are_of_the_right_kind():
    for options in ({"width": "x"}, {"width": None}, {"width": True}, {"width": 2.5}, {"points": [1]}, {"init": 3}):
        with pytest.raises(ValueError, match="must be of the kind of"):
            stored_problem("run", {"problem": "sine", "options": options}, trust=False)
    for options in ({"width": 10**9}, {"depth": 10**9}, {"depth": -1}, {"other": 1}):
        with pytest.raises(ValueError, match=r"must|has no option"):
            stored_problem("run", {"problem": "sine", "options": options}, trust=False)
    with pytest.raises(RunError, match="did not write"):
        stored_problem("run", {"problem": "sine", "options": [1]}, trust=False)


def test_a_batch_is_read_from_one_word():
    plain, growing = gl.Problem(np.ones(2), quadratic), gl.Problem(np.ones(2), quadratic, error=quadratic)
    assert parse_batch("full", plain) == gl.full_batch()
    assert parse_batch("20", plain) == gl.minibatch(20)
    assert parse_batch("progressive:5", growing) == gl.progressive(5, quadratic)
    with pytest.raises(ValueError, match="needs a problem with an error function"):
        parse_batch("progressive:5", plain)
    for word in ("", "x", "progressive", "progressive:", "progressive:x", "2.5", "full:3"):
        with pytest.raises(ValueError, match="batch must be full, a size such as 2000, or progressive:500"):
            parse_batch(word, growing)


def test_a_run_names_its_generator_and_goes_on_with_no_other(edit_settings, tmp_path):
    run = tmp_path / "run"
    gl.train(gl.metropolis(sigma=0.1), quadratic, np.ones(2, np.float32), steps=3, run=run)
    assert RunDirectory.open(run).settings["generator"] == NAME
    edit_settings(run, lambda settings: settings.update(generator="dice"))
    with pytest.raises(RunError, match=f"was made with random numbers by dice, this gradless has {NAME}"):
        resume(run, steps=6, loss=quadratic, params=np.ones(2, np.float32))
