"""What the runs of Fig. 4 have learnt, over all runs of an algorithm."""

from typing import Any

import numpy as np

from gradless.experiments.fig4.settings import ALGORITHMS, SINE, STARTED, ZERO
from gradless.experiments.tables import column


def overlap(loss: Any, pseudo_loss: Any) -> Any:
    """Return how much of the sine s a net f has learnt: <(f - log) s>/<s^2>, from U = <(f - log - s)^2> and U' alone.

    It is 0 for the logarithm by itself and 1 for the whole target.
    """
    return (pseudo_loss - loss + SINE) / (2 * SINE)


def by_algorithm(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the medians over the runs of each algorithm: of those that are over, or while there are none, of all."""
    of: dict[str, list[dict[str, Any]]] = {}
    for name in ALGORITHMS:
        mine = [row for row in rows if row["algorithm"] == name]
        if mine:
            of[name] = medians([row for row in mine if row["is_over"]] or mine)
    return of


def medians(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return medians and 10th and 90th percentiles over the runs of one algorithm; one that is over stays as it is."""
    runs: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        runs.setdefault((row["block"], row["chain"]), []).append(row)
    steps = np.unique(column(rows, "step"))
    loss, pseudo_loss = (
        np.stack([column(mine, key)[places(mine, steps)] for mine in runs.values()], axis=1)
        for key in ("loss", "pseudo_loss")
    )
    quantities = {"loss": loss, "pseudo_loss": pseudo_loss, "overlap": overlap(loss, pseudo_loss)}
    return [
        {"step": int(step)}
        | {
            key + suffix: float(np.percentile(values[place], percent))
            for key, values in quantities.items()
            for suffix, percent in (("", 50), ("_low", 10), ("_high", 90))
        }
        for place, step in enumerate(steps)
    ]


def places(rows: list[dict[str, Any]], steps: np.ndarray) -> np.ndarray:
    """Return which of a run's records is the last at each step."""
    return (np.searchsorted(column(rows, "step"), steps, side="right") - 1).clip(0)


def last_before(rows: list[dict[str, Any]], step: int) -> dict[str, Any]:
    return rows[int(places(rows, np.asarray([step]))[0])]


def gain(rows: list[dict[str, Any]], step: int) -> float:
    """Return how much of the sine has been learnt by a step: the overlap, less the least that it has been until then.

    What is not learnt is the rest of a logarithm that does not fit yet, which is not quite orthogonal to the sine.
    """
    so_far = [row["overlap"] for row in rows if row["step"] <= step]
    return float(so_far[-1] - min(so_far))


def starting_step(rows: list[dict[str, Any]]) -> int | None:
    """Return the step at which epsilon = 0, whose medians these are, starts on the sine, if it does.

    The overlap is counted from its least value on: before, the logarithm is not learnt, and is not quite orthogonal
    to the sine.
    """
    least = int(np.argmin(column(rows, "overlap")))
    return next((row["step"] for row in rows[least:] if row["overlap"] > STARTED), None)


def step_of_outputs(of: dict[str, list[dict[str, Any]]]) -> int:
    """Return the step at which aMC's nets are compared: where epsilon = 0 starts on the sine, if not yet, its last."""
    start = starting_step(of[ZERO])
    return int(of[ZERO][-1]["step"]) if start is None else start
