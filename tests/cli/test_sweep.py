"""`gradless sweep` and `gradless compare`: many runs, one table, one picture."""

import csv
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import gradless as gl
from gradless.cli.follow import train_through
from gradless.cli.sweep import Grid
from gradless.engine.session import Session
from gradless.records import RunDirectory, list_checkpoints, load, save


def table(path):
    with Path(path).open() as file:
        return list(csv.DictReader(file))


def test_a_grid_is_logarithmic_or_a_list():
    grid = Grid()
    np.testing.assert_allclose(
        grid("1e-4:1e-1:4"), [1e-4, 1e-3, 1e-2, 1e-1], rtol=1e-12
    )  # a few roundings of geomspace
    np.testing.assert_array_equal(grid("0,0.5,1"), [0.0, 0.5, 1.0])
    np.testing.assert_array_equal(grid("3"), [3.0])


@pytest.mark.parametrize(
    "text", ["", "x", "1:2", "1:2:3:4", "0:1:3", "-1:1:3", "1:2:1", "1:2:x", "1,,2", "1:2:2.5", "1:2:99999999999"]
)
def test_a_grid_that_is_none_is_refused(refusal, text):
    told = refusal("sweep", "tiny:fit", "--sigma", text, "--run", "run")
    assert f"must be START:END:NUMBER with positive ends (a log grid), or A,B,C, got {text!r}" in told


def test_a_sweep_has_one_row_per_run_and_a_picture(cli, figures):
    words = cli("sweep", "tiny:fit", "--sigma", "1e-3:1e-1:3", "--seeds", 2, "--steps", 30, "--run", "run").output
    rows = table("run/sweep.csv")
    assert [float(row["sigma"]) for row in rows] == pytest.approx([1e-3, 1e-3, 1e-2, 1e-2, 1e-1, 1e-1])
    assert list(rows[0]) == ["chain", "sigma", "loss", "error", "acceptance"]
    assert len({row["loss"] for row in rows}) == 6
    assert Path("run/sweep.png").stat().st_size > 1000
    assert Path("run/sweep.svg").stat().st_size > 1000
    assert len([line for line in words.splitlines() if line.startswith(("0.001 ", "0.01 ", "0.1 "))]) == 3
    assert f"figure {Path('run/sweep.png')}" in words


def test_a_sweep_makes_the_same_runs_as_train(cli, figures):
    cli("sweep", "tiny:fit", "--sigma", "0.1,0.2", "--steps", 30, "--run", "sweep", "--quiet")
    cli("train", "tiny:fit", "--sigma", 0.1, "--steps", 30, "--run", "alone", "--json")
    with RunDirectory.open("alone") as stored:
        alone = [json.loads(line) for line in stored.metrics_path.read_text().splitlines()]
    assert float(table("sweep/sweep.csv")[0]["loss"]) == alone[-1]["loss"]


def test_a_sweep_whose_proposals_are_evaluated_ahead_makes_the_same_runs(cli, figures, monkeypatch):
    words, ahead = ["sweep", "tiny:fit", "--sigma", "0.1,0.2", "--steps", 30, "--quiet"], []

    def through(problem, algorithm, plan, *given):
        ahead.append(plan.speculate)
        train_through(problem, algorithm, plan, *given)

    monkeypatch.setattr("gradless.cli.sweep.train_through", through)
    cli(*words, "--run", "one")
    cli(*words, "--run", "ahead", "--speculate", 4)
    assert table("ahead/sweep.csv") == table("one/sweep.csv")
    assert ahead == [None, 4]


def test_several_grids_make_a_product_with_a_picture_each(cli, figures):
    words = cli("sweep", "tiny:fit", "--sigma", "0.1,0.2", "--epsilon", "0,0.1", "--steps", 10, "--run", "run").output
    points = [(float(row["sigma"]), float(row["epsilon"])) for row in table("run/sweep.csv")]
    assert points == [(0.1, 0.0), (0.1, 0.1), (0.2, 0.0), (0.2, 0.1)]
    for name in ("sigma", "epsilon"):
        assert Path(f"run/sweep-{name}.png").stat().st_size > 1000
        assert str(Path(f"run/sweep-{name}.png")) in words


def test_a_resumed_sweep_has_its_table_again(cli, figures):
    cli("sweep", "tiny:fit", "--sigma", "0.1,0.2", "--steps", 10, "--run", "run", "--quiet")
    before = table("run/sweep.csv")
    cli("resume", "run", "--trust", "--steps", 60, "--quiet")
    assert [row["sigma"] for row in table("run/sweep.csv")] == [row["sigma"] for row in before]
    assert table("run/sweep.csv") != before


def test_a_learning_rate_that_runs_away_has_its_row(cli, figures):
    words = ["--algorithm", "gd", "--learning-rate", "1e-2,1e30", "--steps", 20, "--run", "run", "--quiet"]
    cli("sweep", "tiny:fit", *words)
    tame, wild = table("run/sweep.csv")
    assert float(tame["loss"]) < 10
    assert not np.isfinite(float(wild["loss"])) or float(wild["loss"]) > 1e10


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "nothing to sweep: give a grid, for instance --sigma 1e-4:1e-1:13"),
        (["--sigma", "-1,1"], "sigma must be positive, got -1.0"),
        (["--learning-rate", "1,2"], "--learning-rate does not apply to algorithm amc"),
        (["--sigma", "1,2", "--seeds", "99999999999"], "runs of a sweep must be a whole number from 1 to 65536, got"),
        (["--sigma", "1,2", "--seeds", "0"], "0 is not in the range x>=1"),
    ],
)
def test_a_wrong_sweep_is_refused(refusal, words, told):
    assert told in refusal("sweep", "tiny:fit", "--run", "run", *words)
    assert not Path("run").exists()


def test_quiet_and_json_of_a_sweep(cli):
    (line,) = cli("sweep", "tiny:fit", "--sigma", "1,2", "--steps", 5, "--run", "a", "--quiet").output.splitlines()
    assert line.endswith("  a")
    *_, last = cli("sweep", "tiny:fit", "--sigma", "1,2", "--steps", 5, "--run", "b", "--json").stdout.splitlines()
    assert json.loads(last)["event"] == "result"
    assert len(json.loads(last)["loss"]) == 2
    assert json.loads(last)["algorithm"]["sigma"] == [1.0, 2.0]


def test_a_grid_of_a_whole_number_is_of_whole_numbers(cli):
    cli("sweep", "tiny:fit", "--n-s", "2:9:4", "--steps", 5, "--run", "run", "--quiet")
    with RunDirectory.open("run") as stored:
        assert stored.settings["algorithm"]["n_s"] == [2.0, 3.0, 5.0, 9.0]


def test_a_comparison_runs_every_algorithm_and_draws_one_picture(cli, figures):
    words = cli("compare", "tiny:fit", "--steps", 20, "--run", "run").output
    for name in ("amc", "mc", "gd", "adam"):
        assert len([line for line in words.splitlines() if line.startswith(f"{name} ")]) == 1
        assert Path(f"run/{name}/settings.json").exists()
    assert Path("run/comparison.png").stat().st_size > 1000
    assert Path("run/comparison.svg").stat().st_size > 1000


def test_a_comparison_gives_each_algorithm_the_flags_it_has(cli):
    words = ["--sigma", 0.3, "--learning-rate", 0.2, "--algorithms", "mc,gd", "--steps", 10, "--run", "run", "--quiet"]
    lines = cli("compare", "tiny:fit", *words).output.splitlines()
    assert [line.rsplit("  ", 1)[1] for line in lines] == ["run/mc", "run/gd"]
    for name, setting, value in (("mc", "sigma", 0.3), ("gd", "learning_rate", 0.2)):
        with RunDirectory.open(f"run/{name}") as stored:
            assert stored.settings["algorithm"][setting] == value


def test_a_comparison_that_was_stopped_goes_on_with_the_same_command(cli, figures, monkeypatch):
    words = ["compare", "tiny:fit", "--algorithms", "mc,amc,gd", "--learning-rate", 1e9, "--steps", 40]
    whole = cli(*words, "--run", "whole").output
    go = Session.go

    def stopped(session):  # by Ctrl-C, in the second run
        if session.chains[0].algorithm.name == "amc":
            session.stop_requested = "SIGINT"
        go(session)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "go", stopped)
        told = cli(*words, "--run", "my run", code=130)
    assert "go on with: the same command, with --run 'my run'" in told.stderr
    assert not Path("my run/comparison.png").exists()
    told = cli(*words[:-1], 50, "--run", "my run", code=2).stderr
    assert "my run/mc holds a run of other settings: give those, or --overwrite, or another --run" in told
    before = Path("my run/mc/metrics.jsonl").read_bytes()
    for _ in range(2):  # GD diverges, and a run that has diverged cannot be gone on with
        found = cli(*words, "--run", "my run").output
        table = [re.sub(r" +[0-9.]+ s$", "", line) for line in found.splitlines() if "figure" not in line]
        expected = [re.sub(r" +[0-9.]+ s$", "", line) for line in whole.splitlines() if "figure" not in line]
        assert table[-4:] == expected[-4:]
    assert Path("my run/mc/metrics.jsonl").read_bytes() == before
    assert Path("my run/comparison.png").exists()


def test_a_comparison_that_goes_on_gives_every_algorithm_the_rest_of_its_time(cli, monkeypatch):
    words = ["compare", "tiny:fit", "--algorithms", "mc,amc", "--run", "run", "--quiet"]
    go, given, cut = Session.go, {}, ["amc"]

    def gone(session):
        name = session.chains[0].algorithm.name
        given[name] = session.time_budget - session.spent
        session.stop_requested = "SIGINT" if name in cut else None
        go(session)

    def newest(name):
        return load(list_checkpoints(Path(f"run/{name}/checkpoints"))[0])

    monkeypatch.setattr(Session, "go", gone)
    monkeypatch.setattr("gradless.cli.compare.draw_comparison", lambda *_: Path("comparison.png"))
    cli(*words, "--time", "0.4s", code=130)
    save(Path("run/amc/checkpoints"), newest("amc").step, newest("amc").tensors, newest("amc").meta | {"spent": 0.3})
    given.clear(), cut.clear()
    cli(*words, "--time", "0.4s")
    assert given == {"amc": pytest.approx(0.1)}
    given.clear()
    cli(*words, "--time", "0.4s")
    assert not given
    cut.append("mc")
    cli(*words, "--time", "100s", code=130)
    assert given == {"mc": pytest.approx(100 - newest("mc").meta["spent"], abs=1)}
    assert newest("mc").meta["spent"] >= 0.4


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--algorithms", "amc,sgd"], "algorithms must be among mc, amc, gd, adam, got 'sgd'"),
        (["--algorithms", ""], "algorithms must be among mc, amc, gd, adam, got ''"),
        (["--sigma", "auto"], "'auto' is not a valid float"),
        (["--sigma", "-1"], "sigma must be positive"),
        (["--sigma", "1", "--algorithms", "gd,adam"], "--sigma applies to none of gd, adam"),
        (["--clip", "1", "--algorithms", "mc,mc"], "--clip applies to none of mc"),
    ],
)
def test_a_wrong_comparison_is_refused(refusal, words, told):
    assert told in refusal("compare", "tiny:fit", "--run", "run", *words)
    assert not Path("run").exists()


def test_a_comparison_is_not_mixed_into_a_run(cli, refusal, contents):
    cli("train", "tiny:fit", "--steps", 5, "--run", "run", "--quiet")
    before = contents("run")
    told = "run holds a run, and a comparison is a folder of several: choose another"
    assert told in refusal("compare", "tiny:fit", "--steps", 5, "--run", "run", "--overwrite")
    assert contents("run") == before


def test_a_comparison_of_no_algorithms_is_refused(refusal, monkeypatch):
    monkeypatch.setattr(sys.modules["tiny"], "none", gl.Problem(np.ones(3), np.sum, algorithms={}), raising=False)
    assert "name some, for instance --algorithms mc,amc" in refusal("compare", "tiny:none", "--run", "run")


def test_json_of_a_comparison_parses(cli):
    words = ["compare", "tiny:fit", "--steps", 5, "--algorithms", "mc, gd", "--run", "run"]
    events = [json.loads(line) for line in cli(*words, "--json").stdout.splitlines()]
    results = [event for event in events if event["event"] == "result"]
    assert [event["algorithm"]["name"] for event in results] == ["mc", "gd"]
    assert [event["run"] for event in events] == ["run/mc"] * 7 + ["run/gd"] * 7
    again = [json.loads(line) for line in cli(*words, "--json").stdout.splitlines()]  # both are over: told, not run
    for before, after in zip(results, again, strict=True):
        same = {name: before[name] for name in after if name not in ("seconds", "metrics", "acceptance")}
        assert {name: after[name] for name in same} == same
        assert after["metrics"] == pytest.approx(before["metrics"])
    assert again[0]["acceptance"] == pytest.approx(results[0]["acceptance"])
    lines = cli(*words, "--quiet").output.splitlines()
    assert [line.rsplit("  ", 1)[1] for line in lines] == ["run/mc", "run/gd"]
