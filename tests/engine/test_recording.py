"""A session's whole state as tensors and text, and back; what does not fit is refused with the reason."""

import copy

import numpy as np
import pytest

import gradless as gl
from gradless.engine.plan import Plan
from gradless.engine.recording import differing, environment, restore, snapshot
from gradless.engine.train import prepare
from gradless.records import Checkpoint, RunError

ALGORITHM = gl.amc(sigma=0.1, epsilon=0.1, n_s=3)


def quadratic(x):
    return (x**2).sum()


def session_of(algorithm=ALGORITHM, start=(1.0, 2.0), begun=True, **plan):
    session = prepare(algorithm, quadratic, np.asarray(start, np.float32), Plan(**{"steps": 12, **plan}))
    if begun:
        session.begin()
        session.go()
    return session


def checkpoint_of(session, tmp_path, **changes):
    tensors, meta = snapshot(session)
    parts = {"step": session.t, "tensors": tensors, "meta": copy.deepcopy(meta), "path": tmp_path / "12.safetensors"}
    return Checkpoint(**parts | changes)


@pytest.mark.parametrize(
    ("algorithm", "plan"),
    [
        (ALGORITHM, {}),
        (gl.metropolis(sigma=0.1), {"chains": (0, 3)}),
        (gl.adam(learning_rate=0.1), {}),
        (ALGORITHM, {"chains": (0, 1, 2, 3), "select_every": 5}),
        (ALGORITHM, {"precision": "float64"}),
    ],
)
def test_a_restored_session_has_the_same_snapshot(algorithm, plan, tmp_path):
    session = session_of(algorithm, **plan)
    fresh = session_of(algorithm, begun=False, **plan)
    restore(fresh, checkpoint_of(session, tmp_path))
    before, after = snapshot(session), snapshot(fresh)
    assert {name: one.tobytes() for name, one in before[0].items()} == {n: one.tobytes() for n, one in after[0].items()}
    assert before[1] == after[1]
    assert fresh.t == session.t == 12


def test_a_checkpoint_says_what_made_it(tmp_path):
    _, meta = snapshot(session_of())
    assert meta["prng"] == "threefry2x32"
    assert meta["jax"]
    assert meta["gradless"] == gl.__version__


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"start": (1.0, 2.0, 3.0)}, r"state.x must be float32 of shape \(1, 3\), it has float32 of shape \(1, 2\)"),
        ({"algorithm": gl.adam(learning_rate=0.1)}, r"does not fit the problem: state.\w+ must be .*, it has none"),
        ({"precision": "float64"}, r"must be float64"),
    ],
)
def test_a_checkpoint_of_other_shapes_is_refused_with_the_reason(other, words, tmp_path):
    with pytest.raises(RunError, match=words):
        restore(session_of(begun=False, **other), checkpoint_of(session_of(), tmp_path))


def test_a_checkpoint_of_other_random_numbers_is_refused(tmp_path):
    checkpoint = checkpoint_of(session_of(), tmp_path)
    checkpoint.meta["prng"] = "rbg"
    with pytest.raises(RunError, match="random numbers by rbg, this JAX uses threefry2x32"):
        restore(session_of(begun=False), checkpoint)


def test_a_checkpoint_whose_name_is_of_another_step_is_refused(tmp_path):
    with pytest.raises(RunError, match="says step 13, its chains stand at 12"):
        restore(session_of(begun=False), checkpoint_of(session_of(), tmp_path, step=13))


def test_a_run_that_has_diverged_does_not_go_on(tmp_path):
    wild = gl.gradient_descent(learning_rate=1e30)
    session = session_of(wild)
    assert session.stopped_by == "diverged"
    with pytest.raises(RunError, match="has diverged"):
        restore(session_of(wild, begun=False), checkpoint_of(session, tmp_path))


def test_the_first_tensor_that_differs_is_named_and_the_loss_is_not_looked_at(tmp_path):
    session = session_of()
    tensors, _ = snapshot(session)
    states = [chain.carry.state for chain in session.chains]
    assert differing(states, tensors) is None
    assert differing(states, tensors | {"state.loss": tensors["state.loss"] + 1}) is None
    assert differing(states, {}) is not None
    assert differing(states, tensors | {"state.sigma": np.nextafter(tensors["state.sigma"], 1)}) == "sigma"


def test_the_environment_names_machine_and_versions():
    found = environment()
    assert found["versions"]["gradless"] == gl.__version__
    assert found["devices"]
