"""Fig. 4 at its smallest, and its verdicts on tables made by hand."""

from dataclasses import replace

import numpy as np
import pytest

from gradless.data import log_sine
from gradless.data.functions import log_term
from gradless.experiments import fig4
from gradless.experiments.claims import FAIL, NOT_DECIDED, PASS, column, read_table, write_table
from gradless.experiments.workshop import Stopped, Workshop

FIGURE = "F4"


def test_smoke_scale_gives_data_plot_and_verdicts_also_when_drawn_again(folder, redrawn):
    assert all(claim in redrawn for claim in ("F4a", "F4b", "F4c"))
    assert (folder / "F4" / "fig4.svg").stat().st_size > 1000
    assert [verdict.outcome for verdict in fig4.check(folder / "F4", "smoke")] == [NOT_DECIDED] * 3


def test_outputs_are_those_of_a_net_of_the_run(folder):
    outputs = [row for row in read_table(folder / "F4" / "outputs.csv") if row["algorithm"] == fig4.PLUS]
    rows = [row for row in read_table(folder / "F4" / "training.csv") if row["algorithm"] == fig4.PLUS]
    loss = np.mean((column(outputs, "output") - column(outputs, "target")) ** 2)
    assert len(outputs) == 1000
    assert (
        rows[-1]["loss_low"] * 0.5 < loss < rows[-1]["loss_high"] * 2
    )  # one of the two nets whose percentiles these are


def test_overlap_is_the_share_of_the_sine():
    theta, target = log_sine()
    sine = target - log_term(theta)
    for share in (0.0, 0.3, 1.0):
        loss, pseudo_loss = np.mean(((share - 1) * sine) ** 2), np.mean((share * sine) ** 2)
        assert fig4.overlap(loss, pseudo_loss) == pytest.approx(share, abs=1e-12)  # differences of 5e-3 in float64


GOOD_LOSS = {"gd": 0.01, "adam": 0.002, fig4.PLUS: 0.001, fig4.ZERO: 0.003, fig4.MINUS: 0.005}
GOOD_OVERLAP = {"gd": 0.0, "adam": 0.8, fig4.PLUS: 0.95, fig4.ZERO: 0.4, fig4.MINUS: 0.01}


def table(losses=GOOD_LOSS, overlaps=GOOD_OVERLAP, end=1e-3, stopped=None):
    """Return three records of each algorithm: the start, the dip, and the end with these losses and overlaps."""
    rows = []
    for name in fig4.ALGORITHMS:
        rows.append({"algorithm": name, "step": 0, "loss": 1.0, "pseudo_loss": 1.0, "overlap": 0.5})
        rows.append({"algorithm": name, "step": 10, "loss": 0.02, "pseudo_loss": 1e-4, "overlap": 0.0})
        last = {"loss": losses[name], "pseudo_loss": end, "overlap": overlaps[name]}
        rows.append({"algorithm": name, "step": 20, **last})
    return [row | {"is_over": int(row["algorithm"] != stopped)} for row in rows]


@pytest.mark.parametrize(
    ("numbers", "outcomes"),
    [
        ({}, [PASS, PASS, PASS]),
        ({"losses": GOOD_LOSS | {fig4.PLUS: 0.004}}, [FAIL, PASS, PASS]),
        ({"losses": GOOD_LOSS | {"adam": 0.011}}, [FAIL, PASS, PASS]),
        ({"end": 1.5e-4}, [PASS, FAIL, PASS]),
        ({"overlaps": GOOD_OVERLAP | {fig4.PLUS: 0.8}}, [PASS, PASS, FAIL]),
        ({"overlaps": GOOD_OVERLAP | {fig4.MINUS: 0.2}}, [PASS, PASS, FAIL]),
        ({"overlaps": GOOD_OVERLAP | {fig4.ZERO: 0.05}}, [PASS, PASS, NOT_DECIDED]),
        ({"stopped": fig4.MINUS}, [NOT_DECIDED] * 3),
    ],
)
def test_check_judges_order_dip_and_overlap(tmp_path, numbers, outcomes):
    write_table(tmp_path / "training.csv", table(**numbers))
    verdicts = fig4.check(tmp_path, "paper")
    assert [verdict.claim for verdict in verdicts] == ["F4a", "F4b", "F4c"]
    assert [verdict.outcome for verdict in verdicts] == outcomes


def test_a_sine_not_begun_is_not_decided_at_the_quick_scale(tmp_path):
    write_table(tmp_path / "training.csv", table(overlaps=dict.fromkeys(GOOD_OVERLAP, 0.02)))
    assert [verdict.outcome for verdict in fig4.check(tmp_path, "quick")] == [NOT_DECIDED] * 3


def test_a_stopped_figure_shows_what_there_is(tmp_path):
    def tell(words):
        if words.startswith("amc-epsilon-0.005"):
            workshop.halt.stop_requested = "SIGTERM"

    workshop = Workshop(tmp_path, tell)
    with pytest.raises(Stopped):
        fig4.run(tmp_path, replace(fig4.SCALES["smoke"], steps=100_000_000), workshop)
    rows = read_table(tmp_path / "training.csv")
    assert {row["algorithm"]: row["is_over"] for row in rows} == {"gd": 1, "adam": 1, fig4.PLUS: 0}
    assert all(path.exists() for path in fig4.draw(tmp_path))
    assert {verdict.measured for verdict in fig4.check(tmp_path, "paper")} == {"not run yet: amc 0, amc -0.005"}
