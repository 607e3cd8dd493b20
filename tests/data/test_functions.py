"""The three functions against known answers; their trivial losses are in `tests/models/test_losses.py`."""

import numpy as np
import pytest

from gradless.data import functions


@pytest.mark.parametrize("make", [functions.sine, functions.log_sine, functions.step])
@pytest.mark.parametrize("points", [2, 1000])
def test_shapes_and_grid(make, points):
    theta, target = make(points)
    assert theta.shape == target.shape == (points, 1)
    assert theta.dtype == target.dtype == np.float64
    np.testing.assert_array_equal(theta[:, 0], np.linspace(0, 1, points))


def test_mean_square_of_the_grid_sets_lambda():
    theta, _ = functions.sine()
    # The sum of 1000 float64 terms: relative error below 1000 * 1.1e-16.
    np.testing.assert_allclose(np.mean(theta**2), 1999 / 5994, rtol=2e-13)
    assert round(float(np.mean(theta**2) ** -0.5), 6) == 1.731618


def test_values_by_hand():
    # On five points theta is 0, 1/4, 1/2, 3/4, 1; the sines of multiples of pi are zero to 1e-15.
    np.testing.assert_allclose(functions.sine(5)[1][:, 0], [0, 1, 0, -1, 0], atol=1e-15)
    # sin(20 pi theta) vanishes on all five.
    np.testing.assert_allclose(functions.log_sine(5)[1][:, 0], np.log([1, 2.25, 3.5, 4.75, 6]), atol=1e-15)
    # On 41 points theta_1 = 1/40, where the sine is 1.
    np.testing.assert_allclose(functions.log_sine(41)[1][1, 0], np.log(1.125) + 0.1, rtol=1e-14)
    # Open interval: both its ends are outside.
    np.testing.assert_array_equal(functions.step(9)[1][:, 0], [0, 0, 0, 0, 0, 0.5, 0, 0, 0])


def test_a_quarter_of_the_points_is_on_the_step():
    assert np.count_nonzero(functions.step()[1]) == 250


@pytest.mark.parametrize("points", [1, 0, -3, 2.5])
def test_wrong_points_are_refused(points):
    with pytest.raises(ValueError, match=f"points must be a whole number, 2 or more, got {points}"):
        functions.sine(points)
