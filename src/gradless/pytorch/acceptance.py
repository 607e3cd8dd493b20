"""The Metropolis rule on plain numbers, the twin of `gradless.acceptance`, and what else is asked of a loss."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor


def accept(loss: float, loss_new: float, temperature: float, xi: float | None) -> bool:
    """Return whether a move from `loss` to `loss_new` is accepted at `temperature`: if U' <= U + T (-ln xi).

    Paper: Sec. III A, step 2 and its footnote.
    Differs: a loss that is not finite is never accepted; at T > 0 an exact tie with xi = 1 is. A schedule that passes
    below T = 0, or to NaN (a root of what is below 0), stays at 0.
    """
    allowance = -temperature * math.log(xi) if xi is not None and temperature > 0 else 0.0
    return math.isfinite(loss_new) and loss_new <= loss + allowance


def measure(closure: Callable[[], Any]) -> Tensor | float:
    """Call the closure and return its loss, free of any graph and of memory that the next call may reuse."""
    try:
        loss = closure()
    except RuntimeError as error:
        if "does not require grad" in str(error):
            raise RuntimeError("the closure must only return the loss: backward() in it has nothing to do") from error
        raise
    if isinstance(loss, Tensor) and loss.numel() == 1 and not loss.is_complex():
        return loss.detach().clone().reshape(())
    try:
        if not isinstance(loss, Tensor | str):
            return float(np.reshape(loss, ()))
    except (TypeError, ValueError):
        pass
    got = f"{loss.dtype}, shape {tuple(loss.shape)}" if hasattr(loss, "shape") else repr(loss)
    raise TypeError(f"the closure must return the loss, one real number, got {got}")


def is_check_due(n: int) -> bool:
    """Return whether a kept U(x) is measured again at step n: at powers of two, and every 1024 steps."""
    return n & (n - 1) == 0 or n % 1024 == 0


def agree(one: Tensor | float, other: Tensor | float, x: list[Tensor]) -> bool:
    """Return whether two losses can be the same sum, added up in another order as some devices do.

    Half of the digits must agree: a GPU's rounding stays well below that, another batch well above.
    """
    dtypes = [part.dtype for part in (one, *x) if isinstance(part, Tensor) and part.is_floating_point()]
    tolerance = math.sqrt(max(torch.finfo(dtype).eps for dtype in dtypes))
    return abs(float(one) - float(other)) <= tolerance * max(abs(float(one)), abs(float(other)))
