"""A problem: what is to be learnt, from what, by which net, and how it is judged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax

from gradless.types import Loss, Params


@dataclass(frozen=True)
class Problem:
    """All that `gradless train` needs to know of a problem; write one of your own and train it as `module:object`.

    Only `init` and `loss` are needed. The rest are data, metrics and the settings to begin with.
    """

    init: Callable[..., Params] | Params  # init(key); init(key, sigma) to start at the scale of the moves; or a pytree
    loss: Loss  # loss(params, batch) with data, loss(params) without
    data: Any = None  # a pytree of arrays with one leading axis over the samples
    test: Any = None  # the same for the metrics
    metrics: Callable[..., dict[str, jax.Array]] | None = None  # metrics(params, test), or metrics(params)
    error: Callable[..., jax.Array] | None = None  # error(params, batch), for progressive batches
    outputs: Callable[..., jax.Array] | None = None  # outputs(params, inputs), what the net says; for plots
    algorithms: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"amc": {}})  # the first is the default
    steps: int = 10_000
    batch: str = "full"
    precision: str = "float32"
