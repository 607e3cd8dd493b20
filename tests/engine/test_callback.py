"""A callback sees plain numbers that are those of the run, and however it ends a run, nothing is lost."""

import json
import math

import numpy as np
import pytest

import gradless as gl

KEYS = {
    *("step", "steps", "seconds", "epoch", "evaluations", "samples"),
    *("loss", "acceptance", "sigma", "nonfinite", "is_frozen", "metrics"),
}
pytestmark = pytest.mark.usefixtures("one_step_rounds", "quick_disk")


def seen_by(train, **settings):
    """The result of a run, and what a callback saw of it."""
    seen = []
    return train(callback=seen.append, **settings), seen


def test_it_sees_every_chunk_with_the_numbers_of_the_result(case_named, tmp_path):
    result, seen = seen_by(case_named("amc minibatches").train, run=tmp_path / "run", record_every=1)
    assert [numbers["step"] for numbers in seen] == list(range(61))
    assert all(set(numbers) == KEYS for numbers in seen)
    assert math.isnan(seen[0]["acceptance"])  # nothing has been proposed yet
    last = seen[-1]
    assert (last["steps"], last["loss"], last["sigma"]) == (60, result.loss, result.sigma)
    assert (last["evaluations"], last["samples"]) == (result.evaluations, result.samples)
    assert last["metrics"] == result.metrics
    assert last["seconds"] == result.seconds
    assert np.mean([numbers["acceptance"] for numbers in seen[1:]]) == pytest.approx(result.acceptance)
    assert [numbers["loss"] for numbers in seen] == result.trace.loss.tolist()
    assert json.loads(json.dumps(last)) == last  # plain numbers: they go through JSON as they are


def test_with_several_chains_it_sees_an_array_of_each(case_named, tmp_path):
    result, seen = seen_by(case_named("amc chains").train, run=tmp_path / "run")
    for name in ("loss", "sigma"):
        assert isinstance(seen[-1][name], np.ndarray)
        assert (seen[-1][name] == getattr(result, name)).all()
    assert (seen[-1]["metrics"]["error"] == result.metrics["error"]).all()


def test_a_chain_that_ends_earlier_keeps_the_metrics_of_its_end(case_named, tmp_path):
    result, seen = seen_by(case_named("amc chains with a target").train, run=tmp_path / "run", record_every=1)
    ended = np.isnan(result.trace.loss[:, -1])
    assert ended.any()
    assert not ended.all()
    assert (seen[-1]["metrics"]["error"] == result.metrics["error"]).all()


def test_a_gradient_has_neither_acceptance_nor_sigma(case_named, tmp_path):
    _, seen = seen_by(case_named("gd").train, run=tmp_path / "run")
    assert math.isnan(seen[-1]["sigma"])


def test_what_it_keeps_is_its_own(case_named, tmp_path):
    def spoil(numbers):
        numbers["metrics"].clear()
        numbers["loss"] = -1.0

    case = case_named("amc")
    spoilt = case.train(tmp_path / "run", callback=spoil)
    assert spoilt.loss == case.train(tmp_path / "same").loss
    assert "error" in spoilt.trace


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_an_exception_leaves_a_checkpoint_and_reaches_the_caller(case_named, tmp_path, record_of, kind):
    def fail(numbers):
        if numbers["step"] == 17:
            raise kind("enough")

    case = case_named("amc")
    with pytest.raises(kind, match="enough"):
        case.train(tmp_path / "run", callback=fail)
    assert record_of(tmp_path / "run")["step"] == 17
    case.resume(tmp_path / "run")
    assert record_of(tmp_path / "run") == record_of(case.whole)


def test_stop_iteration_ends_the_run_with_its_result(case_named, tmp_path, record_of):
    def enough(numbers):
        if numbers["step"] >= 17:
            raise StopIteration

    case = case_named("amc chains")
    result = case.train(tmp_path / "run", callback=enough)
    assert (result.steps, result.stopped_by) == (17, "callback")
    resumed, seen = seen_by(case.resume, run=tmp_path / "run")
    assert (seen[0]["step"], resumed.stopped_by) == (17, "steps")
    assert seen[0]["seconds"] == result.seconds  # of both sittings together
    assert record_of(tmp_path / "run") == record_of(case.whole)


@pytest.mark.parametrize("callback", [3, "print", {}])
def test_what_is_no_function_is_refused_before_anything_is_written(case_named, tmp_path, callback):
    with pytest.raises(ValueError, match=r"^callback must be a function, got"):
        case_named("amc").train(tmp_path / "run", callback=callback)
    assert not (tmp_path / "run").exists()


def test_a_run_without_a_folder_stops_too():
    with pytest.raises(ZeroDivisionError):
        gl.train(gl.metropolis(0.1), lambda x: (x**2).sum(), np.ones(2), steps=5, callback=lambda numbers: 1 / 0)
