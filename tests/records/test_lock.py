"""The lock between two real processes, and after a kill -9."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap

import pytest

from gradless.records import RunError, RunLock, lock

HOLDER = """
    import sys, time
    from pathlib import Path
    from gradless.records import RunLock
    lock = RunLock(Path(sys.argv[1]))
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), str(tmp_path / "run.lock")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_process_is_refused_and_the_holder_named(tmp_path, holder):
    words = rf"is in use by process {holder.pid} on {socket.gethostname()} since 20\d\d-.*: wait for it or stop it"
    with pytest.raises(RunError, match=words):
        RunLock(tmp_path / "run.lock")


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert lock.read_holder(tmp_path / "run.lock")["pid"] == holder.pid  # its note is still there
    ours = RunLock(tmp_path / "run.lock")
    assert lock.read_holder(tmp_path / "run.lock")["pid"] == os.getpid()
    ours.release()


def test_a_process_that_has_the_number_of_a_killed_one_does_not_hold_its_run(tmp_path, holder):
    path = tmp_path / "run.lock"
    assert lock.living_holder(path)["pid"] == holder.pid
    note = json.loads(path.read_text())
    holder.kill()
    holder.wait()
    path.write_text(json.dumps(note | {"pid": os.getpid()}))
    assert lock.living_holder(path) is None


def test_the_same_process_twice_and_after_release(tmp_path):
    first = RunLock(tmp_path / "run.lock")
    with pytest.raises(RunError, match=f"by process {os.getpid()}"):
        RunLock(tmp_path / "run.lock")
    first.release()
    first.release()
    RunLock(tmp_path / "run.lock").release()


@pytest.mark.parametrize(
    "content", ["", "garbage", "[1]", '{"pid": "x"}', json.dumps({"pid": 1, "host": "far", "since": "2020"})]
)
def test_a_lock_file_copied_from_elsewhere_locks_nothing(tmp_path, content):
    (tmp_path / "run.lock").write_text(content)
    RunLock(tmp_path / "run.lock").release()


def test_a_child_of_a_dead_holder_is_told_of(tmp_path, holder):
    path = tmp_path / "run.lock"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    path.write_text(json.dumps({"pid": ended.pid, "host": socket.gethostname(), "since": "2020"}))
    with pytest.raises(RunError, match="has ended but left a child process"):
        RunLock(path)


def test_a_full_disk_only_costs_the_note(tmp_path, faults):
    faults.arm(1, errno.ENOSPC, forever=True, only={"write"})
    ours = RunLock(tmp_path / "run.lock")
    with pytest.raises(RunError, match="in use by another process"):
        RunLock(tmp_path / "run.lock")
    ours.release()
    faults.arm(1, errno.EROFS)
    with pytest.raises(RunError, match=r"cannot lock .*: Read-only file system"):
        RunLock(tmp_path / "run.lock")


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "mine").write_text("the user's")
    (tmp_path / "run.lock").symlink_to(tmp_path / "mine")
    with pytest.raises(RunError, match="cannot lock"):
        RunLock(tmp_path / "run.lock")
    assert (tmp_path / "mine").read_text() == "the user's"


def test_without_system_locks_a_living_process_is_believed(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "fcntl", None)
    path = tmp_path / "run.lock"
    first = RunLock(path)
    with pytest.raises(RunError, match="in use"):
        RunLock(path)
    first.release()
    path.write_text(json.dumps({"pid": 2**22 + 1, "host": socket.gethostname(), "since": "2020"}))
    RunLock(path).release()
