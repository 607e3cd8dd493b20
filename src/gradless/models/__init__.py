"""The paper's nets and losses as pure functions on plain pytrees; nothing here knows how they are trained."""

from gradless.models.losses import accuracy, cross_entropy, mse, zero_one_error
from gradless.models.mlp import MLP
from gradless.models.resnet import ResNet
from gradless.models.rnn import RNN

__all__ = ["MLP", "RNN", "ResNet", "accuracy", "cross_entropy", "mse", "zero_one_error"]
