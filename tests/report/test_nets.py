"""What the nets say on a page is what the trained nets say."""

import base64
import dataclasses
import shutil
import threading

import jax
import numpy as np
import pytest

import gradless as gl
from gradless.engine.plan import Plan
from gradless.problems import PROBLEMS, make_problem
from gradless.records import Metrics
from gradless.report import RunView
from gradless.report.nets import net_facts
from gradless.runs import start_problem


@pytest.fixture(autouse=True)
def double():
    """As the commands have it."""
    with jax.enable_x64(True):
        yield


def trained(name, path, options=None, **plan):
    problem = make_problem(name, options or {})
    algorithm = gl.metropolis(sigma=1e-2)
    plan = Plan(**{"precision": problem.precision} | plan)
    session = start_problem(problem, algorithm, plan, run=path, about={"problem": name, "options": options or {}})
    session.go()
    return problem, session.result()


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    with jax.enable_x64(True):
        path = tmp_path_factory.mktemp("runs") / "digits"
        trained("digits", path, steps=300)
    return path


def test_outputs_of_a_function_of_one_variable(tmp_path):
    options = {"width": 3, "points": 30}
    problem, result = trained("sine", tmp_path / "run", options, steps=50, chains=(0, 1))
    found = RunView(tmp_path / "run").facts()["outputs"]
    theta, target = problem.data
    best = int(np.argmin(result.loss))
    nets = [jax.tree.map(lambda leaf, place=place: leaf[place], result.params) for place in (best, 1 - best)]
    said = [np.asarray(problem.outputs(net, theta)).ravel() for net in nets]
    assert found["step"] == 50
    # six digits are kept
    np.testing.assert_allclose(found["x"], theta.ravel(), rtol=1e-5)
    np.testing.assert_allclose(found["target"], target.ravel(), rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(found["nets"], said, rtol=1e-5, atol=1e-12)


def test_a_start_that_needs_sigma_does_not_hide_what_the_net_says(tmp_path, monkeypatch):
    usual = PROBLEMS["sine"]

    def sine(points: int = 30):
        made = usual(width=3, points=points)
        return dataclasses.replace(made, init=lambda key, sigma: made.init(key, sigma))

    monkeypatch.setitem(PROBLEMS, "sine", sine)
    trained("sine", tmp_path / "run", {"points": 20}, steps=5)
    assert len(RunView(tmp_path / "run").facts()["outputs"]["x"]) == 20


def test_the_confusion_matrix_has_the_recorded_accuracy(digits):
    found = RunView(digits).facts()["images"]
    matrix = np.asarray(found["matrix"])
    accuracy = list(Metrics(digits / "metrics.jsonl").rows())[-1]["accuracy"]
    assert matrix.sum() == found["number"] == found["total"] == 360
    assert np.trace(matrix) / matrix.sum() == pytest.approx(accuracy, abs=1e-12)
    assert found["num_wrong"] == matrix.sum() - np.trace(matrix)
    labels = make_problem("digits", {}).test[1]
    assert matrix.sum(axis=1).tolist() == np.bincount(labels).tolist()


def test_pictures_are_those_of_the_wrong_ones(digits):
    found = RunView(digits).facts()["images"]
    images, labels = make_problem("digits", {}).test
    assert found["side"] == 8
    assert len(found["wrong"]) == 28
    scale = images[[one["place"] for one in found["wrong"]]]
    low, high = scale.min(), scale.max()
    for one in found["wrong"]:
        assert one["label"] == labels[one["place"]] != one["taken"]
        pixels = np.frombuffer(base64.b64decode(one["pixels"]), np.uint8)
        assert np.abs(pixels - 255 * (images[one["place"]] - low) / (high - low)).max() <= 1


def test_another_net_than_the_trained_one_is_told(digits, tmp_path):
    run = shutil.copytree(digits, tmp_path / "run")
    view = RunView(run)
    settings = {"problem": "digits", "options": {"hidden": 5}}
    found = net_facts(run, settings, view._load()[0], trust=False)
    assert "parameters, the checkpoint 1,482: the problem is not the one that was trained" in found["no_nets"]["reason"]
    found = net_facts(run, {"problem": "digits"}, None, trust=False)
    assert found["no_nets"]["reason"] == "What the net says cannot be shown: there is no checkpoint that can be read."
    assert net_facts(run, {"problem": "digits", "options": {"no": 1}}, view._load()[0], trust=False).keys() == {
        "no_nets"
    }


def test_a_problem_without_outputs_has_none(tmp_path):
    trained("rosenbrock", tmp_path / "run", steps=20)
    assert not {"outputs", "images", "no_nets"} & RunView(tmp_path / "run").facts().keys()


def test_a_live_page_does_not_wait_for_the_nets(digits, monkeypatch):
    may_answer = threading.Event()

    def slow(*given):
        may_answer.wait(60)
        return {"images": "late"}

    monkeypatch.setattr("gradless.report.nets.net_facts", slow)
    view = RunView(digits, in_background=True)
    assert "images" not in view.facts()
    before = view.stamp()
    may_answer.set()
    view.asking.join(60)
    assert view.stamp() != before
    assert view.facts()["images"] == "late"
