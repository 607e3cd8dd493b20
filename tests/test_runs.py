"""A run cut at any moment and gone on with equals the unbroken run, bit for bit."""

import errno
import os
import shutil
import warnings

import jax
import numpy as np
import pytest

import gradless as gl
from gradless.engine.chains import Chain
from gradless.records import AcceptedLog, RunDirectory, RunError, disk, list_checkpoints, load, save
from gradless.runs import resume

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
    assert case.resume(tmp_path / "run", steps=60).stopped_by == "steps"
    assert record_of(tmp_path / "run") == record_of(case.whole)


@pytest.fixture
def slow(monkeypatch):
    """A callback that takes ten seconds, on a clock that nothing else moves."""
    clock = [0.0]
    monkeypatch.setattr("gradless.engine.session.time.perf_counter", lambda: clock[0])

    def callback(numbers):
        clock[0] += 10

    callback.clock = clock
    return callback


def test_without_limits_a_run_goes_on_for_the_rest_of_its_time_and_no_longer(
    case_named, contents, one_step_rounds, slow, tmp_path
):
    case, run = case_named("amc"), tmp_path / "run"
    with pytest.raises(Cut):
        case.train(run, time_budget=100.0, callback=cut_at(5))
    old = load(list_checkpoints(run / "checkpoints")[0])
    save(run / "checkpoints", old.step, old.tensors, old.meta | {"spent": 70.0})
    result = case.resume(run, callback=slow)
    assert (result.stopped_by, slow.clock[0], result.steps) == (
        "time",
        30.0,
        7,
    )  # before the first step it is called too
    before = contents(run)
    result = case.resume(run)
    assert (result.stopped_by, result.steps) == ("time", 7)
    assert contents(run) == before
    result = case.resume(run, time_budget=20.0, callback=slow)
    assert (result.stopped_by, slow.clock[0], result.steps) == ("time", 50.0, 8)


def test_steps_that_are_asked_for_take_the_place_of_the_time(case_named, one_step_rounds, tmp_path):
    case, run = case_named("amc"), tmp_path / "run"
    assert case.train(run, time_budget=1e-9).stopped_by == "time"
    with pytest.raises(Cut):
        case.resume(run, steps=60, callback=cut_at(20))
    assert case.resume(run).stopped_by == "steps"


def test_data_without_a_loss_are_refused_before_they_are_ignored(case_named):
    with pytest.raises(ValueError, match=r"^data, metrics without loss: "):
        resume(case_named("amc").whole, data=np.zeros(3), metrics={})


def test_a_time_budget_of_resume_counts_from_now(case_named, tmp_path, one_step_rounds):
    case, run = case_named("amc"), tmp_path / "run"
    with pytest.raises(Cut):
        case.train(run, callback=cut_at(5))
    old = load(list_checkpoints(run / "checkpoints")[0])
    save(run / "checkpoints", old.step, old.tensors, old.meta | {"spent": 1e6})
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


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"speculate": 0}, {"time_budget": 0}])
def test_a_zero_is_refused_and_not_taken_for_nothing_given(wrong, case_named, tmp_path):
    case = case_named("mc")
    shutil.copytree(case.whole, tmp_path / "run")
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} .*must be .*, got 0"):
        case.resume(tmp_path / "run", **wrong)


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


def fit(params, batch):
    return ((batch[0] * params - batch[1]) ** 2).mean()


def norm(params):
    return {"norm": (params**2).sum()}


X = np.linspace(0, 1, 8, dtype=np.float32)
FIT = {"loss": fit, "params": np.ones(1, np.float32), "data": (X, 2 * X)}
OTHER_LOSS = (
    r"the loss of the last checkpoint is \S+, with this loss and these data it is 1[56].*: go on with those of the run"
)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"metrics": None}, "has recorded the metric norm, now there would be no metric: go on with those of the run"),
        (
            {"metrics": lambda x: norm(x) | {"b": x[0]}},
            "recorded the metric norm, now there would be the metrics b, norm",
        ),
        ({"algorithm": gl.amc(sigma=0.1, n_s=4)}, "algorithm must be that of the run, {'name': 'amc'.*: leave it out"),
        ({"algorithm": gl.metropolis(sigma=0.1)}, "algorithm must be that of the run"),
        ({"data": (X[:4], 2 * X[:4])}, "the run has data of 8 samples, now there are 4"),
        ({"data": (X, 2 * X + 4)}, OTHER_LOSS),
        ({"loss": lambda params, batch: fit(params, batch) + 16}, OTHER_LOSS),
    ],
)
def test_a_run_goes_on_with_its_own_problem_alone(tmp_path, changed, words):
    algorithm = gl.amc(sigma=0.1, n_s=3)
    gl.train(algorithm, **FIT, metrics=norm, steps=60, run=tmp_path / "run")
    same = FIT | {"metrics": norm, "algorithm": algorithm}
    with pytest.raises(RunError, match=words):
        gl.resume(tmp_path / "run", steps=90, **same | changed)
    assert gl.resume(tmp_path / "run", steps=90, **same).steps == 90


def test_a_temperature_that_is_a_function_is_given_again_with_the_algorithm(tmp_path):
    hot = gl.metropolis(sigma=0.1, temperature=lambda n: 1.0 / (1 + n))
    whole = gl.train(hot, quadratic, np.ones(2, np.float32), steps=40, run=tmp_path / "whole")
    gl.train(hot, quadratic, np.ones(2, np.float32), steps=20, run=tmp_path / "cut")
    again = {"steps": 40, "loss": quadratic, "params": np.ones(2, np.float32)}
    with pytest.raises(ValueError, match="a function that cannot be read back: give the algorithm again"):
        gl.resume(tmp_path / "cut", **again)
    result = gl.resume(tmp_path / "cut", algorithm=hot, **again)
    assert result.params.tobytes() == whole.params.tobytes()


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


def test_the_mode_of_jax_is_left_alone_and_does_not_matter(tmp_path):
    start = np.ones(2, np.float32)
    settings = {"loss": quadratic, "params": start}
    gl.train(gl.amc(sigma=0.1), **settings, steps=20, run=tmp_path / "off")
    with jax.enable_x64(True):
        gl.train(gl.amc(sigma=0.1), **settings, steps=20, run=tmp_path / "on")
        for name in ("off", "on"):
            assert gl.resume(tmp_path / name, **settings, steps=40).steps == 40
    assert not jax.config.jax_enable_x64
    gl.resume(tmp_path / "on", **settings, steps=60)
    assert not jax.config.jax_enable_x64


def test_resume_is_public():
    assert gl.resume is resume
