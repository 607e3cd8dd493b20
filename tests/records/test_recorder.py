"""The recorder on a disk that fails: nothing durable is lost, and what a checkpoint covers is always complete."""

import errno
import os
import shutil
import subprocess

import numpy as np
import pytest

from gradless.records import AcceptedLog, Metrics, Recorder, RunDirectory, RunError, load_newest

CHUNK = 50
NUM_CHUNKS = 8
FLAGS = np.random.default_rng(8).random((2, CHUNK * NUM_CHUNKS)) < 0.3


def rows(chunk):
    return [{"step": CHUNK * chunk + 25, "loss": chunk / 3}, {"step": CHUNK * (chunk + 1), "loss": chunk / 7}]


def begin(path, reports, **options):
    run = RunDirectory.create(path, {"problem": "digits"}, {})
    return Recorder(run, 0, 2, reports.append, retry_seconds=0, **options)


def record(recorder, chunk):
    """One chunk of a run, with a checkpoint after every second one; True if a checkpoint was published."""
    recorder.accepted(CHUNK * chunk, FLAGS[:, CHUNK * chunk : CHUNK * (chunk + 1)])
    recorder.metrics(rows(chunk))
    if chunk % 2 == 1 or recorder.wants_checkpoint:
        return checkpoint(recorder, CHUNK * (chunk + 1))
    return False


def checkpoint(recorder, step):
    return recorder.checkpoint(step, {"x": np.full(3, step)}, {"step": step})


def check_resume(path, at_least):
    """Resumes as an engine would and finds everything up to the newest checkpoint, and nothing after it."""
    with RunDirectory.resume(path) as run:
        found = load_newest(run.checkpoints_path, pytest.fail)
        assert found.step >= at_least
        np.testing.assert_array_equal(found.tensors["x"], np.full(3, found.step))
        Recorder(run, found.step, 2, pytest.fail)
        expected = [row for chunk in range(NUM_CHUNKS) for row in rows(chunk) if row["step"] <= found.step]
        assert list(Metrics(run.metrics_path).rows()) == expected
        log = AcceptedLog(run.accepted_path, 2)
        for chain in (0, 1):
            np.testing.assert_array_equal(log.read(chain, found.step), np.flatnonzero(FLAGS[chain, : found.step]))
        assert log.cover().ends == {0: found.step, 1: found.step}


def test_without_trouble(tmp_path):
    reports = []
    recorder = begin(tmp_path / "run", reports)
    assert [record(recorder, chunk) for chunk in range(NUM_CHUNKS)] == [False, True] * 4
    assert recorder.close()
    assert reports == []
    check_resume(tmp_path / "run", CHUNK * NUM_CHUNKS)


def test_records_are_durable_before_their_checkpoint(tmp_path, faults):
    recorder = begin(tmp_path / "run", [])
    recorder.metrics(rows(0))
    recorder.accepted(0, FLAGS[:, :CHUNK])
    faults.clear()
    assert checkpoint(recorder, CHUNK)
    publish = faults.log.index("replace")
    assert faults.log[:publish].count("fsync") == 3  # metrics, log, the checkpoint's own temporary file
    recorder.close()


def calls_of_a_run(path, faults):
    recorder = begin(path, [])
    faults.clear()
    for chunk in range(NUM_CHUNKS):
        record(recorder, chunk)
    assert recorder.close()
    return faults.count


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_one_fault_at_every_call_loses_nothing(tmp_path, faults, error):
    num_calls = calls_of_a_run(tmp_path / "clean", faults)
    assert num_calls > 80
    for k in range(1, num_calls):
        path = tmp_path / str(k)
        reports = []
        recorder = begin(path, reports)
        faults.arm(k, error)
        for chunk in range(NUM_CHUNKS):
            record(recorder, chunk)
        while recorder.wants_checkpoint:  # a fault in the very last checkpoint: the engine tries once more
            checkpoint(recorder, CHUNK * NUM_CHUNKS)
        assert recorder.close()
        failed = faults.log[k - 1]
        # A prune, a temporary file or the lock's note may fail in silence; all else is told, with its end.
        assert len(reports) == 2 or (not reports and failed in {"unlink", "truncate", "close"}), (k, failed, reports)
        faults.clear()
        check_resume(path, CHUNK * NUM_CHUNKS)


@pytest.mark.parametrize("error", [errno.EROFS, None])
def test_a_disk_that_stays_broken_keeps_every_published_checkpoint(tmp_path, faults, error):
    """error None: a power cut, which also takes back all that no fsync covers."""
    num_calls = calls_of_a_run(tmp_path / "clean", faults)
    for k in range(1, num_calls):
        path = tmp_path / str(k)
        reports = []
        recorder = begin(path, reports)
        published = CHUNK * 2 * checkpoint_first(recorder)
        faults.arm(k, error, forever=True)
        try:
            for chunk in range(2, NUM_CHUNKS):
                if record(recorder, chunk):
                    published = CHUNK * (chunk + 1)
            assert len(reports) <= 1
            if published < CHUNK * NUM_CHUNKS:
                assert not recorder.close()
            else:
                recorder.close()
        except faults.PowerCut:
            faults.lose_power(path)
            recorder._run.close()
        faults.clear()
        check_resume(path, published)


def checkpoint_first(recorder):
    """Two chunks and their checkpoint before any fault, so that there is something to lose."""
    return record(recorder, 0) or record(recorder, 1)


def test_a_deleted_folder_is_told_once_and_records_wait_for_its_return(tmp_path):
    reports = []
    path = tmp_path / "run"
    recorder = begin(path, reports)
    record(recorder, 0)
    record(recorder, 1)
    path.rename(tmp_path / "away")
    for chunk in (2, 3, 4):
        record(recorder, chunk)
    assert not path.exists()  # a vanished folder is not silently begun anew
    assert len(reports) == 1
    assert "No such file or directory" in reports[0]
    (tmp_path / "away").rename(path)
    for chunk in (5, 6, 7):
        record(recorder, chunk)
    assert len(reports) == 2
    assert "works again" in reports[1]
    assert recorder.close()
    check_resume(path, CHUNK * NUM_CHUNKS)


def test_a_folder_gone_for_good_is_no_crash(tmp_path):
    reports = []
    recorder = begin(tmp_path / "run", reports)
    shutil.rmtree(tmp_path / "run")
    for chunk in range(NUM_CHUNKS):
        assert not record(recorder, chunk)
    assert not recorder.close()
    assert "could not be written" in reports[-1]
    assert recorder.trouble == "No such file or directory"


def test_memory_is_bounded_and_what_is_dropped_is_said(tmp_path, faults):
    reports = []
    path = tmp_path / "run"
    recorder = begin(path, reports, memory_limit=20_000)
    record(recorder, 0)
    record(recorder, 1)
    faults.arm(1, errno.ENOSPC, forever=True)
    for step in range(100, 1100):
        recorder.metrics([{"step": step}])
        assert recorder._metrics.waiting_bytes + recorder._log.waiting_bytes <= 20_000
    assert sum("every second one" in report for report in reports) >= 2
    rng = np.random.default_rng(9)
    for step in range(100, 100_100, 1000):
        recorder.accepted(step, rng.random((2, 1000)) < 0.5)
        assert recorder._metrics.waiting_bytes + recorder._log.waiting_bytes <= 20_000
    assert any("the latest steps of accepted.log" in report for report in reports)
    faults.clear()
    assert checkpoint(recorder, 100_100)
    assert recorder.close()
    with RunDirectory.resume(path) as run:
        steps = [row["step"] for row in Metrics(run.metrics_path).rows()]
        assert steps[:4] == [25, 50, 75, 100]
        assert steps == sorted(steps)
        assert steps[-1] == 1099
        Recorder(run, 100_100, 2, pytest.fail)  # resume is not affected
        log = AcceptedLog(run.accepted_path, 2)
        np.testing.assert_array_equal(log.read(0, 100), np.flatnonzero(FLAGS[0, :100]))
        with pytest.raises(RunError, match="whole only up to step 100 of chain 0"):
            log.read(0, 100_100)


def test_a_checkpoint_right_after_a_drop_can_be_resumed(tmp_path, faults):
    reports = []
    recorder = begin(tmp_path / "run", reports, memory_limit=20_000)
    faults.arm(1, errno.ENOSPC, forever=True)
    recorder.metrics([{"step": 0}])
    recorder.accepted(0, np.ones((2, 400_000), dtype=bool))
    assert "the latest steps of accepted.log" in reports[-1]
    faults.clear()
    assert checkpoint(recorder, 400_000)
    assert recorder.close()
    with RunDirectory.resume(tmp_path / "run") as run:
        Recorder(run, 400_000, 2, pytest.fail)


def test_a_log_that_does_not_reach_the_checkpoint(tmp_path):
    path = tmp_path / "run"
    recorder = begin(path, [])
    for chunk in range(4):
        record(recorder, chunk)
    recorder.close()
    raw = bytearray((path / "accepted.log").read_bytes())
    raw[60] ^= 1
    (path / "accepted.log").write_bytes(raw)
    with RunDirectory.resume(path) as run, pytest.raises(RunError, match="whole only up to step"):
        Recorder(run, 200, 2, pytest.fail)
    assert (path / "accepted.log").read_bytes() == raw


def test_wrong_flags_are_refused(tmp_path):
    recorder = begin(tmp_path / "run", [])
    with pytest.raises(ValueError, match="2 rows, one per chain"):
        recorder.accepted(0, FLAGS[0])
    recorder.close()


def fill(path):
    """Writes until the disk is full."""
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def test_a_disk_that_is_really_full(tmp_path):
    """A tmpfs of 256 kB where mounting is allowed (the injected faults above are the same test where it is not)."""
    mount = tmp_path / "small"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mount)], capture_output=True)
    if made.returncode:
        pytest.skip("mounting is not permitted here")
    try:
        reports = []
        recorder = begin(mount / "run", reports)
        record(recorder, 0)
        record(recorder, 1)
        filler = mount / "filler"
        fill(filler)
        for chunk in range(2, 6):
            record(recorder, chunk)
        recorder.metrics([{"step": 300, "long": "x" * 20_000}])
        assert len(reports) == 1
        assert "No space left on device" in reports[0]
        assert load_newest(mount / "run" / "checkpoints", pytest.fail, set_aside=False).step >= 100
        filler.unlink()
        for chunk in range(6, NUM_CHUNKS):
            record(recorder, chunk)
        assert "works again" in reports[1]
        assert recorder.close()
        found = list(Metrics(mount / "run" / "metrics.jsonl").rows())
        assert [row for row in found if "long" not in row] == [
            row for chunk in range(NUM_CHUNKS) for row in rows(chunk)
        ]
        assert len(found) == 2 * NUM_CHUNKS + 1
    finally:
        subprocess.run(["umount", str(mount)], check=True)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the administrator may write anywhere")
def test_a_folder_made_read_only(tmp_path):
    reports = []
    recorder = begin(tmp_path / "run", reports)
    record(recorder, 0)
    (tmp_path / "run" / "checkpoints").chmod(0o500)
    assert not record(recorder, 1)
    (tmp_path / "run" / "checkpoints").chmod(0o700)
    assert record(recorder, 2)
    assert recorder.close()
    check_resume(tmp_path / "run", 150)
