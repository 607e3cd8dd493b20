"""Fig. 3 at its smallest, and its verdicts on tables made by hand."""

import pytest

from gradless.experiments import fig3
from gradless.experiments.claims import FAIL, NOT_DECIDED, PASS
from gradless.experiments.tables import read_table, write_table

FIGURE = "F3"


def test_smoke_scale_gives_data_plot_and_verdicts_also_when_drawn_again(folder, redrawn):
    assert "F3a" in redrawn
    assert "F3b" in redrawn
    assert (folder / "F3" / "fig3.svg").stat().st_size > 1000
    assert (folder / "F3" / "fig3.png").stat().st_size > 1000
    assert [verdict.outcome for verdict in fig3.check(folder / "F3", "smoke")] == [NOT_DECIDED] * 2


def test_trajectories_begin_at_the_start_and_lie_on_the_function(folder):
    rows = read_table(folder / "F3" / "trajectories.csv")
    starts = [(row["x"], row["y"]) for row in rows if row["step"] == 0]
    assert starts == [(-2, 2)] * len(fig3.EPSILONS)
    for row in rows:
        value = (1 - row["x"]) ** 2 + 100 * (row["y"] - row["x"] ** 2) ** 2
        assert row["loss"] == pytest.approx(value, rel=1e-9, abs=1e-15)  # the same formula, rounded otherwise


def table(distances):
    return [
        {"n_s": n_s, "epsilon": epsilon, "step": step, "distance": distance}
        for n_s in (20, 100)
        for epsilon, distance in zip(fig3.EPSILONS, distances, strict=True)
        for step in (2_000, 10_000)
    ]


@pytest.mark.parametrize(
    ("distances", "outcome"), [((3.0, 2.0, 1.0), PASS), ((3.0, 1.0, 2.0), FAIL), ((1.0, 1.0, 1.0), FAIL)]
)
def test_check_wants_the_distance_to_fall_with_epsilon(tmp_path, distances, outcome):
    write_table(tmp_path / "convergence.csv", table(distances))
    assert [(v.claim, v.outcome) for v in fig3.check(tmp_path, "quick")] == [("F3a", outcome), ("F3b", outcome)]


def test_steps_that_were_not_run_are_not_decided(tmp_path):
    write_table(tmp_path / "convergence.csv", [row for row in table((3.0, 2.0, 1.0)) if row["step"] == 2_000])
    assert [verdict.outcome for verdict in fig3.check(tmp_path, "quick")] == [PASS, NOT_DECIDED]
