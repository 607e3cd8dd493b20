"""The settings of the optimizer and of its parameter groups, under the rules of the JAX kernel."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from gradless.settings import COUNT, FRACTION, NOT_NEGATIVE, POSITIVE, WITHIN_ONE, check_one, check_switch

OF_GROUPS = {"sigma": POSITIVE, "epsilon": WITHIN_ONE, "n_s": COUNT, "sigma_decay": FRACTION}
KNOWN = [*OF_GROUPS, "signal_norm"]
NO_LR = (
    'AMC has no learning rate for a scheduler: sigma shrinks by itself, or set param_groups[0]["sigma"] between steps'
)


class AMCGroup(dict[str, Any]):
    """The parameters and settings of a group, without the learning rate that PyTorch's schedulers look for."""

    def __missing__(self, name: str) -> Any:
        raise KeyError(NO_LR if name == "lr" else name)


def checked_group(group: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that a parameter group brings along, as plain numbers."""
    given = {name: value for name, value in group.items() if name not in ("params", "param_names")}
    for name, value in given.items():
        if name not in KNOWN:
            raise ValueError(f"a parameter group may set {', '.join(KNOWN)}, got {name}")
        if name == "signal_norm":
            check_switch(name, value)
        else:
            given[name] = check_one(name, value, OF_GROUPS[name])
    return given


def check_parameter(parameter: Tensor) -> None:
    """Refuse a parameter that cannot be displaced in place, number by number."""
    if not parameter.is_floating_point():
        raise ValueError(f"parameters must be floating-point numbers, got {parameter.dtype}")
    if parameter.layout != torch.strided:
        raise ValueError(f"parameters must be dense, got {parameter.layout}: give parameter.to_dense()")
    if is_lazy(parameter):  # a layer that learns its shape in the first pass
        return
    if any(step == 0 and size > 1 for step, size in zip(parameter.stride(), parameter.shape, strict=True)):
        raise ValueError(f"parameters must have memory of their own, got one expanded to {tuple(parameter.shape)}")


def check_temperature(temperature: Any) -> None:
    """Refuse a temperature that is neither a number of at least 0 nor a function of the step."""
    if not callable(temperature):
        check_one("temperature", temperature, NOT_NEGATIVE)


def checked_seed(seed: Any) -> int | None:
    """Return the seed as a whole number, or None if it is left open."""
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be a whole number of at least 0 and below 2^63, or None, got {seed!r}")
    return int(seed)
