"""The workshop of the figures: what was trained is never thrown away, and only what is whole is called finished."""

import errno
import time

import pytest

from gradless.engine.session import Listener
from gradless.experiments.tables import read_table, write_table
from gradless.experiments.workshop import Halt, Stopped, Workshop, is_finished
from gradless.kernels import AMC, GradientDescent
from gradless.records import RunDirectory, RunError, checkpoints


def train(out, steps=20, algorithm=None, **settings):
    shop = Workshop(out, lambda words: None, **settings)
    return shop.train("a", "rosenbrock", algorithm or AMC(sigma=1e-3), steps=steps)


def stopped(out):
    """Return the folder of a run that has been stopped after its first checkpoint."""
    with pytest.raises(Stopped):
        train(out, deadline=0.0)
    return out / "runs" / "a"


@pytest.mark.parametrize("name", ["settings.json", "environment.json"])
def test_a_damaged_run_is_told_and_left_as_it_is(tmp_path, name):
    run = stopped(tmp_path)
    (run / name).unlink()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=name):
        train(tmp_path)
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: b"", "holds no record"),
        (lambda text: b"".join(text.splitlines(keepends=True)[:-1]), "ends at step 19, the checkpoint knows of one"),
        (lambda text: text.replace(b'"loss"', b'"other"'), "damaged at step 0"),
    ],
)
def test_a_finished_run_whose_records_were_damaged_is_refused(tmp_path, damage, words):
    train(tmp_path)
    records = tmp_path / "runs" / "a" / "metrics.jsonl"
    records.write_bytes(damage(records.read_bytes()))
    with pytest.raises(RunError, match=rf"metrics\.jsonl.*{words}"):
        train(tmp_path)


@pytest.mark.parametrize("lose", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:99])])
def test_a_finished_run_that_lost_its_last_checkpoint_is_refused_until_it_has_gone_on(tmp_path, lose):
    end = train(tmp_path).tensors["state.x"]
    run = tmp_path / "runs" / "a"
    lose(run / "checkpoints" / "20.safetensors")
    with pytest.raises(RunError, match=r"ended at step 20, its last whole checkpoint is of step 0: .*finished"):
        train(tmp_path)
    (run / "finished").unlink()
    assert (train(tmp_path).tensors["state.x"] == end).all()


def test_a_run_without_a_checkpoint_is_begun_anew_but_not_under_another_process(tmp_path):
    run = tmp_path / "runs" / "a"
    with RunDirectory.create(run, {}, {}), pytest.raises(RunError, match="is in use"):
        train(tmp_path)
    assert train(tmp_path).table["step"][-1] == 20


@pytest.mark.parametrize("is_over", [False, True])
def test_a_longer_run_than_asked_for_is_refused(tmp_path, is_over):
    """Its records would be taken for those of the length that is asked for."""
    run = tmp_path / "runs" / "a"
    if is_over:
        train(tmp_path)
    else:
        stopped(tmp_path)
    with pytest.raises(RunError, match="is a run of 20 steps, and 10 are asked for: move it away to begin anew"):
        train(tmp_path, steps=10)
    assert is_finished(run) == is_over


@pytest.mark.parametrize("is_over", [False, True])
def test_a_shorter_run_than_asked_for_goes_on(tmp_path, is_over):
    """As if it had been meant to be that long."""
    if is_over:
        train(tmp_path)
    else:
        stopped(tmp_path)
    longer = train(tmp_path, steps=30)
    at_once = train(tmp_path / "at once", steps=30)
    assert is_finished(longer.path)
    assert longer.table["step"][-1] == 30
    assert (longer.tensors["state.x"] == at_once.tensors["state.x"]).all()
    assert train(tmp_path, steps=30).table["step"][-1] == 30


def test_a_run_that_has_diverged_stays_over_however_long_it_may_be(tmp_path):
    """It cannot be gone on with."""
    ended = train(tmp_path, algorithm=GradientDescent(learning_rate=1e9))
    assert ended.tensors["t"].max() < 20
    assert (train(tmp_path, steps=30, algorithm=GradientDescent(learning_rate=1e9)).tensors["t"] < 20).all()


def test_the_cost_of_a_run_that_got_further_elsewhere_stays(tmp_path):
    """Where the tables go on but a run begins anew, it has cost more than it has here."""
    elsewhere = {"run": "a", "seed": 0, "chains": 1, "steps": 15, "seconds": 9.0}
    write_table(tmp_path / "costs.csv", [elsewhere])
    stopped(tmp_path)
    assert read_table(tmp_path / "costs.csv") == [elsewhere]
    train(tmp_path)
    assert read_table(tmp_path / "costs.csv")[0]["steps"] == 20


def test_compiling_is_taken_off_the_time_once(tmp_path):
    deadline, seen = time.monotonic() + 100, []

    class Watch(Listener):
        def chunk_done(self, session, rows, flags):
            left = session.time_budget - session.spent - (time.perf_counter() - session._clock)
            seen.append((left - (deadline - time.monotonic())) / session.compile_seconds)

    train(tmp_path, deadline=deadline, follow=Watch)
    assert seen[0] == pytest.approx(0, abs=0.5)  # taken off twice it would be -1


def test_a_run_whose_end_could_not_be_written_is_not_finished(tmp_path, monkeypatch):
    save = checkpoints.save

    def full(folder, step, *rest):
        if step:
            raise OSError(errno.ENOSPC, "No space left on device")
        return save(folder, step, *rest)

    monkeypatch.setattr(checkpoints, "save", full)
    with pytest.raises(RunError, match="could not be written"):
        train(tmp_path)
    assert not is_finished(tmp_path / "runs" / "a")
    monkeypatch.undo()
    assert train(tmp_path).tensors["t"] == 20


def test_a_signal_that_comes_with_the_last_steps_of_a_run_leaves_it_finished(tmp_path):
    halt = Halt()

    class Signal(Listener):
        def chunk_done(self, session, rows, flags):
            if session.t == 4:  # the loss has overflowed: this run cannot be gone on with
                halt.stop_requested = "SIGINT"

    with pytest.raises(Stopped):
        train(tmp_path, algorithm=GradientDescent(learning_rate=1.0), halt=halt, follow=Signal)
    assert is_finished(tmp_path / "runs" / "a")
    assert train(tmp_path, algorithm=GradientDescent(learning_rate=1.0)).table["step"][-1] == 4
