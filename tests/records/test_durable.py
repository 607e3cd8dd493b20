"""Whole or absent: a file under write_atomic is the old one or the new one at every fault; appends lose nothing."""

import ast
import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from gradless.records import disk, durable
from gradless.records.append_file import AppendFile

ERRORS = [errno.ENOSPC, errno.EIO, errno.EROFS]


def test_order_of_an_atomic_write(tmp_path, faults):
    durable.write_atomic(tmp_path / "a", [b"one", memoryview(b"two")])
    assert (tmp_path / "a").read_bytes() == b"onetwo"
    assert faults.log == ["create", "write", "write", "fsync", "close", "replace", "fsync_folder"]


@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("k", range(1, 7))
def test_atomic_write_with_a_fault_at_every_call(tmp_path, faults, k, error, forever):
    path = tmp_path / "a"
    durable.write_atomic(path, b"old")
    faults.arm(k, error, forever)
    with pytest.raises(OSError, match=str(error)):
        durable.write_atomic(path, b"new contents")
    # Up to the rename, the fifth call, the old file stands; the sixth only makes the new one durable.
    assert path.read_bytes() == (b"new contents" if k == 6 else b"old")
    if not forever:
        assert [entry.name for entry in tmp_path.iterdir()] == ["a"]
    faults.clear()
    durable.write_atomic(path, b"later")
    assert path.read_bytes() == b"later"
    assert durable.temporaries(tmp_path) == []


@pytest.mark.parametrize("k", range(1, 7))
def test_atomic_write_with_a_power_cut_at_every_call(tmp_path, faults, k):
    path = tmp_path / "a"
    durable.write_atomic(path, b"old")
    faults.arm(k, None)
    with pytest.raises(faults.PowerCut):
        durable.write_atomic(path, b"new contents")
    faults.lose_power(tmp_path)
    assert path.read_bytes() == b"old"  # the last call, the fsync of the folder, is what makes it new


def test_threads_that_write_one_file_do_not_meet(tmp_path, monkeypatch):
    path, both_are_open, create = tmp_path / "a", Barrier(2), disk.create

    def create_together(temporary):
        fd = create(temporary)
        both_are_open.wait(10)
        return fd

    monkeypatch.setattr(disk, "create", create_together)
    texts = [b"one" * 1000, b"another" * 1000]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda text: durable.write_atomic(path, text), texts))
    assert path.read_bytes() in texts
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_what_a_killed_write_leaves_is_known_again(tmp_path, monkeypatch):
    def die(*_):
        raise OSError("dead")

    for name in ("replace", "unlink"):
        monkeypatch.setattr(disk, name, die)
    with pytest.raises(OSError, match="dead"):
        durable.write_atomic(tmp_path / "a", b"text")
    (tmp_path / "a.gradless-tmp").write_text("of another kind")
    (left,) = [entry for entry in tmp_path.iterdir() if entry.name.startswith(".a.")]
    assert durable.temporaries(tmp_path) == [left]


def test_set_aside_never_replaces(tmp_path):
    for text in ("first", "second", "third"):
        (tmp_path / "a").write_text(text)
        durable.set_aside(tmp_path / "a")
    names = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert names == {"a.damaged": "first", "a.damaged-2": "second", "a.damaged-3": "third"}


@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("k", range(1, 13))
def test_appends_are_written_again_after_any_fault(tmp_path, faults, k, forever):
    path = tmp_path / "a"
    path.write_bytes(b"0 ")
    file = AppendFile(path, 2)
    faults.arm(k, errno.EIO, forever)
    failed = 0
    for word in (b"one ", b"two ", b"three ", b"four "):
        file.add(word)
        try:
            file.sync() if word == b"two " else file.flush()
        except OSError:
            failed += 1
        assert path.read_bytes().startswith(b"0 ")
    assert failed == 1 if not forever else failed >= 1
    faults.clear()
    file.sync()
    assert path.read_bytes() == b"0 one two three four "
    assert file.waiting_bytes == 0


def test_appends_to_a_file_changed_by_others_are_refused_until_it_is_back(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"0123")
    file = AppendFile(path, 4)
    file.add(b"45")
    for other in (b"01", b"0123+"):
        path.write_bytes(other)
        with pytest.raises(OSError, match="changed by another program"):
            file.flush()
        assert path.read_bytes() == other
    path.unlink()
    with pytest.raises(FileNotFoundError):
        file.flush()
    assert not path.exists()
    path.write_bytes(b"0123")
    file.sync()
    assert path.read_bytes() == b"012345"


def test_long_waiting_bytes_are_synced_on_the_way(tmp_path, faults):
    path = tmp_path / "a"
    path.write_bytes(b"")
    file = AppendFile(path, 0)
    for _ in range(40):
        file.add(b"x" * 100_000)
    file.flush()
    assert path.stat().st_size == 4_000_000
    assert file.waiting_bytes < 1_100_000
    assert faults.log.count("fsync") >= 1


def test_only_disk_changes_the_disk():
    """Every other file of the package leaves opening for write, renaming and deleting to disk.py."""
    folder = Path(disk.__file__).parent
    forbidden = {
        "rename",
        "replace",
        "unlink",
        "mkdir",
        "rmdir",
        "remove",
        "write_bytes",
        "write_text",
        "touch",
        "fsync",
    }
    for path in folder.glob("*.py"):
        if path.name == "disk.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = ast.unparse(node.func.value)
                is_string = node.func.attr == "replace" and len(node.args) == 3
                assert node.func.attr not in forbidden or owner == "disk" or is_string, f"{path.name}:{node.lineno}"
                assert owner != "os" or node.func.attr in {"fstat", "getpid", "kill", "path.lexists"}, path.name
            assert not (isinstance(node, ast.Import | ast.ImportFrom) and "jax" in ast.unparse(node)), path.name
