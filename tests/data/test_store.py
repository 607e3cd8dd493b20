"""Which source is asked when, what a bad one does, and that nothing half-written stays; all with made-up files."""

import gzip
import hashlib
import os

import pytest

from gradless.data.sources import File, SourceFailed
from gradless.data.store import DataUnavailable, obtain, write_whole

RAW = {"images": b"\x00\x01" * 50, "labels": b"\x07" * 10}
FILES = [File(name, len(raw), hashlib.sha256(raw).hexdigest()) for name, raw in RAW.items()]


class Fake:
    """A source that gives what it is told to and remembers what it was asked for."""

    def __init__(self, name, gives=None, error=None):
        self.name, self.gives, self.error, self.asked = name, gives or {}, error, []

    def read(self, files, scratch, progress):
        self.asked.append([file.name for file in files])
        (scratch / "rubbish").write_bytes(b"left behind")
        for file in files:
            if file.name in self.gives:
                raw = self.gives[file.name]
                progress(len(raw), file.size, self.name)
                yield file, raw
        if self.error:
            raise SourceFailed(self.error)


def listing(folder):
    return sorted(os.listdir(folder))


def test_the_first_good_source_is_the_last_one_asked(tmp_path):
    sources = [Fake("one", error="is down"), Fake("two", RAW), Fake("three", RAW)]
    seen = []
    found, report = obtain(FILES, None, tmp_path / "cache", sources, lambda *call: seen.append(call))
    assert found == RAW
    assert [source.asked for source in sources] == [[["images", "labels"]], [["images", "labels"]], []]
    assert report.source == "two"
    assert report.path == tmp_path / "cache"
    assert report.num_bytes == 110
    assert report.downloaded == ("images", "labels")
    assert report.failures[-1] == "one: is down"
    assert seen == [(100, 100, "two"), (10, 10, "two")]
    assert listing(report.path) == ["images", "labels"]
    assert (report.path / "images").read_bytes() == RAW["images"]


def test_the_cache_answers_the_second_time(tmp_path):
    obtain(FILES, None, tmp_path, [Fake("one", RAW)], None)
    asked_again = Fake("one", RAW)
    found, report = obtain(FILES, None, tmp_path, [asked_again], None)
    assert found == RAW
    assert asked_again.asked == []
    assert (report.source, report.failures, report.downloaded) == ("cache", (), ())


def test_a_wrong_checksum_names_the_source_and_goes_on_to_the_next(tmp_path):
    wrong = {"images": b"\x00\x02" * 50, "labels": RAW["labels"]}
    sources = [Fake("liar", wrong), Fake("honest", RAW)]
    found, report = obtain(FILES, None, tmp_path, sources, None)
    assert found == RAW
    assert any(line.startswith("liar: images has a wrong SHA-256") for line in report.failures)
    assert report.source == "honest"


def test_files_that_arrived_are_kept_and_only_the_rest_is_asked_for(tmp_path):
    sources = [Fake("half", {"images": RAW["images"]}, error="lost the line"), Fake("whole", RAW)]
    found, report = obtain(FILES, None, tmp_path, sources, None)
    assert found == RAW
    assert sources[1].asked == [["labels"]]
    assert report.source == "half, whole"


def test_a_damaged_cache_file_is_fetched_again(tmp_path):
    obtain(FILES, None, tmp_path, [Fake("one", RAW)], None)
    (tmp_path / "labels").write_bytes(b"\x07" * 9)
    again = Fake("one", RAW)
    found, report = obtain(FILES, None, tmp_path, [again], None)
    assert found == RAW
    assert again.asked == [["labels"]]
    assert "labels must have 10 bytes, has 9" in report.failures[0]
    assert (tmp_path / "labels").read_bytes() == RAW["labels"]


@pytest.mark.parametrize("is_gzipped", [False, True])
def test_the_users_folder_comes_first_raw_or_gzipped(tmp_path, is_gzipped):
    mine = tmp_path / "mine"
    mine.mkdir()
    for name, raw in RAW.items():
        if is_gzipped:
            (mine / f"{name}.gz").write_bytes(gzip.compress(raw))
        else:
            (mine / name).write_bytes(raw)
    source = Fake("one", RAW)
    found, report = obtain(FILES, mine, tmp_path / "cache", [source], None)
    assert found == RAW
    assert (report.source, report.path) == ("data_dir", mine)
    assert source.asked == []
    assert not (tmp_path / "cache").exists()


def test_wrong_files_of_the_users_stay_as_they_are(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    theirs = {"images": b"x" * 100, "labels.gz": gzip.compress(b"y" * 10)}
    for name, raw in theirs.items():
        (mine / name).write_bytes(raw)
    found, report = obtain(FILES, mine, tmp_path / "cache", [Fake("one", RAW)], None)
    assert found == RAW
    assert {name: (mine / name).read_bytes() for name in listing(mine)} == theirs
    told = [line for line in report.failures if line.startswith(f"data_dir {mine}: ")]
    assert len(told) == 2
    assert all("wrong SHA-256" in line for line in told)


def test_a_raw_file_that_is_wrong_does_not_hide_a_gzipped_one_that_is_right(tmp_path):
    for name, raw in RAW.items():
        (tmp_path / name).write_bytes(b"?")
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(raw))
    assert obtain(FILES, tmp_path, tmp_path / "cache", [], None)[1].source == "data_dir"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda raw: gzip.compress(raw)[:-9], "images.gz is damaged"),
        (lambda raw: b"not gzip at all", "images.gz is damaged"),
        (lambda raw: gzip.compress(raw + bytes(10**6)), "images must have 100 bytes, has more than 100"),
        (lambda raw: gzip.compress(raw[:-1]), "images must have 100 bytes, has 99"),
    ],
)
def test_truncated_and_oversized_gzip(tmp_path, make, words):
    (tmp_path / "images.gz").write_bytes(make(RAW["images"]))
    (tmp_path / "labels").write_bytes(RAW["labels"])
    with pytest.raises(DataUnavailable, match=words):
        obtain(FILES, tmp_path, tmp_path / "cache", [], None)


def test_a_gzip_bomb_is_not_unpacked(tmp_path):
    import tracemalloc

    (tmp_path / "images.gz").write_bytes(gzip.compress(bytes(50_000_000)))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    with pytest.raises(DataUnavailable):
        obtain(FILES, tmp_path, tmp_path / "cache", [], None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - before < 5_000_000


def test_a_pipe_in_the_folder_does_not_block(tmp_path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("no pipes on this system")
    os.mkfifo(tmp_path / "images")
    with pytest.raises(DataUnavailable, match="images is missing"):
        obtain(FILES, tmp_path, tmp_path / "cache", [], None)


def test_no_source_at_all_is_one_error_with_every_reason(tmp_path):
    sources = [Fake("one", error="no network"), Fake("two", error="npm is not installed")]
    with pytest.raises(DataUnavailable) as caught:
        obtain(FILES, None, tmp_path / "cache", sources, None)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert lines[0].endswith("nothing there yet")
    assert lines[1:] == ["one: no network", "two: npm is not installed"]


def test_a_cache_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataUnavailable, match="one: cannot write to the cache"):
        obtain(FILES, None, tmp_path / "file" / "cache", [Fake("one", RAW)], None)


def test_writing_is_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "images"
    write_whole(path, b"old")

    def fail(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert listing(tmp_path) == ["images"]


def test_an_interrupt_leaves_the_cache_without_parts(tmp_path):
    class Interrupted(Fake):
        def read(self, files, scratch, progress):
            (scratch / "part").write_bytes(b"half")
            raise KeyboardInterrupt
            yield

    with pytest.raises(KeyboardInterrupt):
        obtain(FILES, None, tmp_path, [Interrupted("one")], None)
    assert listing(tmp_path) == []
