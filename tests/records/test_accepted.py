"""accepted.log: exact round trips, its size, cutting back to any step, torn and hostile bytes."""

import contextlib
import errno
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradless.records import AcceptedLog, RunError
from gradless.records.accepted_blocks import FILE_HEADER, encode, read_blocks


def make_log(folder, flags, chunk=1000, sync_every=3):
    """A log of flags (chains, steps), written chunk by chunk as an engine would."""
    path = folder / "accepted.log"
    AcceptedLog.create(path)
    log = AcceptedLog(path, len(flags))
    for index, start in enumerate(range(0, flags.shape[1], chunk)):
        for chain, row in enumerate(flags):
            log.add(chain, start, row[start : start + chunk])
        log.flush()
        if index % sync_every == 0:
            log.sync()
    log.sync()
    return log


def check(log, flags):
    """The log holds exactly these flags."""
    again = AcceptedLog(log.path, len(flags))
    for chain, row in enumerate(flags):
        np.testing.assert_array_equal(again.read(chain, flags.shape[1]), np.flatnonzero(row))
        parts = [block.flags for block in read_blocks(log.path) if block.chain == chain]
        np.testing.assert_array_equal(np.concatenate([np.empty(0, bool), *parts]), row)
    for row, found in zip(flags, again.read_all(flags.shape[1]), strict=True):
        np.testing.assert_array_equal(found, np.flatnonzero(row))
    assert all(end == flags.shape[1] for end in again.cover().ends.values())


@pytest.mark.parametrize("rate", [0, 1e-5, 0.001, 0.01, 0.1, 0.5, 0.9, 1])
@pytest.mark.parametrize("chunk", [1, 100, 10_007])
def test_round_trip(tmp_path, faults, rate, chunk):
    flags = np.random.default_rng(1).random((2, 30_000 if chunk > 1 else 3000)) < rate
    check(make_log(tmp_path, flags, chunk, 10 if chunk == 1 else 3), flags)


def test_a_block_by_hand():
    """Steps 70 .. 199, accepted 71, 72 and 199: gaps 1, 0 and 126; then a gap of 300 = 2 * 128 + 44."""
    flags = np.zeros(130, dtype=bool)
    flags[[1, 2, 129]] = True
    body = struct.pack("<BIQII", 0, 5, 70, 130, 3) + bytes([1, 0, 126])
    assert encode(5, 70, flags) == struct.pack("<I", zlib.crc32(body)) + body
    far = np.zeros(301, dtype=bool)
    far[300] = True
    assert encode(0, 0, far)[-2:] == bytes([44 | 128, 2])
    dense = np.array([True, False, True, True, True, True, True, True, False, True])
    assert encode(0, 0, dense)[-2:] == bytes([0b11111101, 0b10])


@given(st.lists(st.booleans(), max_size=300), st.integers(0, 20_000), st.booleans())
@settings(max_examples=300, derandomize=True, deadline=None)
def test_any_block_round_trips(tmp_path_factory, head, num_rejected, last):
    flags = np.array([*head, *[False] * num_rejected, last])
    path = tmp_path_factory.getbasetemp() / "block.log"
    path.write_bytes(FILE_HEADER + encode(3, 17, flags))
    (block,) = read_blocks(path)
    assert (block.chain, block.first_step, block.end) == (3, 17, path.stat().st_size)
    np.testing.assert_array_equal(block.flags, flags)


@pytest.mark.parametrize(("rate", "limit"), [(0.1, 110_000), (0.5, 130_000), (0.01, 20_000), (1, 130_000), (0, 5_000)])
def test_size_of_a_million_steps(tmp_path, rate, limit):
    """At 10% about a byte per accepted step, at 50% a bit per step, and some 25 bytes for every 8192 steps."""
    flags = np.random.default_rng(2).random((1, 1_000_000)) < rate
    log = make_log(tmp_path, flags, chunk=1000, sync_every=1000)
    assert log.path.stat().st_size < limit
    np.testing.assert_array_equal(log.read(0, 1_000_000), np.flatnonzero(flags[0]))


def test_all_chains_are_read_up_to_a_step_in_one_pass(tmp_path, faults, monkeypatch):
    flags = np.random.default_rng(2).random((5, 300)) < 0.3
    log = make_log(tmp_path, flags, chunk=100, sync_every=1)
    passes = []
    monkeypatch.setattr("gradless.records.accepted.read_blocks", lambda path: passes.append(path) or read_blocks(path))
    for found, row in zip(log.read_all(170), flags, strict=True):
        np.testing.assert_array_equal(found, np.flatnonzero(row[:170]))
    assert len(passes) == 1
    with pytest.raises(RunError, match="is whole only up to step 300 of chain 0, not 301"):
        log.read_all(301)
    with pytest.raises(RunError, match="is whole only up to step 0 of chain 5, not 170"):
        AcceptedLog(log.path, 6).read_all(170)
    assert len(AcceptedLog(log.path, 2).read_all(300)) == 2  # and nothing of chains that the run does not have


def test_a_slow_run_synced_every_thirty_steps_stays_under_a_megabyte(tmp_path, faults):
    flags = np.random.default_rng(3).random((1, 30_000)) < 0.1
    log = make_log(tmp_path, flags, chunk=30, sync_every=1)
    assert log.path.stat().st_size * (1_000_000 / 30_000) < 1_000_000


@pytest.mark.parametrize("steps", [0, 1, 999, 1000, 2999, 3000, 3001, 4999, 5000])
def test_truncate_to_any_step_and_go_on(tmp_path, steps):
    flags = np.random.default_rng(4).random((3, 5000)) < 0.3
    log = make_log(tmp_path, flags)
    log.truncate(steps)
    check(log, flags[:, :steps])
    for chain in range(3):
        log.add(chain, steps, flags[chain, steps:])
    log.sync()
    check(log, flags)


def test_truncate_where_blocks_end_needs_no_room_on_the_disk(tmp_path, faults):
    flags = np.random.default_rng(4).random((3, 5000)) < 0.3
    log = make_log(tmp_path, flags, chunk=1000, sync_every=1)
    faults.arm(1, errno.ENOSPC, forever=True, only={"create", "write"})
    log.truncate(2000)
    check(log, flags[:, :2000])


@pytest.mark.parametrize("k", range(1, 8))
def test_a_fault_in_a_cut_leaves_the_log_as_it_was(tmp_path, faults, k):
    flags = np.random.default_rng(4).random((2, 500)) < 0.3
    log = make_log(tmp_path, flags, chunk=100, sync_every=1)
    faults.arm(k, errno.ENOSPC, only={"create", "write", "fsync", "replace"})
    with contextlib.suppress(OSError):
        log.truncate(250)
    is_cut = faults.count < k
    faults.clear()
    check(log, flags[:, :250] if is_cut else flags)
    log.truncate(250)
    check(log, flags[:, :250])


def test_truncate_with_a_torn_end_at_every_byte(tmp_path):
    """What covers the step stays; less than that is a RunError and the file is not touched."""
    flags = np.random.default_rng(5).random((2, 60)) < 0.4
    log = make_log(tmp_path, flags, chunk=20, sync_every=1)
    whole = log.path.read_bytes()
    num_good = 0
    for size in range(len(whole)):
        log.path.write_bytes(whole[:size])
        try:
            AcceptedLog(log.path, 2).truncate(30)
        except RunError:
            assert log.path.read_bytes() == whole[:size]
        else:
            num_good += 1
            check(log, flags[:, :30])
    ends = [block.end for block in _blocks_of(tmp_path, whole)]
    assert num_good == len(whole) - ends[3]  # both chains reach step 40 with the fourth block


def _blocks_of(folder, data):
    path = folder / "whole.log"
    path.write_bytes(data)
    return list(read_blocks(path))


def test_appending_after_a_torn_end_needs_a_cut_first(tmp_path):
    flags = np.ones((1, 50), dtype=bool)
    log = make_log(tmp_path, flags, chunk=25, sync_every=1)
    log.path.write_bytes(log.path.read_bytes()[:-1])
    torn = AcceptedLog(log.path)
    assert torn.cover().is_damaged
    with pytest.raises(RunError, match="torn end"):
        torn.add(0, 25, flags[0])
    torn.truncate(25)
    torn.add(0, 25, flags[0, 25:])
    torn.sync()
    check(torn, flags)


def test_wrong_calls_are_refused(tmp_path):
    log = make_log(tmp_path, np.zeros((2, 10), dtype=bool))
    for chain, first, flags, words in [
        (2, 0, np.zeros(1, bool), "chain must be from 0 to 1, got 2"),
        (0, 9, np.zeros(1, bool), "first_step of chain 0 must be 10, got 9"),
        (0, 11, np.zeros(1, bool), "first_step of chain 0 must be 10, got 11"),
        (0, 10, np.zeros(1, int), "bool"),
        (0, 10, np.zeros((1, 1), bool), "one row"),
    ]:
        with pytest.raises(ValueError, match=words):
            log.add(chain, first, flags)
    check(log, np.zeros((2, 10), dtype=bool))


def test_a_gap_is_known_as_a_gap(tmp_path):
    log = make_log(tmp_path, np.ones((2, 10), dtype=bool))
    for chain in (0, 1):
        log.add(chain, 10, np.ones(40, dtype=bool))
    log.drop_waiting()
    log.sync()
    log.truncate(50)  # a checkpoint may be taken at the very step where the log goes on
    for chain in (0, 1):
        log.add(chain, 50, np.ones(10, dtype=bool))
    log.sync()
    log.truncate(55)
    assert log.cover().complete == {0: 10, 1: 10}
    assert log.cover().ends == {0: 55, 1: 55}
    with pytest.raises(RunError, match="whole only up to step 10 of chain 0, not 11"):
        log.read(0, 11)
    np.testing.assert_array_equal(log.read(0), [*range(10), *range(50, 55)])


def test_the_end_of_a_gap_survives_a_cut_at_that_step(tmp_path):
    path = tmp_path / "accepted.log"
    path.write_bytes(FILE_HEADER + encode(0, 0, np.ones(60, bool)) + encode(1, 50, np.empty(0, bool)))
    AcceptedLog(path, 2).truncate(50)
    assert AcceptedLog(path, 2).cover().ends == {0: 50, 1: 50}
    AcceptedLog(path, 2).truncate(50)


def _block(coding, num_steps, payload, chain=0, first=0, length=None):
    body = struct.pack("<BIQII", coding, chain, first, num_steps, len(payload) if length is None else length) + payload
    return struct.pack("<I", zlib.crc32(body)) + body


HOSTILE = {
    "absurd steps": _block(0, 1 << 31, b""),
    "absurd length": _block(1, 65536, b"", length=1 << 31),
    "bitmap too short": _block(1, 65536, b"\1"),
    "unknown coding": _block(2, 8, b"\1"),
    "gap past the end": _block(0, 60, bytes([59, 0])),
    "gap of eight bytes": _block(0, 100, b"\xff" * 8 + b"\0"),
    "gap without an end": _block(0, 100, b"\x80"),
    "bits past the end": _block(1, 4, b"\xff"),
    "chain too great": _block(1, 8, b"\1", chain=1 << 31),
    "step too great": _block(1, 8, b"\1", first=(1 << 64) - 1),
    "overlap": _block(1, 8, b"\1", first=4),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_blocks_end_the_log(tmp_path, name):
    """Their CRC is right; what they say is not."""
    path = tmp_path / "accepted.log"
    good = encode(0, 0, np.array([True] * 8))
    path.write_bytes(FILE_HEADER + good + HOSTILE[name] + encode(0, 8, np.array([True])))
    tracemalloc.start()
    np.testing.assert_array_equal(AcceptedLog(path).read(0), range(8))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
    assert AcceptedLog(path).cover().is_damaged
    AcceptedLog(path).truncate(8)
    assert path.read_bytes() == FILE_HEADER + good


@pytest.fixture(scope="module")
def good_log(tmp_path_factory):
    flags = np.random.default_rng(6).random((2, 400)) < np.array([[0.05], [0.5]])
    return flags, make_log(tmp_path_factory.mktemp("good"), flags, chunk=100, sync_every=1).path.read_bytes()


@given(st.data())
@settings(max_examples=400, derandomize=True, deadline=None)
def test_fuzz_bit_flips_and_truncation(tmp_path_factory, good_log, data):
    """Whatever the bytes, reading gives a clean RunError or a true beginning of the log."""
    flags, good_bytes = good_log
    folder = tmp_path_factory.getbasetemp()
    raw = bytearray(good_bytes)
    for position in data.draw(st.lists(st.integers(0, len(raw) * 8 - 1), max_size=6)):
        raw[position // 8] ^= 1 << position % 8
    size = data.draw(st.one_of(st.just(len(raw)), st.integers(0, len(raw))))
    (folder / "accepted.log").write_bytes(raw[:size] + data.draw(st.binary(max_size=40)))
    log = AcceptedLog(folder / "accepted.log", 2)
    try:
        cover = log.cover()
    except RunError:
        return
    for chain in (0, 1):
        end = cover.ends.get(chain, 0)
        np.testing.assert_array_equal(log.read(chain), np.flatnonzero(flags[chain, :end]))
    log.truncate(min(cover.ends.get(0, 0), cover.ends.get(1, 0)))
    assert not log.cover().is_damaged
