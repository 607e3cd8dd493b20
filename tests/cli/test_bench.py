"""`gradless bench`, on workloads in small."""

import json

import pytest

from gradless.bench.growth import Law
from gradless.bench.roofline import Machine
from gradless.bench.workloads import tiny
from gradless.data.store import DataUnavailable


@pytest.fixture
def small(monkeypatch):
    """The same command with tiny workloads, short turns, and a machine and a memory that are given."""
    place = "gradless.cli.bench."
    monkeypatch.setattr(place + "make_workload", tiny)
    monkeypatch.setattr(place + "TURN_SECONDS", 1e-3)
    monkeypatch.setattr(place + "measure_machine", lambda: Machine(1e11, 1e10, 1e9))
    monkeypatch.setattr(place + "laws", lambda name: [Law("chains", (1, 10), lambda size: lambda steps: None)])
    monkeypatch.setattr("gradless.bench.measure.peak_megabytes", lambda make, name: 123.0)


def test_a_table_and_a_file(cli, small, tmp_path):
    words = cli("bench", "W3", "w2", "w3", "--rounds", "2", "--json", "all.json").output
    for told in ("W3  tiny W3, 2 parameters", "jax-scan", "torch-eager", "noise", "of the roofline", "peak 123 MB"):
        assert told in words
    assert "chains 1, 10" in words
    assert "of torch-eager's time" in words
    table = json.loads((tmp_path / "all.json").read_text())
    assert [one["workload"] for one in table["workloads"]] == ["W3", "W2"]
    assert table["machine"]["flops"] == 1e11
    assert table["machine"]["cores"] >= 1
    assert {"cpu", "jax", "torch", "python", "load"} <= table["machine"].keys()
    for one in table["workloads"]:
        split = one["split"]
        assert split["noise"] + split["loss"] + split["rest"] == pytest.approx(split["total"])
        assert len(one["seconds_per_step"]["gradless"]["rounds"]) == 2


def test_without_mnist_a_workload_is_left_out_in_a_line(cli, small, monkeypatch):
    def make(name):
        raise DataUnavailable("MNIST is not on this machine and could not be fetched. Tried:\n  - nothing")

    monkeypatch.setattr("gradless.cli.bench.make_workload", make)
    words = cli("bench", "W1").output
    assert words.splitlines()[-1] == "W1 left out: MNIST is not on this machine and could not be fetched. Tried:"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["W7"], "there is no workload 'W7'"),
        (["W3", "--rounds", "0"], "--rounds"),
        (["W3", "--json", "no/such/folder.json"], "no/such/folder.json"),
    ],
)
def test_wrong_use_is_told_in_a_line(refusal, small, words, told):
    assert told in refusal("bench", *words)
