"""The paper's data sets as NumPy arrays: three functions, 8x8 digits, MNIST."""

from gradless.data import mnist
from gradless.data.dataset import Dataset
from gradless.data.digits import digits
from gradless.data.functions import log_sine, sine, step

__all__ = ["Dataset", "digits", "log_sine", "mnist", "sine", "step"]
