"""A run cut at any moment and gone on with equals the unbroken run, bit for bit."""

import errno
import json
import os
import shutil
import warnings

import numpy as np
import pytest

import gradless as gl
from gradless.engine.chains import Chain
from gradless.records import AcceptedLog, RunDirectory, RunError, disk, list_checkpoints, load, save
from gradless.runs import parse_batch, resume, stored_plan, stored_problem
from gradless.threefry import NAME

pytestmark = pytest.mark.usefixtures("quick_disk")


class Cut(Exception):
    """What a user's callback may raise."""


def cut_at(step):
    def callback(numbers):
        if numbers["step"] >= step:
            raise Cut

    return callback


def quadratic(x):
    return (x**2).sum()


def edit_settings(run, change):
    path = run / "settings.json"
    table = json.loads(path.read_text())
    change(table["settings"])
    path.write_text(json.dumps(table))


def test_a_run_cut_by_an_exception_and_resumed_equals_the_unbroken_run(case, record_of, one_step_rounds, tmp_path):
    run = tmp_path / "cut"
    with pytest.raises(Cut):
        case.train(run, callback=cut_at(5))
    assert record_of(run)["step"] == 5
    with pytest.raises(Cut):
        case.resume(run, callback=cut_at(22))
    case.resume(run)
    assert record_of(run) == record_of(case.whole)


def test_a_run_killed_between_any_two_steps_and_resumed_equals_the_unbroken_run(
    case, record_of, one_step_rounds, tmp_path
):
    # A copy of the folder is what a kill -9 at that moment leaves. The first run has a checkpoint of step 0 alone, the
    # second one after every step.
    images = []
    for every, steps in ((30.0, (1, 23)), (1e-9, (13,))):
        run = tmp_path / f"every-{every}"

        def copy(numbers, run=run, steps=steps):
            if numbers["step"] in steps:
                images.append(shutil.copytree(run, f"{run}-{numbers['step']}"))

        case.train(run, steps=25, callback=copy, checkpoint_every=every)
    assert len(images) == 3
    for image in images:
        case.resume(image, steps=60)
        assert record_of(image) == record_of(case.whole)


def test_resume_with_more_steps_equals_a_run_that_had_that_many(case, record_of, tmp_path):
    case.train(tmp_path / "short", steps=30)
    case.resume(tmp_path / "short", steps=60)
    assert record_of(tmp_path / "short") == record_of(case.whole)


def test_a_run_out_of_time_is_complete_and_goes_on(case_named, record_of, tmp_path):
    case = case_named("amc")
    result = case.train(tmp_path / "run", time_budget=1e-9)
    assert result.stopped_by == "time"
    assert record_of(tmp_path / "run")["step"] == result.steps < 60
    assert case.resume(tmp_path / "run").stopped_by == "steps"
    assert record_of(tmp_path / "run") == record_of(case.whole)


def test_a_time_budget_of_resume_counts_from_now(case_named, tmp_path, one_step_rounds):
    case, run = case_named("amc"), tmp_path / "run"
    with pytest.raises(Cut):
        case.train(run, callback=cut_at(5))
    old = load(list_checkpoints(run / "checkpoints")[0])
    save(run / "checkpoints", old.step, old.tensors, old.meta | {"seconds": 1e6})
    assert case.resume(run, time_budget=1000.0).stopped_by == "steps"


def test_a_keyboard_interrupt_in_the_middle_of_a_round_leaves_a_run_that_goes_on(
    case_named, record_of, one_step_rounds, tmp_path, monkeypatch
):
    case, advance = case_named("amc chains"), Chain.advance

    def interrupted(chain, until):
        if chain.index == 1 and until > 20:
            raise KeyboardInterrupt
        return advance(chain, until)

    monkeypatch.setattr(Chain, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        case.train(tmp_path / "run", checkpoint_every=1e-9)
    monkeypatch.setattr(Chain, "advance", advance)
    assert record_of(tmp_path / "run")["step"] == 20
    case.resume(tmp_path / "run")
    assert record_of(tmp_path / "run") == record_of(case.whole)


def test_resume_of_a_finished_run_changes_nothing(case, contents, tmp_path):
    run = shutil.copytree(case.whole, tmp_path / "run")
    before, times = contents(run), [path.stat().st_mtime_ns for path in list_checkpoints(run / "checkpoints")]
    result = case.resume(run)
    assert result.stopped_by in ("steps", "target")
    assert contents(run) == before
    assert [path.stat().st_mtime_ns for path in list_checkpoints(run / "checkpoints")] == times
    np.testing.assert_equal(result.trace.step[-1], result.steps)


def test_a_larger_target_is_remembered_when_the_run_is_killed_on_the_way_there(
    case_named, record_of, one_step_rounds, tmp_path
):
    case, run = case_named("amc"), tmp_path / "run"
    case.train(run, steps=20)
    with pytest.raises(Cut):
        case.resume(run, steps=60, callback=cut_at(35))
    assert case.resume(run).steps == 60
    assert record_of(run) == record_of(case.whole)


def test_a_smaller_target_ends_a_sitting_early_but_is_not_remembered(case_named, one_step_rounds, tmp_path):
    case, run = case_named("amc"), tmp_path / "run"
    with pytest.raises(Cut):
        case.train(run, callback=cut_at(10))
    assert case.resume(run, steps=20).steps == 20
    assert case.resume(run, steps=5).steps == 20
    assert case.resume(run).steps == 60


def test_a_target_that_cannot_be_remembered_is_refused_before_training(case_named, contents, tmp_path, monkeypatch):
    case, run = case_named("amc"), tmp_path / "run"
    case.train(run, steps=20)
    before = contents(run)

    def full(path):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(disk, "create", full)
    with pytest.raises(RunError, match=r"cannot write .*settings.json: No space left"):
        case.resume(run, steps=60)
    assert contents(run) == before


def test_settings_are_changed_only_by_the_one_who_holds_the_run(case_named, tmp_path):
    run = shutil.copytree(case_named("amc").whole, tmp_path / "run")
    with RunDirectory.open(run) as reader, pytest.raises(RunError, match="for reading only"):
        reader.update_settings({})


def test_a_run_in_use_is_refused_and_the_holder_is_named(case_named, tmp_path):
    run = shutil.copytree(case_named("amc").whole, tmp_path / "run")
    with RunDirectory.resume(run), pytest.raises(RunError, match=f"in use by process {os.getpid()} on "):
        case_named("amc").resume(run)


def test_a_run_of_a_python_loss_needs_it_again(case_named, tmp_path):
    run = shutil.copytree(case_named("amc").whole, tmp_path / "run")
    with pytest.raises(RunError, match=r"made by gl.train from a Python loss"):
        gl.resume(run)
    with pytest.raises(ValueError, match="progressive batches: give their error function again"):
        case_named("amc progressive").resume(case_named("amc progressive").whole, error=None)


def test_a_temperature_that_is_a_function_is_given_again_with_the_algorithm(tmp_path):
    hot = gl.metropolis(sigma=0.1, temperature=lambda n: 1.0 / (1 + n))
    whole = gl.train(hot, quadratic, np.ones(2, np.float32), steps=40, run=tmp_path / "whole")
    gl.train(hot, quadratic, np.ones(2, np.float32), steps=20, run=tmp_path / "cut")
    again = {"steps": 40, "loss": quadratic, "params": np.ones(2, np.float32)}
    with pytest.raises(ValueError, match="a function that cannot be read back: give the algorithm again"):
        gl.resume(tmp_path / "cut", **again)
    result = gl.resume(tmp_path / "cut", algorithm=hot, **again)
    assert result.params.tobytes() == whole.params.tobytes()


def test_a_damaged_newest_checkpoint_is_set_aside_and_the_one_before_used(
    case_named, record_of, one_step_rounds, tmp_path, capfd
):
    case, run = case_named("amc"), tmp_path / "run"
    with pytest.raises(Cut):
        case.train(run, callback=cut_at(30), checkpoint_every=1e-9)
    newest = list_checkpoints(run / "checkpoints")[0]
    newest.write_bytes(newest.read_bytes()[:-1])
    case.resume(run)
    assert "30.safetensors is damaged" in capfd.readouterr().err
    assert (run / "checkpoints" / "30.safetensors.damaged").exists()
    assert record_of(run) == record_of(case.whole)


def test_when_every_checkpoint_is_damaged_nothing_is_changed(case_named, contents, tmp_path):
    run = shutil.copytree(case_named("amc").whole, tmp_path / "run")
    for path in list_checkpoints(run / "checkpoints"):
        path.write_bytes(path.read_bytes()[:-1])
    before = contents(run)
    with pytest.raises(RunError, match=r"no readable checkpoint .* nothing was changed"):
        case_named("amc").resume(run)
    assert contents(run) == before


def test_a_checkpoint_of_another_net_or_precision_is_refused(case_named, contents, tmp_path):
    case = case_named("amc")
    run = shutil.copytree(case.whole, tmp_path / "run")
    before = contents(run)
    wider = {name: np.concatenate([leaf, leaf]) for name, leaf in {"b": np.zeros(4, np.float32)}.items()}
    with pytest.raises(
        RunError, match=r"does not fit the problem: state.x must be float32 of shape \(1, 8\), .*\(1, 12\)"
    ):
        case.resume(run, params=wider, loss=lambda p, batch: (p["b"] ** 2).sum(), metrics=None, test=None)
    assert contents(run) == before
    edit_settings(run, lambda settings: settings["plan"].update(precision="float64"))
    with pytest.raises(RunError, match="float64"):
        case.resume(run)


def test_a_run_without_its_log_is_refused_and_nothing_changed(case_named, contents, tmp_path):
    run = shutil.copytree(case_named("amc").whole, tmp_path / "run")
    log = run / "accepted.log"
    log.write_bytes(log.read_bytes()[:-3])
    before = contents(run)
    with pytest.raises(RunError, match=r"accepted.log is whole only up to step"):
        case_named("amc").resume(run)
    assert contents(run) == before


@pytest.mark.parametrize("damage", [{"loss": "low"}, {"loss": None}, {"other": 1}, {"seconds": []}, {"sigma": [1, 2]}])
def test_records_that_are_not_ours_are_refused(case_named, tmp_path, damage):
    run = shutil.copytree(case_named("amc").whole, tmp_path / "run")
    lines = (run / "metrics.jsonl").read_text().splitlines()
    lines[3] = json.dumps(json.loads(lines[3]) | damage)
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(RunError, match=r"metrics.jsonl is damaged at step 4"):
        case_named("amc").resume(run)


@pytest.mark.parametrize("trouble", ["write", "fsync", "replace", "create", "open_append"])
def test_a_disk_that_fails_for_a_while_costs_nothing(
    case_named, record_of, one_step_rounds, tmp_path, monkeypatch, capfd, trouble
):
    case, run, real = case_named("amc"), tmp_path / "run", getattr(disk, trouble)

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    def fail_for_a_while(numbers):
        monkeypatch.setattr(disk, trouble, full if 10 <= numbers["step"] < 40 else real)

    case.train(run, callback=fail_for_a_while, checkpoint_every=1e-9)
    assert "No space left on device; training goes on" in capfd.readouterr().err
    assert record_of(run) == record_of(case.whole)


def test_a_disk_that_fails_for_good_leaves_what_was_on_it(
    case_named, record_of, one_step_rounds, tmp_path, monkeypatch, capfd
):
    case, run = case_named("amc"), tmp_path / "run"

    def fail_from_now_on(numbers):
        if numbers["step"] == 25:
            for name in ("write", "create", "open_append", "unlink", "replace"):
                monkeypatch.setattr(disk, name, refuse)

    def refuse(*args):
        raise OSError(errno.EROFS, "Read-only file system")

    result = case.train(run, callback=fail_from_now_on, checkpoint_every=1e-9)
    monkeypatch.undo()
    assert result.steps == 60
    told = capfd.readouterr().err
    assert "Read-only file system; training goes on" in told
    assert "the end of the run could not be written" in told
    assert record_of(run)["step"] == 25
    case.resume(run)
    assert record_of(run) == record_of(case.whole)


def test_a_deleted_run_directory_does_not_stop_the_training(case_named, one_step_rounds, tmp_path, capfd):
    case, run = case_named("amc"), tmp_path / "run"

    def delete(numbers):
        if numbers["step"] == 20:
            shutil.rmtree(run)

    result = case.train(run, callback=delete, checkpoint_every=1e-9)
    assert result.params["w"].tobytes() == case.train(None).params["w"].tobytes()
    assert "No such file or directory; training goes on" in capfd.readouterr().err
    assert not run.exists()


def test_a_run_that_was_moved_away_and_comes_back_is_complete(case_named, record_of, one_step_rounds, tmp_path, capfd):
    case, run, away = case_named("amc"), tmp_path / "run", tmp_path / "away"

    def move(numbers):
        if numbers["step"] == 20:
            run.rename(away)
        if numbers["step"] == 30:
            away.rename(run)

    case.train(run, callback=move)
    assert "works again" in capfd.readouterr().err
    assert record_of(run) == record_of(case.whole)


def test_a_warning_that_is_an_error_leaves_a_run_that_goes_on(one_step_rounds, tmp_path):
    # sigma falls by a factor of ten at each rejection, so that the chain freezes and says so by a warning
    frozen = gl.amc(sigma=1e-3, n_s=1, sigma_decay=0.1)
    start = np.full(3, 1e3, np.float32)
    with pytest.raises(UserWarning, match="frozen"):
        gl.train(frozen, quadratic, start, steps=60, record_every=4, run=tmp_path / "run")
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        gl.train(frozen, quadratic, start, steps=60, record_every=4, run=tmp_path / "whole")
        result = gl.resume(tmp_path / "run", loss=quadratic, params=start)
    assert result.steps == 60
    logs = [AcceptedLog(tmp_path / name / "accepted.log").read(0, 60) for name in ("run", "whole")]
    np.testing.assert_array_equal(*logs)


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


def test_resume_is_public():
    assert gl.resume is resume


def test_a_run_names_its_generator_and_goes_on_with_no_other(tmp_path):
    run = tmp_path / "run"
    gl.train(gl.metropolis(sigma=0.1), quadratic, np.ones(2, np.float32), steps=3, run=run)
    assert RunDirectory.open(run).settings["generator"] == NAME
    edit_settings(run, lambda settings: settings.update(generator="dice"))
    with pytest.raises(RunError, match=f"was made with random numbers by dice, this gradless has {NAME}"):
        resume(run, steps=6, loss=quadratic, params=np.ones(2, np.float32))
