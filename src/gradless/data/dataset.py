"""The shape in which every data set of a net comes."""

from typing import NamedTuple

import numpy as np


class Dataset(NamedTuple):
    """What a net learns from and what it is tested on; the first axis of each array counts the samples."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
