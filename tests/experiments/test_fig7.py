"""Fig. 7: smoke scale makes data, picture and verdicts; hand-made tables are judged as the claims say."""

import pytest

from gradless.experiments import fig7
from gradless.experiments.claims import FAIL, NOT_DECIDED, PASS, write_table
from gradless.experiments.workshop import Workshop

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


def test_a_reproduction_goes_on_from_its_tables_alone(tmp_path, asked_for):
    write_curves(tmp_path, PAPER)
    fig7.run(tmp_path, fig7.SCALES["paper"], asked_for)
    assert asked_for.names == []


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
