"""The 8x8 handwritten digits that come with scikit-learn: a small MNIST that needs no download."""

import numpy as np

from gradless.data.dataset import Dataset

NUM_TEST = 360
SPLIT_SEED = 0


def digits() -> Dataset:
    """1,437 training and 360 test digits as (samples, 64) float32 in [0, 1], labels int32; the split never changes.

    Both parts hold each digit in the same proportion.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    x = (pixels / 16).astype(np.float32)
    y = labels.astype(np.int32)
    train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=NUM_TEST, stratify=y, random_state=SPLIT_SEED)
    return Dataset(train_x, train_y, test_x, test_y)
