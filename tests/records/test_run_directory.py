"""The run directory: begun, opened, overwritten, named; nothing of the user's is lost."""

import contextlib
import datetime
import errno
import json
import threading

import numpy as np
import pytest

from gradless.records import (
    Metrics,
    NewerFormatError,
    RunDirectory,
    RunError,
    RunLock,
    load_newest,
    next_run_path,
    run_directory,
    save,
)

SETTINGS = {"problem": "digits", "sigma": 0.01, "temperature": float("inf")}
ENVIRONMENT = {"python": "3.11"}


def create(path, **options):
    return RunDirectory.create(path, SETTINGS, ENVIRONMENT, **options)


def test_create_and_open(tmp_path):
    path = tmp_path / "deep" / "run"
    with create(path) as run:
        assert run.settings == SETTINGS
        assert sorted(entry.name for entry in path.iterdir()) == [
            "accepted.log", "checkpoints", "environment.json", "metrics.jsonl", "run.lock", "settings.json",
        ]  # fmt: skip
        with pytest.raises(RunError, match="is in use by process"):
            RunDirectory.resume(path)
        assert RunDirectory.open(path).settings == SETTINGS  # a reader needs no lock
    again = RunDirectory.resume(str(path))
    assert again.environment == ENVIRONMENT
    assert again.checkpoints_path == path / "checkpoints"
    again.close()
    json.loads((path / "settings.json").read_text(), parse_constant=pytest.fail)


def test_an_existing_run_is_refused(tmp_path):
    create(tmp_path / "run").close()
    before = (tmp_path / "run" / "settings.json").read_bytes()
    words = r"go on with `gradless resume .*run` \(in Python gl.resume\), or give --overwrite \(overwrite=True\)$"
    with pytest.raises(RunError, match=rf"already holds a run: {words}"):
        RunDirectory.create(tmp_path / "run", {"other": 1}, {})
    RunDirectory.create(tmp_path / "of a Python loss", {}, {}).close()
    with pytest.raises(RunError, match=r"already holds a run: go on with gl\.resume in Python, or give --overwrite"):
        RunDirectory.create(tmp_path / "of a Python loss", {}, {})
    assert (tmp_path / "run" / "settings.json").read_bytes() == before


def test_a_run_begun_by_another_process_meanwhile_is_not_overwritten(tmp_path, monkeypatch):
    def lock_too_late(path):
        monkeypatch.undo()
        RunDirectory.create(tmp_path / "run", {"theirs": 1}, {}).close()
        return RunLock(path)

    monkeypatch.setattr(run_directory, "RunLock", lock_too_late)
    with pytest.raises(RunError, match="already holds a run"):
        create(tmp_path / "run")
    with RunDirectory.resume(tmp_path / "run") as run:  # nor is the lock kept
        assert run.settings == {"theirs": 1}


def test_settings_that_another_process_changed_meanwhile_are_those_gone_on_with(tmp_path, monkeypatch):
    create(tmp_path / "run").close()

    def lock_too_late(path):
        monkeypatch.undo()
        with RunDirectory.resume(tmp_path / "run") as theirs:
            theirs.update_settings({"theirs": 1})
        return RunLock(path)

    monkeypatch.setattr(run_directory, "RunLock", lock_too_late)
    with RunDirectory.resume(tmp_path / "run") as run:
        assert run.settings == {"theirs": 1}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("content", [None, "{}", "[]", "not json", '{"format": "other", "settings": {}}'])
def test_a_folder_of_the_users_is_refused_and_untouched(tmp_path, content, overwrite):
    (tmp_path / "metrics.jsonl").write_text("the user's")
    if content is not None:
        (tmp_path / "settings.json").write_text(content)
    with pytest.raises(RunError, match=r"choose another folder|restore it"):
        create(tmp_path, overwrite=overwrite)
    assert (tmp_path / "metrics.jsonl").read_text() == "the user's"
    assert not (tmp_path / "run.lock").exists()


def test_whether_a_folder_is_free_is_known_beforehand(tmp_path):
    RunDirectory.check_free(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    create(tmp_path / "run").close()
    RunDirectory.check_free(tmp_path / "run", overwrite=True)
    with pytest.raises(RunError, match="already holds a run"):
        RunDirectory.check_free(tmp_path / "run")
    with pytest.raises(RunError, match=r"settings.json: Not a directory"):
        RunDirectory.check_free(tmp_path / "run" / "settings.json")


def test_overwrite_deletes_what_is_ours_and_keeps_the_rest(tmp_path):
    path = tmp_path / "run"
    run = create(path)
    Metrics(run.metrics_path).append([{"step": 1}])
    for step in (1, 2):
        save(run.checkpoints_path, step, {"x": np.zeros(1)}, {})
    (run.checkpoints_path / "2.safetensors").rename(run.checkpoints_path / "2.safetensors.damaged")
    (path / ".metrics.jsonl.77.gradless-tmp").write_text("left by a kill")
    drawn = [path / name for name in ("training.csv", "training.svg", "sweep.csv", "sweep.png", "sweep-n_s.png")]
    mine = [path / "notes.txt", path / "sweep-notes.csv", path / "checkpoints" / "best.safetensors"]
    mine.append(path / "figures" / "a.svg")
    (path / "figures").mkdir()
    for entry in (*mine, *drawn):
        entry.write_text("the user's")
    with pytest.raises(RunError, match="is in use"):
        create(path, overwrite=True)
    run.close()
    with RunDirectory.create(path, {"new": 1}, {}, overwrite=True) as new:
        assert new.settings == {"new": 1}
        assert all(entry.read_text() == "the user's" for entry in mine)
        assert list(Metrics(new.metrics_path).rows()) == []
        assert [entry.name for entry in new.checkpoints_path.iterdir()] == ["best.safetensors"]
        assert not (path / ".metrics.jsonl.77.gradless-tmp").exists()
        assert not any(entry.exists() for entry in drawn)


@pytest.mark.parametrize("name", ["metrics.jsonl", "checkpoints", "settings.json", "accepted.log"])
def test_links_in_a_run_are_refused(tmp_path, name):
    path = tmp_path / "run"
    create(path).close()
    elsewhere = tmp_path / "elsewhere"
    (path / name).rename(elsewhere)
    (path / name).symlink_to(elsewhere)
    for begin in (RunDirectory.open, RunDirectory.resume, lambda path: create(path, overwrite=True)):
        with pytest.raises(RunError, match="is a link"):
            begin(path)
    assert elsewhere.exists()
    assert (path / "environment.json").exists()


def test_what_is_no_run_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path, words in [
        (tmp_path / "absent", "is not a folder"),
        (tmp_path, "holds no gradless run"),
        (tmp_path / "file", "not a folder"),
    ]:
        with pytest.raises(RunError, match=words):
            RunDirectory.open(path)
    with pytest.raises(RunError, match=r"cannot make .*file"):
        create(tmp_path / "file")
    create(tmp_path / "run").close()
    (tmp_path / "run" / "metrics.jsonl").unlink()
    with pytest.raises(RunError, match=r"lacks metrics\.jsonl: .* start again with --overwrite \(overwrite=True\)$"):
        RunDirectory.resume(tmp_path / "run")


def test_a_newer_run_format_is_refused(tmp_path):
    create(tmp_path / "run").close()
    settings = tmp_path / "run" / "settings.json"
    settings.write_text(settings.read_text().replace('"format_version": 1', '"format_version": 2'))
    for begin in (RunDirectory.open, RunDirectory.resume, lambda path: create(path, overwrite=True)):
        with pytest.raises(NewerFormatError, match="has run format 2"):
            begin(tmp_path / "run")


def test_resume_clears_temporaries(tmp_path):
    create(tmp_path / "run").close()
    left = [
        tmp_path / "run" / ".accepted.log.5.gradless-tmp",
        tmp_path / "run" / "checkpoints" / ".3.safetensors.5.gradless-tmp",
    ]
    for path in left:
        path.write_text("")
    RunDirectory.resume(tmp_path / "run").close()
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize("cut", [False, True])
def test_a_fault_at_every_call_of_create(tmp_path, faults, cut):
    """A failed creation is a RunError, never hinders the next one, and holds no lock."""
    for k in range(1, 200):
        path = tmp_path / f"run{k}"
        faults.arm(k, None if cut else errno.ENOSPC, forever=True)
        with contextlib.suppress(RunError, faults.PowerCut):
            create(path).close()
        is_over = faults.count < k
        faults.clear()
        if is_over:
            assert k > 20
            return
        create(path, overwrite=True).close()
        assert RunDirectory.open(path).settings == SETTINGS
    pytest.fail("creation never ran out of calls")


def test_a_fault_at_every_call_of_overwrite_keeps_it_recognisable(tmp_path, faults):
    for k in range(1, 200):
        path = tmp_path / f"run{k}"
        with create(path) as run:
            save(run.checkpoints_path, 1, {"x": np.zeros(1)}, {})
        (path / "mine").write_text("the user's")
        faults.arm(k, errno.EIO)
        with contextlib.suppress(RunError):
            create(path, overwrite=True).close()
        is_over = faults.count < k
        faults.clear()
        create(path, overwrite=True).close()
        assert (path / "mine").read_text() == "the user's"
        with pytest.raises(RunError, match="no checkpoint"):
            load_newest(path / "checkpoints", pytest.fail)
        if is_over:
            assert k > 20
            return
    pytest.fail("overwriting never ran out of calls")


def test_names_of_runs(tmp_path):
    day = datetime.date(2025, 3, 4)
    assert next_run_path(tmp_path / "runs", "digits", day) == tmp_path / "runs" / "digits-2025-03-04-1"
    (tmp_path / "runs" / "digits-2025-03-04-9").mkdir()
    (tmp_path / "runs" / "digits-2025-03-04-old").mkdir()
    assert next_run_path(tmp_path / "runs", "digits", day).name == "digits-2025-03-04-10"
    assert next_run_path(tmp_path / "runs", "my.module:a/../b", day).name == "my.module-a-..-b-2025-03-04-1"
    assert next_run_path(tmp_path / "runs", "../..", day).name == "run-2025-03-04-1"
    with create(next_run_path(tmp_path / "runs", "digits", day)) as run:
        assert run.path.name == "digits-2025-03-04-11"


def test_names_of_runs_are_never_given_twice(tmp_path):
    found = []
    start = threading.Barrier(8)

    def take():
        start.wait()
        found.extend(next_run_path(tmp_path, "x", datetime.date(2025, 1, 1)) for _ in range(5))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 40
