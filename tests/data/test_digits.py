"""The bundled digits: sizes, scale, and a split that never changes."""

import hashlib

import numpy as np

from gradless.data import digits


def test_shapes_types_and_scale():
    data = digits()
    assert data.train_x.shape == (1437, 64)
    assert data.test_x.shape == (360, 64)
    assert data.train_x.dtype == data.test_x.dtype == np.float32
    assert data.train_y.dtype == data.test_y.dtype == np.int32
    assert data.train_x.min() == 0
    assert data.train_x.max() == 1
    np.testing.assert_array_equal(data.train_x * 16 % 1, 0)  # sixteenths are exact in float32


def test_every_digit_is_in_both_parts_in_proportion():
    data = digits()
    shares = [np.bincount(y, minlength=10) / len(y) for y in (data.train_y, data.test_y)]
    # A stratified split rounds each count of about 36 to a whole number: at most 1/360 off.
    np.testing.assert_allclose(shares[0], shares[1], atol=1 / 360)


def test_no_test_digit_is_lost_or_doubled():
    from sklearn.datasets import load_digits

    data = digits()
    ours = np.concatenate([data.train_x, data.test_x])
    theirs = load_digits().data / 16
    np.testing.assert_array_equal(ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)])


def test_the_split_never_changes():
    assert hashlib.sha256(digits().test_y.astype("<i4").tobytes()).hexdigest()[:16] == "c8a9cf10e14a8679"
    assert hashlib.sha256(digits().test_x.astype("<f4").tobytes()).hexdigest()[:16] == "53d6a8c3d406e86d"
