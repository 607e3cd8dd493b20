"""`--tensorboard`: the event files hold the records of metrics.jsonl, each once, however often a run is cut."""

import importlib.util
import struct
from pathlib import Path

import numpy as np
import pytest

from gradless.cli import tensorboard
from gradless.records import COLUMNS, Metrics

TRAIN = ("train", "tiny:fit", "--run", "run", "--tensorboard", "--record-every", 4, "--quiet")


def events(path):
    """Every scalar of a folder's event files, by name and step; a step that is there twice is an error.

    A file is a row of records: the length in 8 bytes, its checksum in 4, the record, the record's checksum in 4.
    """
    from tensorboardX.proto.event_pb2 import Event

    found = {}
    (file,) = Path(path).glob("events.out.tfevents.*")
    data = file.read_bytes()
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        event, data = Event.FromString(data[12 : 12 + length]), data[16 + length :]
        for value in event.summary.value:
            assert (value.tag, event.step) not in found
            found[value.tag, event.step] = value.simple_value
    return found


def grow_old():
    """Name the event file as if it were written long ago: within one second two files have the same name."""
    (file,) = Path("run/tensorboard").glob("events.out.tfevents.*")
    file.rename(file.with_name("events.out.tfevents.1500000000.elsewhere"))


def recorded(run="run", place=0):
    """What metrics.jsonl has of a chain, in the same form; event files hold float32."""
    return {
        (name, row["step"]): float(np.float32(np.atleast_1d(row[name])[place]))
        for row in Metrics(Path(run, "metrics.jsonl")).rows()
        for name in row
        if (name in ("loss", "acceptance", "sigma") or name not in COLUMNS)
        and not np.isnan(np.atleast_1d(row[name])[place])
    }


def test_the_event_file_holds_the_records(cli):
    cli(*TRAIN, "--steps", 20)
    found = events("run/tensorboard")
    assert found == recorded()
    assert {name for name, _ in found} == {"loss", "acceptance", "sigma", "error"}
    assert {step for name, step in found if name == "loss"} == {0, 1, 2, 4, 8, 12, 16, 20}


def test_chains_have_folders_of_their_own(cli):
    cli(*TRAIN, "--steps", 8, "--chains", 2)
    for place in range(2):
        assert events(f"run/tensorboard/chain-{place}") == recorded(place=place)
    assert recorded(place=0) != recorded(place=1)


def test_a_gradient_has_no_sigma_to_show(cli):
    cli(*TRAIN, "--steps", 8, "--algorithm", "gd")
    assert events("run/tensorboard") == recorded()
    assert "sigma" not in {name for name, _ in recorded()}


def test_a_resumed_run_has_each_step_once(cli):
    cli(*TRAIN, "--steps", 20)
    before = recorded()
    grow_old()
    cli("resume", "run", "--trust", "--steps", 40, "--quiet")  # no flag: the files are there
    assert events("run/tensorboard") == recorded()
    assert set(before) < set(recorded())


@pytest.mark.usefixtures("one_step_rounds")
def test_records_beyond_the_checkpoint_are_taken_back(cli):
    """As after kill -9: the last records are of steps that no checkpoint covers, and are made again."""
    cli(*TRAIN, "--steps", 20, "--checkpoint-every", "0.000001")
    grow_old()
    for step in (19, 20):
        Path(f"run/checkpoints/{step}.safetensors").unlink()
    cli("resume", "run", "--trust", "--steps", 24, "--quiet")
    found = events("run/tensorboard")
    assert found == recorded()
    assert {step for name, step in found if name == "loss"} == {0, 1, 2, 4, 8, 12, 16, 20, 24}


def test_a_run_begun_without_gets_its_whole_history(cli):
    cli("train", "tiny:fit", "--run", "run", "--steps", 20, "--quiet")
    cli("resume", "run", "--trust", "--steps", 30, "--quiet")
    assert not Path("run/tensorboard").exists()
    cli("resume", "run", "--trust", "--steps", 40, "--tensorboard", "--quiet")
    assert events("run/tensorboard") == recorded()


def test_overwriting_a_run_deletes_its_event_files_and_nothing_else(cli):
    cli(*TRAIN, "--steps", 8)
    Path("run/tensorboard/mine.txt").write_text("the user's")
    cli("train", "tiny:fit", "--run", "run", "--steps", 8, "--overwrite", "--quiet")
    assert [path.name for path in Path("run/tensorboard").iterdir()] == ["mine.txt"]


def test_a_link_is_refused(cli):
    cli(*TRAIN, "--steps", 8)
    Path("run/tensorboard").rename("elsewhere")
    Path("run/tensorboard").symlink_to("../elsewhere")
    words = cli("resume", "run", "--trust", "--steps", 12, "--quiet", code=2).stderr
    assert "run/tensorboard is a link, which a run must not contain" in words
    assert events("elsewhere")


@pytest.fixture
def without(monkeypatch):
    """As if tensorboardX were not installed."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tensorboardX" else find(name))


def test_without_the_library_one_line_says_what_to_install(refusal, without):
    assert refusal(*TRAIN) == "--tensorboard needs tensorboardX: pip install 'gradless[tensorboard]'"
    assert not Path("run").exists()


def test_without_the_library_a_run_that_has_event_files_goes_on(cli, request):
    cli(*TRAIN, "--steps", 8)
    request.getfixturevalue("without")
    words = cli("resume", "run", "--trust", "--steps", 12).output
    assert "run has event files, which need tensorboardX to go on: pip install 'gradless[tensorboard]'" in words


def test_a_disk_that_fails_does_not_stop_the_run(cli, monkeypatch):
    def fail(self, row):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensorboard.EventFiles, "_write", fail)
    words = cli("train", "tiny:fit", "--run", "run", "--tensorboard", "--steps", 8).output
    assert words.count("No space left on device; training goes on without it") == 1
    assert "8 (all steps done)" in words
