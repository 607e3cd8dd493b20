"""Fig. 7: smoke scale makes data, picture and verdicts; hand-made tables are judged as the claims say."""

import numpy as np
import pytest

from gradless.experiments import fig7
from gradless.experiments.claims import FAIL, NOT_DECIDED, PASS
from gradless.experiments.tables import read_table, write_table
from gradless.experiments.workshop import Run, Stopped, Workshop

PAPER = {  # run: epochs to 90%, accuracy at the end
    "gd": (2_000, 0.955),
    "mc": (20_000, 0.945),
    "amc": (3_000, 0.95),
    "minibatch": (500, 0.94),
    "progressive": (800, 0.95),
}


def write_curves(out, runs: dict[str, tuple[float, float]]) -> None:
    """Runs of 1e5 epochs that are at 80% just before they reach 90%."""
    rows = [
        {"run": name, "step": 30 * n, "epoch": n, "samples": n, "seconds": n, "loss": 1 - c, "accuracy": c}
        | {"acceptance": 0.3, "sigma": 0.01, "is_over": 1}
        for name, (epochs, end) in runs.items()
        for n, c in ((0, 0.1), (0.9 * epochs, min(0.8, end)), (epochs, min(0.9, end)), (100_000, end))
    ]
    write_table(out / "curves.csv", rows)


def outcomes(out, runs, scale="paper"):
    write_curves(out, runs)
    return [verdict.outcome for verdict in fig7.check(out, scale)]


def test_smoke_makes_data_a_picture_and_verdicts_and_draws_again_from_the_files(tmp_path):
    fig7.run(tmp_path, fig7.SCALES["smoke"], Workshop(tmp_path, lambda words: None))
    (picture,) = fig7.draw(tmp_path)
    assert picture.with_suffix(".svg").stat().st_size > 0
    verdicts = fig7.check(tmp_path, "smoke")
    assert [verdict.claim for verdict in verdicts] == ["F7a", "F7b"]
    assert {verdict.outcome for verdict in verdicts} == {NOT_DECIDED}
    assert all("digits" in verdict.differs for verdict in verdicts)


def test_a_reproduction_goes_on_from_its_tables_alone(tmp_path, first_asked_for):
    paper = fig7.SCALES["paper"]
    write_curves(tmp_path, PAPER)
    assert first_asked_for(fig7, tmp_path, paper) is None
    rows = read_table(tmp_path / "curves.csv")
    write_table(tmp_path / "curves.csv", [row | {"is_over": int(row["run"] != "amc")} for row in rows])
    assert first_asked_for(fig7, tmp_path, paper) == "amc"


def test_curves_that_another_figure_has_are_taken_from_there(tmp_path):
    """MC and GD are those of Fig. 1b."""
    write_curves(tmp_path / "F1", {name: PAPER[name] for name in ("mc", "gd")})
    write_curves(tmp_path / "F7", {name: PAPER[name] for name in ("amc", "minibatch", "progressive")})
    fig7.run(tmp_path / "F7", fig7.SCALES["paper"], Workshop(tmp_path / "F7", print, common=tmp_path))
    assert {row["run"] for row in read_table(tmp_path / "F7" / "curves.csv")} == set(PAPER)
    assert not (tmp_path / "runs").exists()


def test_a_run_begun_anew_does_not_replace_what_it_got_to_elsewhere(tmp_path):
    write_curves(tmp_path, PAPER)
    rows = [row | {"is_over": int(row["run"] != "amc")} for row in read_table(tmp_path / "curves.csv")]
    write_table(tmp_path / "curves.csv", rows)

    class Stopping(Workshop):
        def train(self, name, *args, **plan):
            numbers = ("step", "epoch", "samples", "seconds", "loss", "accuracy", "acceptance", "sigma")
            raise Stopped(name, Run(tmp_path / name, {one: np.array([0.0, 1.0]) for one in numbers}, {}, {}), "time")

    with pytest.raises(Stopped):
        fig7.run(tmp_path, fig7.SCALES["paper"], Stopping(tmp_path, print))
    assert sorted(read_table(tmp_path / "curves.csv"), key=str) == sorted(rows, key=str)


def test_the_papers_order_passes_and_is_drawn(tmp_path):
    assert outcomes(tmp_path, PAPER) == [PASS, PASS]
    assert fig7.draw(tmp_path)[0].exists()


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"mc": (2_500, 0.945)}, [FAIL, PASS]),  # MC faster than aMC
        ({"amc": (3_000, 0.89)}, [FAIL, FAIL]),  # aMC never at 90%
        ({"minibatch": (4_000, 0.94)}, [PASS, FAIL]),  # minibatches slower than batch
        ({"minibatch": (500, 0.96)}, [PASS, FAIL]),  # minibatches better at the end
        ({"progressive": (4_000, 0.95)}, [PASS, FAIL]),  # progressive slower than batch
        ({"progressive": (800, 0.93)}, [PASS, FAIL]),  # progressive worse at the end
    ],
)
def test_another_order_fails(tmp_path, changed, expected):
    assert outcomes(tmp_path, PAPER | changed) == expected


def test_a_short_run_decides_which_is_faster_only_once_one_is_there(tmp_path):
    assert outcomes(tmp_path, PAPER | {"mc": (20_000, 0.7)}, "quick") == [PASS, NOT_DECIDED]
    assert outcomes(tmp_path, PAPER | {"mc": (20_000, 0.7), "amc": (3_000, 0.8)}, "quick") == [NOT_DECIDED, NOT_DECIDED]


def test_what_is_there_of_a_stopped_reproduction_is_drawn_and_decides_nothing(tmp_path):
    assert outcomes(tmp_path, {"amc": PAPER["amc"]}) == [NOT_DECIDED, NOT_DECIDED]
    assert fig7.draw(tmp_path)[0].exists()


def test_one_run_that_was_stopped_is_drawn_and_decides_nothing(tmp_path):
    assert outcomes(tmp_path, {"progressive": (800, 0.92)}) == [NOT_DECIDED, NOT_DECIDED]
    assert fig7.draw(tmp_path)[0].exists()


def test_amc_stopped_before_mc_got_to_90_percent_is_not_slower(tmp_path):
    write_curves(tmp_path, PAPER | {"amc": (30_000, 0.95)})
    rows = read_table(tmp_path / "curves.csv")
    for until, outcome in ((1_000, NOT_DECIDED), (28_000, FAIL)):  # MC is there after 20,000
        write_table(tmp_path / "curves.csv", [row for row in rows if row["run"] != "amc" or row["epoch"] <= until])
        assert fig7.check(tmp_path, "paper")[0].outcome == outcome


def test_a_record_that_is_no_number_changes_nothing(tmp_path):
    write_curves(tmp_path, PAPER)
    rows = read_table(tmp_path / "curves.csv")
    last = [row | {"epoch": 100_001, "step": 4e6, "accuracy": float("nan")} for row in rows if row["epoch"] == 100_000]
    write_table(tmp_path / "curves.csv", rows + last)
    assert [verdict.outcome for verdict in fig7.check(tmp_path, "paper")] == [PASS, PASS]


def test_the_time_is_shown_without_the_stalls_of_the_machine():
    """A second for each ten samples, but between two records in the middle a hundred times as long."""
    samples = np.arange(0, 210, 10)
    seconds = np.cumsum(np.where(samples == 100, 100.0, 1.0)) - 1
    both = zip(samples.tolist(), seconds.tolist(), strict=True)
    rows = [{"run": name, "samples": s, "seconds": t} for s, t in both for name in ("amc", "minibatch")]
    steady = fig7.with_steady_seconds(rows)
    for name in ("amc", "minibatch"):
        mine = [row for row in steady if row["run"] == name]
        np.testing.assert_allclose([row["steady_seconds"] for row in mine], samples / 10)
