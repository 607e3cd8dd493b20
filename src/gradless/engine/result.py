"""What a training run returns."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradless.engine.summary import aligned, rows_of
from gradless.types import Params


class Trace(Mapping[str, np.ndarray]):
    """Thinned scalars of a run as arrays: `trace.loss` or `trace["loss"]`; chain axis first with several chains.

    columns: the arrays by name: step, epoch, evaluations, samples, seconds, loss, acceptance (over the window since the
        last record), sigma, nonfinite (proposals so far whose loss was not a number), and the problem's own metrics.
    """

    def __init__(self, columns: Mapping[str, np.ndarray]):
        self._columns = dict(columns)

    @classmethod
    def of_rows(cls, rows: list[dict[str, Any]]) -> "Trace":
        """Turn rows, one per record, into columns; `step` and `seconds` are common to all chains."""
        names = [name for name in (rows[0] if rows else {}) if name != "is_frozen"]
        columns = {name: np.asarray([row[name] for row in rows]) for name in names}
        return cls({name: column.T if column.ndim == 2 else column for name, column in columns.items()})

    def __getitem__(self, name: str) -> np.ndarray:
        return self._columns[name]

    def __getattr__(self, name: str) -> np.ndarray:
        columns = self.__dict__.get("_columns", {})  # none yet while a trace is copied or unpickled
        if name not in columns:
            raise AttributeError(f"the trace has no {name!r}; it has {', '.join(columns)}")
        return columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"Trace({len(self._columns.get('step', ()))} records of {', '.join(self._columns)})"


@dataclass(frozen=True, repr=False)
class Result:
    """A trained net and how it came about; arrays have the chain axis first when there are several chains.

    `print(result)` tells the numbers in a few lines, `gl.plot(result)` draws the trace.

    params: the net, a pytree like the one it began with.
    loss: U of params on the data of the last step.
    trace: how it went, see `gl.Trace`.
    metrics: of params, by name.
    steps: of the chain that went furthest.
    acceptance: the share of accepted steps over the whole run.
    sigma: the move scale at the end.
    evaluations: of the loss, over all chains.
    samples: that these evaluations saw.
    nonfinite: proposals whose loss was not a number.
    seconds: of training, without compilation.
    compile_seconds: of compilation.
    stopped_by: steps, target, frozen, diverged, time or callback.
    advice: one line on what looks wrong, if something does.
    state: the algorithm's own state at the end.
    run: the folder in which the run was recorded.
    algorithm: the name of the algorithm.
    """

    params: Params
    loss: Any
    trace: Trace
    metrics: dict[str, Any] = field(default_factory=dict)
    steps: int = 0
    acceptance: Any = 0.0
    sigma: Any = float("nan")
    evaluations: int = 0
    samples: int = 0
    nonfinite: int = 0
    seconds: float = 0.0
    compile_seconds: float = 0.0
    stopped_by: str = "steps"
    advice: str | None = None
    state: Any = None
    run: str | None = None
    algorithm: str = ""

    def __repr__(self) -> str:
        # Not all fields: params and state may hold millions of numbers.
        last = [("run", self.run), ("advice", self.advice)]
        return "\n".join(aligned([*rows_of(self), *((name, words) for name, words in last if words)]))
