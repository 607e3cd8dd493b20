"""Fig. 2 at its smallest, the count of acceptance at a loss, and its verdicts on tables made by hand."""

from pathlib import Path

import numpy as np
import pytest

from gradless.experiments import fig2
from gradless.experiments.claims import FAIL, NOT_DECIDED, PASS
from gradless.experiments.tables import column, read_table, write_table
from gradless.experiments.workshop import Run

FIGURE = "F2"


def test_smoke_scale_gives_data_plot_and_verdicts_also_when_drawn_again(folder, redrawn):
    assert all(claim in redrawn for claim in ("F2a", "F2b", "F2c", "F2d"))
    assert (folder / "F2" / "fig2.svg").stat().st_size > 1000
    assert [verdict.outcome for verdict in fig2.check(folder / "F2", "smoke")] == [NOT_DECIDED] * 4
    rates = column(read_table(folder / "F2" / "curves.csv"), "acceptance")
    assert np.nanmin(rates) >= 0
    assert np.nanmax(rates) <= 1


def test_the_nets_have_the_papers_numbers_of_parameters():
    nets = [(10, 2), (1000, 2), (25, 2), (25, 10)]
    assert [fig2._num_parameters(*net) for net in nets] == [141, 1_004_001, 726, 5_926]


def test_acceptance_at_a_loss_is_accepted_over_proposed_moves_there():
    table = {
        "step": np.array([0.0, 10.0, 30.0, 40.0, 50.0]),
        "loss": np.array([[1.0, 1.0], [0.1, 0.1], [0.1, 0.1], [0.1, 0.1], [0.001, np.nan]]),
        "acceptance": np.array([[np.nan, np.nan], [0.9, 0.9], [0.2, 0.4], [0.5, 0.1], [0.9, np.nan]]),
    }
    (row,) = fig2._acceptance(Run(Path(), table, {}, {}), np.array([0.1]))
    # Near U = 0.1 are the moves from 10 to 40: of run 1, 0.2 x 20 + 0.5 x 10 = 9 of 30; of run 2, 8 + 1 = 9 of 30.
    assert row["acceptance"] == pytest.approx(0.3)
    assert (row["runs"], row["moves"]) == (2, 60)


def table(slope=-0.3, ratio=2.0, num_nets=None, noise=0.1, runs=5, scale="paper", scatter=0.0):
    """The nets of a scale, or the first few of each panel, whose numbers of parameters go up in equal factors.

    scatter: how far log A of every other net lies above the line, and of the rest below it.
    """
    rows = []
    for panel, (name, varied) in fig2.PANELS.items():
        nets = list(fig2._nets(fig2.SCALES[scale], varied))
        for place, (width, depth) in enumerate(nets[:num_nets]):
            size = 100.0 ** (1 + place / (len(nets) - 1))  # from 100 to 10,000
            for cut in fig2.CUTS:
                is_low = cut == min(fig2.CUTS)
                rate = 0.3 * (size / 100) ** slope if name == "mc" else 0.03 / (ratio if is_low else 1)
                rate *= np.exp(scatter * (-1) ** place)
                net = {"panel": panel, "width": width, "depth": depth, "parameters": size, "loss": cut}
                rows.append(net | {"acceptance": rate, "spread": noise * rate, "runs": runs})
    return rows


@pytest.mark.parametrize(
    ("numbers", "scale", "outcomes"),
    [
        ({}, "paper", [PASS, PASS, PASS, PASS]),
        ({"slope": -1.1}, "paper", [FAIL, FAIL, PASS, PASS]),
        ({"slope": 0.1}, "paper", [FAIL, FAIL, PASS, PASS]),
        # Five widths, ln 100/4 apart, each known to 0.1/sqrt(4): an error of 0.05 * 4/(sqrt(10) ln 100) = 0.0137 of
        # the slope. Nine depths, ln 100/8 apart: 0.05 * 8/(sqrt(60) ln 100) = 0.0112.
        ({"slope": -0.022}, "paper", [NOT_DECIDED, NOT_DECIDED, PASS, PASS]),
        ({"slope": -0.025}, "paper", [NOT_DECIDED, PASS, PASS, PASS]),
        ({"slope": -0.028}, "paper", [PASS, PASS, PASS, PASS]),
        # Nets off the line by 0.1, alternately: errors of sqrt(4 * 0.01/3) and sqrt(9 * 0.01/7), about, in place of
        # 0.05, so 0.032 and 0.025 of the slope.
        ({"slope": -0.045, "scatter": 0.1}, "paper", [NOT_DECIDED, NOT_DECIDED, PASS, PASS]),
        ({"slope": -0.055, "scatter": 0.1}, "paper", [NOT_DECIDED, PASS, PASS, PASS]),
        ({"slope": -0.07, "scatter": 0.1}, "paper", [PASS, PASS, PASS, PASS]),
        ({"noise": 0.0, "runs": 1}, "paper", [NOT_DECIDED, NOT_DECIDED, PASS, PASS]),  # one run shows no spread
        ({"ratio": 3.1}, "paper", [PASS, PASS, FAIL, FAIL]),
        ({"num_nets": 4}, "paper", [NOT_DECIDED] * 4),
        ({"scale": "quick"}, "quick", [NOT_DECIDED, NOT_DECIDED, PASS, PASS]),  # two decades of N are not four
        ({"num_nets": 2, "scale": "quick"}, "quick", [NOT_DECIDED] * 4),
        ({"num_nets": 1, "ratio": 3.1}, "quick", [NOT_DECIDED, NOT_DECIDED, FAIL, FAIL]),  # more nets change nothing
        ({}, "smoke", [NOT_DECIDED] * 4),
    ],
)
def test_check_judges_slope_and_constancy(tmp_path, numbers, scale, outcomes):
    write_table(tmp_path / "cuts.csv", table(**numbers))
    assert [verdict.outcome for verdict in fig2.check(tmp_path, scale)] == outcomes


def test_a_loss_that_was_not_reached_is_not_decided(tmp_path):
    lowest = {panel: fig2.SCALES["paper"].lowest[name] for panel, (name, _) in fig2.PANELS.items()}
    is_missing = lambda row: row["loss"] == lowest[row["panel"]] and row["parameters"] == 100  # noqa: E731
    rows = [row | {"acceptance": float("nan")} if is_missing(row) else row for row in table()]
    assert sum(map(is_missing, rows)) == 4  # of each panel the first net
    write_table(tmp_path / "cuts.csv", rows)
    assert [verdict.outcome for verdict in fig2.check(tmp_path, "paper")] == [NOT_DECIDED] * 4


def test_a_net_that_accepts_nothing_is_not_left_out(tmp_path):
    rows = [
        row | {"acceptance": 0.0, "spread": 0.0} if row["loss"] == 0.003 and row["parameters"] == 100 else row
        for row in table()
    ]
    write_table(tmp_path / "cuts.csv", rows)
    verdicts = fig2.check(tmp_path, "paper")
    assert [verdict.outcome for verdict in verdicts] == [NOT_DECIDED, NOT_DECIDED, FAIL, FAIL]
    assert "max/min inf" in verdicts[2].measured


def test_a_reproduction_goes_on_from_its_tables_alone(tmp_path, folder, first_asked_for):
    for name in ("curves.csv", "cuts.csv"):
        write_table(tmp_path / name, read_table(folder / "F2" / name))
    assert first_asked_for(fig2, tmp_path, fig2.SCALES["smoke"]) is None
    write_table(tmp_path / "cuts.csv", [row for row in read_table(tmp_path / "cuts.csv") if row["panel"] != "c"])
    assert first_asked_for(fig2, tmp_path, fig2.SCALES["smoke"]) == "amc-width-6-depth-2"
    write_table(tmp_path / "cuts.csv", [{"panel": "a", "width": 6}])
    with pytest.raises(ValueError, match=r"cuts.csv has no column depth: restore it, or delete it"):
        first_asked_for(fig2, tmp_path, fig2.SCALES["smoke"])


def test_what_has_not_been_run_yet_is_said(tmp_path, folder):
    for name in ("curves.csv", "cuts.csv"):
        rows = [row for row in read_table(folder / "F2" / name) if row["panel"] == "a"]
        write_table(tmp_path / name, rows)
    assert fig2.draw(tmp_path)[0].exists()
    verdicts = fig2.check(tmp_path, "paper")
    assert [verdict.outcome for verdict in verdicts] == [NOT_DECIDED] * 4
    assert verdicts[1].measured == "not run yet: all nets"
