import numpy as np
import pytest

from gradless.sklearn.samples import Samples, as_data, filled, merged, units_of

X = np.array([[2.0, 0.0], [1.0, 5.0], [2.0, -0.0], [7.0, 7.0], [1.0, 5.0]])
Y = np.array([[1], [0], [1], [0], [1]], np.int32)


def test_equal_rows_become_one_with_their_weights_added_and_weight_zero_goes():
    one = merged(Samples(X, Y, np.array([1.0, 2.0, 3.0, 0.0, 5.0])))
    found = {(*x, *y): w for x, y, w in zip(one.x.tolist(), one.y.tolist(), one.weight, strict=True)}
    assert found == {(2.0, 0.0, 1): 4.0, (1.0, 5.0, 0): 2.0, (1.0, 5.0, 1): 5.0}  # 0 and -0 are one number


def test_repetitions_in_any_order_are_the_same_samples_bit_for_bit():
    weight = np.array([1, 3, 0, 2, 1])
    repeated = np.repeat(np.arange(5), weight)[::-1]
    a, b = merged(Samples(X, Y, weight.astype(float))), merged(Samples(X[repeated], Y[repeated]))
    assert a.x.tobytes() == b.x.tobytes()
    assert a.y.tobytes() == b.y.tobytes()
    assert a.weight.tobytes() == b.weight.tobytes()


def test_equal_weights_are_no_weights():
    assert merged(Samples(X[[0, 1, 3]], Y[[0, 1, 3]], np.full(3, 2.0))).weight is None


def test_small_data_are_filled_up_with_rows_of_no_weight():
    full = filled(Samples(X, Y))
    assert len(full) == 32
    assert full.weight.tolist() == [1.0] * 5 + [0.0] * 27
    large = Samples(np.zeros((257, 1)), np.zeros((257, 1)))
    assert filled(large) is large


def test_units_are_those_of_the_repeated_targets():
    y = np.array([[1.0, 10.0], [3.0, 10.0]])
    units = units_of(Samples(np.zeros((2, 1)), y, np.array([1.0, 3.0])))
    repeated = y[[0, 1, 1, 1]]
    np.testing.assert_allclose(units.centre, repeated.mean(axis=0), rtol=1e-15)
    np.testing.assert_allclose(units.spread, [repeated[:, 0].std(), 1.0], rtol=1e-15)  # a constant target has unit 1
    assert units.is_constant.tolist() == [False, True]
    data = as_data(Samples(np.zeros((2, 1)), y), units)
    np.testing.assert_allclose(data["z"] * data["spread"] + data["centre"], y, rtol=1e-15)


@pytest.mark.parametrize("unit", [1e-149, 1e149])
def test_units_of_tiny_and_huge_targets_have_their_spread(unit):
    y = np.array([[1.0], [3.0], [4.0]])
    units = units_of(Samples(np.zeros((3, 1)), unit * y))
    np.testing.assert_allclose(units.spread, unit * y.std(), rtol=1e-15)


@pytest.mark.parametrize("unit", [1e-310, 1e-200, 1e200, 5e307])
def test_targets_whose_squares_are_beyond_float64_are_refused(unit):
    y = unit * np.array([[-1.0], [1.0], [3.0]])
    with pytest.raises(ValueError, match=r"y must have a standard deviation between 1e-150 and 1e\+150, got"):
        units_of(Samples(np.zeros((3, 1)), y))


def test_units_without_a_spread_are_outdated_by_targets_that_have_one():
    x, same = np.zeros((3, 1)), np.full(3, 0.1)  # whose mean is not 0.1 but the next number
    assert same.mean() != 0.1
    units = units_of(Samples(x, np.stack([same, [1, 2, 3]], axis=1)))
    assert units.spread[0] == 1
    assert not units.are_outdated_by(Samples(x, np.stack([2 * same, [100, 200, 300]], axis=1)))
    assert units.are_outdated_by(Samples(x, np.stack([[1, 2, 3], same], axis=1)))
