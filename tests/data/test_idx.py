"""IDX files, good and hostile."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradless.data.idx import parse_idx


def idx(array):
    """Writes an array as IDX, independently of the reader."""
    header = b"\x00\x00\x08" + bytes([array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return header + array.tobytes()


def test_an_image_file_and_a_label_file():
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    np.testing.assert_array_equal(parse_idx(idx(images), "images"), images)
    labels = np.array([3, 1, 4], np.uint8)
    np.testing.assert_array_equal(parse_idx(idx(labels), "labels"), labels)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_any_shape_comes_back(shape):
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    np.testing.assert_array_equal(parse_idx(idx(array), "any"), array)


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused_in_words(raw):
    try:
        array = parse_idx(raw, "noise")
    except ValueError as error:
        told = str(error)
    else:
        assert idx(array) == raw
        return
    assert told.startswith("noise must ")


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", r"f must begin with a 4-byte IDX header, got 0 bytes"),
        (b"\x1f\x8b\x08\x00" + bytes(20), r"f must be an IDX file of unsigned bytes .*, got 1f 8b 08 00"),
        (b"\x00\x00\x0d\x01" + bytes(8), r"f must be an IDX file of unsigned bytes"),
        (b"\x00\x00\x08\x00", r"lengths of its 0 axes, one or more"),
        (b"\x00\x00\x08\xff" + bytes(100), r"lengths of its 255 axes, one or more, got 104 bytes"),
        (idx(np.zeros((2, 3), np.uint8))[:-1], r"f must hold 6 bytes for its shape \(2, 3\), got 5"),
        (idx(np.zeros((2, 3), np.uint8)) + b"x", r"f must hold 6 bytes for its shape \(2, 3\), got 7"),
    ],
)
def test_broken_files_are_refused(raw, words):
    with pytest.raises(ValueError, match=words):
        parse_idx(raw, "f")


def test_a_header_that_promises_too_much_allocates_nothing():
    # 2^96 bytes promised, none there; and sizes whose product is 2^64, which wraps to 0 in 64-bit arithmetic.
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    for sizes in ((2**32 - 1,) * 3, (2**31, 2**31, 4)):
        raw = b"\x00\x00\x08\x03" + b"".join(n.to_bytes(4, "big") for n in sizes)
        with pytest.raises(ValueError, match=r"must hold \d{20,} bytes for its shape"):
            parse_idx(raw, "bomb")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - before < 1_000_000
