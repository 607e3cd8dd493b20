"""A session's whole state as tensors and text, and back; what does not fit is refused with the reason."""

import copy
import threading
from functools import partial

import jax
import numpy as np
import pytest

import gradless as gl
from gradless.engine.disk.recording import differing, environment, restore, snapshot
from gradless.engine.disk.stored import SELECTIONS
from gradless.engine.plan import Plan
from gradless.engine.session import Session
from gradless.engine.train import prepare
from gradless.records import Checkpoint, Metrics, RunError, load_newest, tensor_file

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


def draw(key):
    return jax.random.normal(key, (2,))


def test_the_text_of_a_checkpoint_does_not_grow_with_the_selections(tmp_path, monkeypatch):
    settings = {"loss": quadratic, "params": draw}
    begin = partial(gl.train, gl.metropolis(sigma=0.1, temperature=1.0), **settings, chains=4, select_every=1)
    whole = begin(steps=600, run=tmp_path / "whole")
    monkeypatch.setattr(tensor_file, "MAX_HEADER_BYTES", 1 << 14)  # a selection takes some fifty
    begin(steps=500, run=tmp_path / "run")
    result = gl.resume(tmp_path / "run", **settings, steps=600)
    np.testing.assert_array_equal(result.params, whole.params)
    one, other = (load_newest(tmp_path / name / "checkpoints", pytest.fail) for name in ("run", "whole"))
    assert len(one.tensors[SELECTIONS]) > 500
    np.testing.assert_array_equal(one.tensors[SELECTIONS], other.tensors[SELECTIONS])


@pytest.mark.parametrize("limit", ["metrics.MAX_LINE_BYTES", "tensor_file.MAX_HEADER_BYTES"])
@pytest.mark.parametrize("batches", [None, gl.progressive(2, lambda x, batch: quadratic(x))])
def test_more_chains_than_can_be_recorded_are_refused_before_anything_is_compiled(
    limit, batches, tmp_path, monkeypatch
):
    given = {"loss": lambda x, batch: quadratic(x), "params": np.ones(2), "data": np.ones(8), "batches": batches}
    begin = partial(gl.train, gl.metropolis(sigma=0.1), **given, steps=5, chains=20)
    monkeypatch.setattr(f"gradless.records.{limit}", 20_000)
    begin(run=tmp_path / "run")
    monkeypatch.setattr(f"gradless.records.{limit}", 3_000)
    monkeypatch.setattr(Session, "begin", pytest.fail)
    with pytest.raises(
        ValueError, match=r"^a run of 20 chains cannot be recorded \(.* under 3000 bytes.*\): take fewer"
    ):
        begin(run=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_nothing_that_is_recorded_is_wider_than_was_looked_at(monkeypatch, tmp_path):
    """The widest row and text have the names of the real ones, and no number of a chain is longer than theirs."""
    looked_at = []
    monkeypatch.setattr(Metrics, "check_row", looked_at.append)
    monkeypatch.setattr("gradless.engine.disk.recording.check_meta", looked_at.append)
    given = {"batches": gl.progressive(2, lambda x, batch: 0.0 * quadratic(x), check_every=1), "data": np.ones(8)}
    begin = partial(gl.train, gl.metropolis(sigma=0.1), lambda x, batch: quadratic(x), np.ones(2), **given, steps=9)
    begin(chains=3, metrics=lambda x: {"error": quadratic(x)}, run=tmp_path / "run")
    row, meta = looked_at
    *_, recorded = Metrics(tmp_path / "run" / "metrics.jsonl").rows()
    assert row.keys() == recorded.keys()
    assert all(len(str(row[name])) >= len(str(value)) for name, value in recorded.items())
    stored = load_newest(tmp_path / "run" / "checkpoints", pytest.fail).meta
    assert meta["settings"] == stored["settings"]
    assert [one.keys() for one in meta["chains"]] == [one.keys() for one in stored["chains"]]
    assert all(
        0 < len(there["growths"]) < len(widest["growths"])
        for there, widest in zip(stored["chains"], meta["chains"], strict=True)
    )
    assert len(meta["accepted"]) == len(stored["accepted"])


def test_a_checkpoint_of_other_random_numbers_is_refused(tmp_path):
    checkpoint = checkpoint_of(session_of(), tmp_path)
    checkpoint.meta["prng"] = "rbg"
    with pytest.raises(RunError, match="random numbers by rbg, this JAX uses threefry2x32"):
        restore(session_of(begun=False), checkpoint)


def test_a_checkpoint_whose_name_is_of_another_step_is_refused(tmp_path):
    with pytest.raises(RunError, match="says step 13, its chain 0 stands at 12 with status 0: restore it from a copy"):
        restore(session_of(begun=False), checkpoint_of(session_of(), tmp_path, step=13))


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("status", [0, 9], "chain 1 stands at 12 with status 9"),
        ("status", [4, 0], "chain 0 stands at 12 with status 4"),
        ("t", [12, 7], "chain 1 stands at 7 with status 0"),
        ("t", [12, -7], "chain 1 stands at -7 with status 0"),
        ("state.loss", [np.inf, 1.0], "a loss that no chain has"),
        ("state.sigma", [0.1, np.nan], "a sigma that no chain has"),
        ("state.sigma", [np.inf, 0.1], "a sigma that no chain has"),
        ("state.sigma", [0.1, -1.0], "a sigma that no chain has"),
        ("state.lam", [1.0, np.nan], "a lam that no chain has"),
        ("state.mu", [[0.0, np.nan], [0.0, 0.0]], "a mu that no chain has"),
    ],
)
def test_a_state_that_no_chain_comes_to_is_refused(name, values, words, tmp_path):
    checkpoint = checkpoint_of(session_of(chains=(0, 1)), tmp_path)
    restore(session_of(begun=False, chains=(0, 1)), checkpoint)
    changed = np.asarray(values, checkpoint.tensors[name].dtype)
    assert changed.shape == checkpoint.tensors[name].shape
    checkpoint.tensors[name] = changed
    with pytest.raises(RunError, match=f"{words}: restore it from a copy"):
        restore(session_of(begun=False, chains=(0, 1)), checkpoint)


def test_a_chain_that_has_ended_before_the_others_is_gone_on_with(tmp_path):
    session = session_of(chains=(0, 1), target_loss=4.5)
    assert {chain.t for chain in session.chains} != {12}
    restored = session_of(begun=False, chains=(0, 1), target_loss=4.5)
    restore(restored, checkpoint_of(session, tmp_path))
    assert [chain.t for chain in restored.chains] == [chain.t for chain in session.chains]


@pytest.mark.parametrize(
    ("algorithm", "batches"), [(ALGORITHM, gl.minibatch(2)), (gl.gradient_descent(learning_rate=0.1), gl.full_batch())]
)
def test_a_chain_goes_on_from_a_loss_that_is_none_on_a_minibatch_or_along_a_gradient(algorithm, batches, tmp_path):
    sessions = [
        prepare(algorithm, lambda x, batch: batch.mean() * quadratic(x), np.ones(2), Plan(5, batches), data=np.ones(4))
        for _ in range(2)
    ]
    sessions[0].begin()
    sessions[0].go()
    checkpoint = checkpoint_of(sessions[0], tmp_path)
    checkpoint.tensors["state.loss"] = np.full_like(checkpoint.tensors["state.loss"], np.nan)
    restore(sessions[1], checkpoint)


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


def test_a_recording_that_cannot_begin_lets_the_run_go(tmp_path, monkeypatch):
    """Else the process would hold its own run, and refuse to make it, to its end."""

    def full(*_):
        raise OSError(28, "No space left on device")

    def train(**given):
        gl.train(ALGORITHM, quadratic, np.ones(2), steps=5, run=tmp_path / "run", **given)

    with monkeypatch.context() as here:
        here.setattr("gradless.engine.disk.recording.Recorder", full)
        with pytest.raises(OSError, match="No space left"):
            train()
    train(overwrite=True)


def test_an_error_function_that_cannot_be_copied_can_be_recorded(tmp_path):
    class Error:
        def __init__(self):
            self.lock = threading.Lock()

        def __call__(self, x, batch):
            return quadratic(x)

    result = gl.train(
        ALGORITHM,
        lambda x, batch: quadratic(x),
        np.ones(2),
        data=np.ones(8),
        batches=gl.progressive(2, Error()),
        steps=5,
        run=tmp_path / "run",
    )
    assert result.steps == 5


def test_the_environment_names_machine_and_versions():
    found = environment()
    assert found["versions"]["gradless"] == gl.__version__
    assert found["devices"]
