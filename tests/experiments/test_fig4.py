"""Fig. 4 at its smallest, and its verdicts on tables made by hand."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from gradless.data import log_sine
from gradless.data.functions import log_term
from gradless.experiments import fig4
from gradless.experiments.claims import FAIL, NOT_DECIDED, PASS
from gradless.experiments.fig4.medians import by_algorithm, medians, overlap, step_of_outputs
from gradless.experiments.fig4.running import collect
from gradless.experiments.fig4.settings import ALGORITHMS, MINUS, PLUS, SINE, ZERO
from gradless.experiments.tables import column, read_table, write_table
from gradless.experiments.workshop import Stopped, Workshop

FIGURE = "F4"


def test_smoke_scale_gives_data_plot_and_verdicts_also_when_drawn_again(folder, redrawn):
    assert all(claim in redrawn for claim in ("F4a", "F4b", "F4c"))
    assert (folder / "F4" / "fig4.svg").stat().st_size > 1000
    assert [verdict.outcome for verdict in fig4.check(folder / "F4", "smoke")] == [NOT_DECIDED] * 3


def test_outputs_are_those_of_a_net_of_the_run(folder):
    outputs = [row for row in read_table(folder / "F4" / "outputs.csv") if row["algorithm"] == PLUS]
    rows = [row for row in read_table(folder / "F4" / "training.csv") if row["algorithm"] == PLUS]
    loss = np.mean((column(outputs, "output") - column(outputs, "target")) ** 2)
    assert len(outputs) == 1000
    ends = [row["loss"] for row in rows if row["step"] == fig4.SCALES["smoke"].steps]
    assert min(abs(loss / end - 1) for end in ends) < 1e-5  # the table has six digits


def test_overlap_is_the_share_of_the_sine():
    theta, target = log_sine()
    sine = target - log_term(theta)
    for share in (0.0, 0.3, 1.0):
        loss, pseudo_loss = np.mean(((share - 1) * sine) ** 2), np.mean((share * sine) ** 2)
        assert overlap(loss, pseudo_loss) == pytest.approx(share, abs=1e-12)  # differences of 5e-3 in float64


SHARES = {"gd": 0.0, "adam": 0.8, PLUS: 0.95, ZERO: 0.4, MINUS: 0.01}  # of the sine, learnt at the end
RESTS = {"gd": 5e-3, "adam": 1e-4, PLUS: 1e-4, ZERO: 1e-4, MINUS: 1e-4}  # of the loss, besides the sine not learnt


def table(shares=SHARES, rests=RESTS, stopped=None, runs=6):
    """Return three records of each run: the start, the dip with the logarithm learnt, and the end."""
    rows = []
    for name in ALGORITHMS:
        for step, share, rest in ((0, 0.5, 1.0), (10, 0.0, 1e-4), (20, shares[name], rests[name])):
            loss, pseudo_loss = (1 - share) ** 2 * SINE + rest, share**2 * SINE + rest
            numbers = {"step": step, "loss": loss, "pseudo_loss": pseudo_loss, "is_over": int(name != stopped)}
            rows += [{"algorithm": name, "block": run // 2, "chain": run % 2, **numbers} for run in range(runs)]
    return rows


@pytest.mark.parametrize(
    ("numbers", "outcomes"),
    [
        ({}, [PASS, PASS, PASS]),
        ({"rests": RESTS | {PLUS: 0.004}}, [FAIL, PASS, PASS]),
        ({"rests": RESTS | {"adam": 0.011}}, [FAIL, PASS, PASS]),
        ({"shares": SHARES | {"adam": 0.05}}, [PASS, FAIL, PASS]),
        ({"shares": SHARES | {PLUS: 0.8}}, [PASS, PASS, FAIL]),
        ({"shares": SHARES | {MINUS: 0.2}}, [PASS, PASS, FAIL]),
        ({"shares": SHARES | {ZERO: 0.05}}, [PASS, PASS, NOT_DECIDED]),
        ({"stopped": MINUS}, [NOT_DECIDED] * 3),
        ({"runs": 4}, [NOT_DECIDED] * 3),
    ],
)
def test_check_judges_order_dip_and_overlap(tmp_path, numbers, outcomes):
    write_table(tmp_path / "training.csv", table(**numbers))
    verdicts = fig4.check(tmp_path, "paper")
    assert [verdict.claim for verdict in verdicts] == ["F4a", "F4b", "F4c"]
    assert [verdict.outcome for verdict in verdicts] == outcomes


def test_a_small_scale_decides_nothing(tmp_path):
    write_table(tmp_path / "training.csv", table())
    assert [verdict.outcome for verdict in fig4.check(tmp_path, "quick")] == [NOT_DECIDED] * 3


def test_nets_are_compared_where_epsilon_0_starts_on_the_sine_or_has_ended_without():
    begun, not_begun = table(), table(shares=SHARES | {ZERO: 0.05})
    frozen = [row for row in not_begun if row["algorithm"] != MINUS or row["step"] <= 10]
    assert step_of_outputs(by_algorithm(begun)) == 20
    assert step_of_outputs(by_algorithm(frozen)) == 20  # where a net that froze before is what it was
    longer = begun + [row | {"step": 30} for row in begun if row["step"] == 20]
    assert step_of_outputs(by_algorithm(longer)) == 20


def test_a_stopped_figure_shows_what_there_is(tmp_path):
    def tell(words):
        if words.startswith("amc-epsilon-0.005"):
            workshop.halt.stop_requested = "SIGTERM"

    workshop = Workshop(tmp_path, tell)
    with pytest.raises(Stopped):
        fig4.run(tmp_path, replace(fig4.SCALES["smoke"], steps=100_000_000), workshop)
    rows = read_table(tmp_path / "training.csv")
    assert {row["algorithm"]: row["is_over"] for row in rows} == {"gd": 1, "adam": 1, PLUS: 0}
    assert all(path.exists() for path in fig4.draw(tmp_path))
    assert {verdict.measured for verdict in fig4.check(tmp_path, "paper")} == {"not run yet: amc 0, amc -0.005"}


def test_medians_hold_what_a_run_that_is_over_has_reached():
    def run(block, losses):
        return [{"block": block, "chain": 0, "step": n, "loss": u, "pseudo_loss": u} for n, u in losses.items()]

    rows = run(0, {0: 9.0, 10: 1.0}) + run(1, {0: 9.0, 10: 5.0, 20: 4.0}) + run(2, {0: 9.0, 5: 7.0, 20: 2.0})
    assert {row["step"]: row["loss"] for row in medians(rows)} == {0: 9.0, 5: 9.0, 10: 5.0, 20: 2.0}


def test_a_reproduction_goes_on_from_its_tables_alone(folder, tmp_path, first_asked_for):
    shutil.copytree(folder / "F4", tmp_path, dirs_exist_ok=True)
    scale, path = fig4.SCALES["smoke"], tmp_path / "training.csv"
    tables = {path: path.read_text() for path in tmp_path.glob("*.csv")}
    shutil.rmtree(tmp_path / "runs" / "adam-0")
    (tmp_path / "runs" / "gd-0" / "finished").unlink()  # stopped here, and finished elsewhere
    assert first_asked_for(fig4, tmp_path, scale) is None
    assert first_asked_for(fig4, tmp_path, replace(scale, blocks=2)) == "gd-1"
    collect(tmp_path, scale)
    assert {path: path.read_text() for path in tables} == tables
    write_table(path, [row | {"is_over": int(row["algorithm"] != "adam")} for row in read_table(path)])
    assert first_asked_for(fig4, tmp_path, scale) == "adam-0"


def test_runs_that_were_stopped_do_not_take_a_verdict_back(tmp_path):
    begun = [row | {"block": 9, "is_over": 0, "loss": 9.0, "pseudo_loss": 9.0} for row in table()]
    write_table(tmp_path / "training.csv", table() + begun)
    assert [verdict.outcome for verdict in fig4.check(tmp_path, "paper")] == [PASS, PASS, PASS]
