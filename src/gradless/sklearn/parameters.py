"""The estimators' parameters, refused in `fit` if they are wrong: name, rule and value in one line."""

from dataclasses import fields
from numbers import Integral, Real
from typing import Any

import numpy as np

from gradless.kernels.annealing import Anneal
from gradless.models.mlp import ACTIVATIONS
from gradless.settings import COUNT, NOT_NEGATIVE, POSITIVE, WITHIN_ONE, check_one, check_switch

SWITCHES = ("signal_norm", "early_stopping", "warm_start", "verbose")


def check_parameters(estimator: Any, losses: dict[str, Any]) -> None:
    """Refuse the first wrong parameter of an estimator."""
    _check_widths(estimator.hidden_layer_sizes)
    if not isinstance(estimator.activation, str) or estimator.activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {estimator.activation!r}")
    if not callable(estimator.loss) and not _is_one_of(estimator.loss, "auto", *losses):
        raise ValueError(f"loss must be a function or one of auto, {', '.join(losses)}, got {estimator.loss!r}")
    if isinstance(estimator.sigma, str):
        if estimator.sigma != "auto":
            raise ValueError(f'sigma must be positive or "auto", got {estimator.sigma!r}')
    else:
        check_one("sigma", estimator.sigma, POSITIVE)
    check_one("epsilon", estimator.epsilon, WITHIN_ONE)
    check_one("n_s", estimator.n_s, COUNT)
    _check_temperature(estimator.temperature)
    check_one("n_iter_no_change", estimator.n_iter_no_change, COUNT)
    check_one("tol", estimator.tol, NOT_NEGATIVE)
    for name in ("max_iter", "partial_fit_iter", "chains"):
        _check_whole(name, getattr(estimator, name))
    if not _is_one_of(estimator.batch_size, "full"):
        _check_whole("batch_size", estimator.batch_size, or_else=' or "full"')
    if not _is_number(estimator.validation_fraction) or not 0 < estimator.validation_fraction < 1:
        raise ValueError(f"validation_fraction must be above 0 and below 1, got {estimator.validation_fraction!r}")
    for name in SWITCHES:
        check_switch(name, getattr(estimator, name))


def widths(hidden_layer_sizes: Any) -> tuple[int, ...]:
    """Return the widths of the hidden layers; one number means one layer."""
    return tuple(int(width) for width in np.atleast_1d(np.asarray(hidden_layer_sizes, int)))


def _check_widths(sizes: Any) -> None:
    listed = [sizes] if isinstance(sizes, Integral) else sizes
    is_right = isinstance(listed, list | tuple | np.ndarray) and np.ndim(listed) == 1
    if not is_right or not all(_is_whole(one) for one in listed):
        raise ValueError(f"hidden_layer_sizes must be positive whole numbers, one per hidden layer, got {sizes!r}")


def _check_temperature(temperature: Any) -> None:
    if isinstance(temperature, Anneal):
        for field in fields(temperature):
            check_one(f"temperature.{field.name}", getattr(temperature, field.name), field.metadata["rule"])
    elif not callable(temperature):
        check_one("temperature", temperature, NOT_NEGATIVE)


def _check_whole(name: str, value: Any, or_else: str = "") -> None:
    if not _is_whole(value):
        raise ValueError(f"{name} must be a whole number of at least 1{or_else}, got {value!r}")


def _is_one_of(value: Any, *words: str) -> bool:
    return isinstance(value, str) and value in words  # an array has no plain ==


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) > 0


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
