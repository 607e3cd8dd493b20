"""Curves as a page gets them: few points, no extreme lost, numbers worked out by hand."""

import math

import numpy as np
import pytest

from gradless.report.curves import (
    MAX_POINTS,
    acceptance_by_loss,
    curves,
    last_known,
    overall_acceptance,
    per_window,
    plain,
    thinned,
)

nan = math.nan


def test_thinning_keeps_ends_early_records_and_every_extreme():
    rng = np.random.default_rng(0)
    number = 50_000
    loss, accuracy = rng.normal(size=number), rng.normal(size=number)
    loss[12_345], loss[33_333], accuracy[44_444] = 99, -99, 77
    accuracy[:100] = nan
    kept = thinned({"loss": loss, "accuracy": accuracy})
    assert len(kept) <= MAX_POINTS + 1
    assert {0, 1, 2, 4, 8, 12_345, 33_333, 44_444, number - 1} <= set(kept.tolist())
    assert (np.diff(kept) > 0).all()


def test_a_short_run_is_not_thinned():
    assert thinned({"loss": np.arange(MAX_POINTS)}).tolist() == list(range(MAX_POINTS))


def test_chains_become_a_median_and_a_band_in_which_one_that_has_ended_stays_where_it_was():
    loss = np.asarray([[nan, nan, nan], [1.0, 2.0, 9.0], [nan, 2.0, 3.0]])
    step = np.asarray([0.0, 1.0, 2.0])
    found = curves({"step": step, "loss": loss})["series"][0]
    assert found["y"] == [None, 2, 2]
    # numpy's percentiles interpolate: 10 % of the way from the first to the last of three is a fifth of a gap
    assert found["low"] == [None, pytest.approx(1.2), pytest.approx(1.2)]
    assert found["high"] == [None, pytest.approx(7.6), pytest.approx(2.8)]
    assert found["chains"] == [[None, 1, None], [None, 2, 2], [None, 9, 3]]


def test_of_many_chains_only_the_band_is_kept():
    found = curves({"step": np.arange(3.0), "loss": np.ones((3, 40))})["series"][0]
    assert found["chains"] == []


def test_acceptance_by_loss_counts_moves_not_records():
    table = {
        "step": np.asarray([0.0, 10.0, 20.0, 100.0]),
        "loss": np.asarray([8.0, 8.0, 8.0, 1.0]),
        "acceptance": np.asarray([nan, 0.2, 0.6, 0.1]),
    }
    assert acceptance_by_loss(table) == {"loss": [1, 8], "acceptance": [0.1, 0.4]}
    # 0.2 * 10 + 0.6 * 10 + 0.1 * 80 = 16 of 100 moves
    assert overall_acceptance(table).tolist() == pytest.approx([0.16])


@pytest.mark.parametrize("loss", [[1.0, 1.0, 1.0], [nan, nan, nan], [1.0, nan, math.inf]])
def test_without_a_range_of_losses_there_is_no_such_curve(loss):
    table = {"step": np.arange(3.0), "loss": np.asarray(loss), "acceptance": np.asarray([nan, 0.5, 0.5])}
    assert acceptance_by_loss(table) is None


def test_a_fraction_counted_from_the_beginning_is_told_per_window():
    found = per_window(np.asarray([0.0, 1.0, 0.5, 0.5]), np.asarray([0.0, 1.0, 4.0, 4.0]))
    assert plain(found) == [None, 1, pytest.approx(1 / 3, rel=1e-5), None]


def test_the_last_number_of_a_chain_that_ended_early():
    assert last_known(np.asarray([[3.0, 4.0], [2.0, nan]])).tolist() == [2, 4]


def test_a_run_without_numbers_has_no_curves():
    table = {"step": np.asarray([0.0]), "loss": np.asarray([nan])}
    assert curves(table) == {"x": {}, "series": [], "by_loss": None}
    assert curves({}) == {"x": {}, "series": [], "by_loss": None}


def test_six_digits_and_null():
    assert plain([1 / 3, nan, math.inf, -math.inf, 1e300]) == [0.333333, None, None, None, 1e300]
