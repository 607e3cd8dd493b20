"""A run whose files or disk fail: what is left is gone on with, or refused with nothing changed."""

import errno
import json
import shutil

import numpy as np
import pytest

from gradless.records import RunError, disk, list_checkpoints

pytestmark = pytest.mark.usefixtures("quick_disk")


def test_a_damaged_newest_checkpoint_is_set_aside_and_the_one_before_used(
    case_named, record_of, one_step_rounds, tmp_path, capfd
):
    case, run = case_named("amc"), tmp_path / "run"

    def stop(numbers):
        if numbers["step"] == 30:
            raise EOFError

    with pytest.raises(EOFError):
        case.train(run, callback=stop, checkpoint_every=1e-9)
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


def test_a_checkpoint_of_another_net_or_precision_is_refused(case_named, contents, edit_settings, tmp_path):
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


@pytest.mark.parametrize(("num_lines", "words"), [(0, "holds no record"), (3, "ends at step 2")])
def test_records_that_end_before_the_checkpoint_are_refused_and_nothing_changed(
    case_named, contents, tmp_path, num_lines, words
):
    run = shutil.copytree(case_named("amc").whole, tmp_path / "run")
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:num_lines]))
    before = contents(run)
    with pytest.raises(RunError, match=rf"metrics.jsonl {words}, the checkpoint knows of one at step \d+: restore it"):
        case_named("amc").resume(run)
    assert contents(run) == before


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
