"""Eq. (2) at its smallest, and its verdict on tables made by hand."""

from itertools import product

import numpy as np
import pytest

from gradless.experiments import langevin
from gradless.experiments.claims import FAIL, NOT_DECIDED, PASS
from gradless.experiments.tables import read_table, write_table

FIGURE = "E2"


def test_smoke_scale_gives_data_plot_and_verdict_also_when_drawn_again(folder, redrawn):
    assert "E2" in redrawn
    assert (folder / "E2" / "langevin.svg").stat().st_size > 1000
    assert [verdict.outcome for verdict in langevin.check(folder / "E2", "smoke")] == [NOT_DECIDED]


def test_the_axes_are_orthonormal_and_the_first_is_downhill():
    axes = np.stack(list(langevin.AXES.values()))
    np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-15)  # a few roundings of numbers up to 1
    assert axes[0] @ langevin.DIRECTION < 0


def test_standard_errors_are_those_of_the_law(folder):
    # With 10,000 moves. Downhill variance 1/2 - 1/(2 pi), across 1/2; of the square 3/2 - 1/4, whichever the axis. The
    # error of a standard error is a few percent there: 10 percent is far out.
    for row in read_table(folder / "E2" / "moments.csv"):
        variance = 1 / 2 - 1 / (2 * np.pi) if row["axis"] == "downhill" else 1 / 2
        assert row["drift_error"] == pytest.approx(np.sqrt(variance / 1e4), rel=0.1)
        assert row["mean_square_error"] == pytest.approx(np.sqrt(1.25 / 1e4), rel=0.1)


def table(drift=langevin.DRIFT, across=0.0, mean_square=0.5):
    return [
        {
            "gradient": gradient,
            "sigma": sigma,
            "axis": axis,
            "moves": 1_000_000,
            "drift": drift if axis == "downhill" else across,
            "drift_error": 1e-3,
            "mean_square": mean_square,
            "mean_square_error": 1e-3,
        }
        for gradient, sigma, axis in product(langevin.GRADIENTS, langevin.SIGMAS, langevin.AXES)
    ]


@pytest.mark.parametrize(
    ("moments", "outcome"),
    [
        ({}, PASS),
        ({"drift": langevin.DRIFT + 3e-3}, PASS),
        ({"drift": langevin.DRIFT + 5e-3}, FAIL),
        ({"across": -5e-3}, FAIL),
        ({"mean_square": 0.505}, FAIL),
    ],
)
def test_check_allows_four_standard_errors(tmp_path, moments, outcome):
    write_table(tmp_path / "moments.csv", table(**moments))
    assert [(v.claim, v.outcome) for v in langevin.check(tmp_path, "quick")] == [("E2", outcome)]


def test_a_table_that_lacks_a_row_decides_nothing(tmp_path):
    write_table(tmp_path / "moments.csv", table()[1:])
    (verdict,) = langevin.check(tmp_path, "paper")
    assert (verdict.outcome, verdict.measured) == (NOT_DECIDED, "not run yet: 0.001, 0.0001, downhill")
