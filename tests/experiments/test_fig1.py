"""Fig. 1: smoke scale makes data, picture and verdicts; hand-made tables are judged as the claims say."""

from dataclasses import replace

import numpy as np
import pytest

from gradless.experiments import fig1
from gradless.experiments.claims import FAIL, NOT_DECIDED, PASS
from gradless.experiments.curves import name_curves
from gradless.experiments.fig1.judging import plateau
from gradless.experiments.fig1.running import train_points, train_runs
from gradless.experiments.tables import read_table, write_table
from gradless.experiments.workshop import Run, Workshop
from gradless.plots import new_figure


def curves(ends: dict[str, float], early: dict[str, float]) -> list[dict]:
    """Runs of 1e5 epochs: U at the start, at a tenth of them and at the end, and the last accuracy."""
    return [
        {
            "run": name,
            "step": epoch,
            "epoch": epoch,
            "samples": epoch,
            "seconds": epoch,
            "loss": loss,
            "accuracy": accuracy,
            "is_over": 1,
        }
        for name in ("gd", "mc")
        for epoch, loss, accuracy in ((0, 0.9, 0.1), (10_000, early[name], 0.8), (100_000, 0.07, ends[name]))
    ]


def sweep(mc: list[float], gd: list[float]) -> list[dict]:
    settings = {"mc": fig1.SCALES["paper"].sigmas, "gd": fig1.SCALES["paper"].learning_rates}
    return [
        {"algorithm": name, "setting": setting, "epochs": 100_000, "accuracy": value}
        for name, values in (("mc", mc), ("gd", gd))
        for setting, value in zip(settings[name], values, strict=True)
    ]


def runs(low: float, high: float, number: int = 30) -> list[dict]:
    return [
        {"seed": i, "chain": 0, "epochs": 100_000, "accuracy": value}
        for i, value in enumerate(np.linspace(low, high, number))
    ]


GOOD = {
    "curves": curves({"gd": 0.955, "mc": 0.945}, {"gd": 0.1, "mc": 0.3}),
    "sweep": sweep([0.1, 0.3, 0.95, 0.5, 0.1, 0.1, 0.1], [0.5, 0.96, 0.94, 0.1, 0.1]),
    "variation": runs(0.94, 0.95),
}
CLAIM_OF = {"sweep": "F1a", "curves": "F1b", "variation": "F1c"}


def outcomes(out, tables, scale="paper"):
    for name, rows in tables.items():
        write_table(out / f"{name}.csv", rows)
    return {verdict.claim: verdict.outcome for verdict in fig1.check(out, scale)}


def test_smoke_makes_data_a_picture_and_verdicts_and_draws_again_from_the_files(tmp_path):
    fig1.run(tmp_path, fig1.SCALES["smoke"], Workshop(tmp_path, lambda words: None))
    assert {path.name for path in tmp_path.glob("*.csv")} == {"costs.csv", "curves.csv", "sweep.csv", "variation.csv"}
    first, second = read_table(tmp_path / "variation.csv")
    assert (
        first["accuracy"] == [row["accuracy"] for row in read_table(tmp_path / "curves.csv") if row["run"] == "mc"][-1]
    )
    assert first["accuracy"] != second["accuracy"]
    epochs = {(row["algorithm"], row["setting"]): row["epochs"] for row in read_table(tmp_path / "sweep.csv")}
    assert epochs.pop(("gd", 100.0)) < 100  # its gradient has vanished
    assert set(epochs.values()) == {100}
    (picture,) = fig1.draw(tmp_path)
    assert picture.with_suffix(".svg").stat().st_size > 0
    verdicts = fig1.check(tmp_path, "smoke")
    assert [verdict.claim for verdict in verdicts] == ["F1a", "F1b", "F1c"]
    assert {verdict.outcome for verdict in verdicts} == {NOT_DECIDED}
    assert all("digits" in verdict.differs for verdict in verdicts)


def test_a_reproduction_goes_on_from_its_tables_alone(tmp_path, first_asked_for):
    paper, variation = fig1.SCALES["paper"], runs(0.94, 0.95, number=16)
    for name, rows in (GOOD | {"variation": variation}).items():
        write_table(tmp_path / f"{name}.csv", rows)
    assert first_asked_for(fig1, tmp_path, paper) is None
    write_table(tmp_path / "variation.csv", [row for row in variation if row["seed"] != 7])
    assert first_asked_for(fig1, tmp_path, paper) == "mc-seed-7"
    (tmp_path / "sweep.csv").unlink()
    assert first_asked_for(fig1, tmp_path, paper) == "sweep-mc-0.001-0.005"
    own = {row["setting"]: row["accuracy"] for row in read_table(tmp_path / "sweep.csv")}
    assert own == {2e-3: 0.945, 4.5e-2: 0.955}  # the points of panel (b), which are not run twice
    write_table(tmp_path / "curves.csv", [row | {"is_over": int(row["run"] == "mc")} for row in GOOD["curves"]])
    assert first_asked_for(fig1, tmp_path, paper) == "mnist-gd"


@pytest.mark.parametrize("number", [1, 2, 3, 30])
def test_runs_of_panel_c_are_as_many_as_asked_for(tmp_path, number):
    class Counting(Workshop):
        def train(self, name, *args, chains, **plan):
            accuracy = np.linspace(0.1, 0.9, 2 * chains).reshape(2, chains)
            return Run(tmp_path, {"step": np.array([0, 9]), "accuracy": accuracy}, {}, {})

    write_table(tmp_path / "curves.csv", GOOD["curves"])
    train_runs(tmp_path, replace(fig1.SCALES["paper"], runs=number), Counting(tmp_path, print))
    rows = read_table(tmp_path / "variation.csv")
    assert len({(row["seed"], row["chain"]) for row in rows}) == len(rows) == number
    assert rows[0] == {"seed": 0, "chain": 0, "epochs": 100_000, "accuracy": 0.945}  # of panel (b)


def test_points_are_kept_in_order(tmp_path):
    write_table(tmp_path / "sweep.csv", GOOD["sweep"][::-1])
    scale = replace(fig1.SCALES["paper"], sigmas=(*fig1.SCALES["paper"].sigmas, 1e-5))

    class Short(Workshop):
        def train(self, name, *args, **plan):
            return Run(tmp_path, {"step": np.array([0, 9]), "accuracy": np.array([0.2, np.nan])}, {}, {})

    train_points(tmp_path, scale, Short(tmp_path, print), "mc", (1e-5,))
    rows = read_table(tmp_path / "sweep.csv")
    assert rows == sorted(rows, key=lambda row: (row["algorithm"], row["setting"]))
    assert {"algorithm": "mc", "setting": 1e-5, "epochs": 0, "accuracy": 0.2} in rows  # where it was last a number


def test_good_tables_pass_and_are_drawn(tmp_path):
    assert outcomes(tmp_path, GOOD) == {"F1a": PASS, "F1b": PASS, "F1c": PASS}
    assert fig1.draw(tmp_path)[0].exists()


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        (
            "sweep",
            sweep([0.95, 0.5, 0.3, 0.1, 0.1, 0.1, 0.1], [0.5, 0.96, 0.94, 0.1, 0.1]),
        ),  # the maximum of MC at the edge
        ("sweep", sweep([0.1, 0.3, 0.93, 0.5, 0.1, 0.1, 0.1], [0.5, 0.96, 0.94, 0.1, 0.1])),  # MC below 94%
        ("sweep", sweep([0.1, 0.3, 0.95, 0.5, 0.1, 0.1, 0.1], [0.5, 0.98, 0.94, 0.1, 0.1])),  # GD above 97%
        (
            "sweep",
            sweep([0.1, 0.3, 0.95, 0.94, 0.1, 0.1, 0.1], [0.1, 0.96, 0.1, 0.1, 0.1]),
        ),  # the plateau of MC is broader
        ("curves", curves({"gd": 0.955, "mc": 0.945}, {"gd": 0.4, "mc": 0.3})),  # MC faster early
        ("curves", curves({"gd": 0.965, "mc": 0.945}, {"gd": 0.1, "mc": 0.3})),  # 2 points apart at the end
        ("variation", runs(0.945, 0.946)),
        ("variation", runs(0.92, 0.95)),
    ],
)
def test_a_bad_table_fails_its_claim_alone(tmp_path, name, rows):
    found = outcomes(tmp_path, GOOD | {name: rows})
    assert found == {"F1a": PASS, "F1b": PASS, "F1c": PASS} | {CLAIM_OF[name]: FAIL}


def test_a_small_scale_or_a_missing_part_decides_nothing(tmp_path):
    assert set(outcomes(tmp_path / "quick", GOOD, "quick").values()) == {NOT_DECIDED}
    assert outcomes(tmp_path / "begun", {"curves": GOOD["curves"]}) == {
        "F1a": NOT_DECIDED,
        "F1b": PASS,
        "F1c": NOT_DECIDED,
    }
    assert fig1.draw(tmp_path / "begun")[0].exists()
    only_gd = [row for row in GOOD["curves"] if row["run"] == "gd"]
    assert outcomes(tmp_path / "gd", GOOD | {"curves": only_gd})["F1b"] == NOT_DECIDED
    assert fig1.draw(tmp_path / "gd")[0].exists()
    assert outcomes(tmp_path / "points", GOOD | {"sweep": GOOD["sweep"][:-1]})["F1a"] == NOT_DECIDED
    assert outcomes(tmp_path / "few", GOOD | {"variation": runs(0.94, 0.95, number=9)})["F1c"] == NOT_DECIDED
    # A range of 0.1 points may still grow, one of 3 cannot shrink.
    assert outcomes(tmp_path / "near", GOOD | {"variation": runs(0.945, 0.946, number=20)})["F1c"] == NOT_DECIDED
    assert outcomes(tmp_path / "wide", GOOD | {"variation": runs(0.92, 0.95, number=20)})["F1c"] == FAIL


def test_width_of_a_plateau():
    settings = np.array([0.1, 1.0, 10.0])
    # 90% of the maximum is 0.9: crossed half-way between 0.8 and 1.0 on both sides of a peak, one decade apart.
    assert plateau(settings, np.array([0.8, 1.0, 0.8])) == (pytest.approx(1.0), False)
    # The sweep ends before the plateau does, at one end or at the other: what was swept is its least width.
    assert plateau(settings, np.array([1.0, 1.0, 0.8])) == (pytest.approx(1.5), True)
    assert plateau(settings, np.array([0.8, 1.0, 0.95])) == (pytest.approx(1.5), True)


CUT, WHOLE = [0.1, 0.3, 0.95, 0.94, 0.94, 0.94, 0.94], [0.1, 0.3, 0.95, 0.5, 0.1, 0.1, 0.1]


@pytest.mark.parametrize(
    ("mc", "gd", "expected"),
    [
        (CUT, [0.1, 0.96, 0.94, 0.94, 0.94], NOT_DECIDED),  # 2 decades against at least 3 of GD
        (CUT, [0.1, 0.96, 0.94, 0.1, 0.1], FAIL),  # MC's is broader, however far it goes on
        (WHOLE, [0.94, 0.96, 0.94, 0.94, 0.94], PASS),  # GD's is broader, however far it goes on
    ],
)
def test_a_plateau_that_the_sweep_cuts_off_is_compared_only_as_far_as_it_can_be(tmp_path, mc, gd, expected):
    assert outcomes(tmp_path, GOOD | {"sweep": sweep(mc, gd)})["F1a"] == expected


def test_only_panels_without_curves_have_no_numbers_on_their_axes():
    _, (empty, drawn) = new_figure(2)
    drawn.plot([1, 10], [1, 2], label="a curve")
    for axis in (empty, drawn):
        name_curves(axis)
    assert len(drawn.get_xticks()) > 1
    assert len(drawn.get_yticks()) > 1
    assert len(empty.get_xticks()) == len(empty.get_yticks()) == 0


def test_shorter_runs_than_the_paper_s_decide_nothing(tmp_path):
    for name in ("sweep", "variation"):
        short = [row | {"epochs": 300} if place == 1 else row for place, row in enumerate(GOOD[name])]
        assert outcomes(tmp_path / name, GOOD | {name: short})[CLAIM_OF[name]] == NOT_DECIDED
    diverged = [row | {"epochs": 300} if row["setting"] == 45 else row for row in GOOD["sweep"]]
    assert outcomes(tmp_path, GOOD | {"sweep": diverged})["F1a"] == PASS
