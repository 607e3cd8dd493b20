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

    init: `init(key)`; or `init(key, sigma)`, to start at the scale of the moves; or a pytree.
    loss: `loss(params, batch)` with data, `loss(params)` without.
    data: a pytree of arrays with one leading axis over the samples.
    test: the same for the metrics.
    metrics: `metrics(params, test)`, or `metrics(params)`; a dict of numbers.
    error: `error(params, batch)`, for progressive batches.
    outputs: `outputs(params, inputs)`, what the net says; for plots.
    algorithms: settings to begin with, by the name of the algorithm; the first is the default.
    steps: how many, unless the command says otherwise.
    batch: full, a minibatch size such as 2000, or progressive:500.
    precision: float32 or float64.
    """

    init: Callable[..., Params] | Params
    loss: Loss
    data: Any = None
    test: Any = None
    metrics: Callable[..., dict[str, jax.Array]] | None = None
    error: Callable[..., jax.Array] | None = None
    outputs: Callable[..., jax.Array] | None = None
    algorithms: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"amc": {}})
    steps: int = 10_000
    batch: str = "full"
    precision: str = "float32"

    def __post_init__(self) -> None:
        is_right = isinstance(self.algorithms, Mapping) and all(
            isinstance(settings, Mapping) for settings in self.algorithms.values()
        )
        if not is_right:
            words = 'a dict of settings by the name of the algorithm, such as {"amc": {"sigma": 0.1}}'
            raise ValueError(f"algorithms of a problem must be {words}, got {self.algorithms!r}")
