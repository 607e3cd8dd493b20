"""The pictures and tables that belong to a finished run, drawn from its files."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from gradless.engine.result import Result
from gradless.plots import draw_sweep, draw_training, write_rows
from gradless.records import RunDirectory, RunError


def draw_figures(run: str, result: Result, console: Console | None) -> None:
    """Draw the training curves; of a sweep also the outcome against the settings, with the table."""
    draw_training(run)
    with RunDirectory.open(run) as stored:
        swept = stored.settings.get("sweep", [])
        algorithm = stored.settings["algorithm"]
    if not swept:
        return
    if not isinstance(swept, list) or not all(isinstance(algorithm.get(str(name)), list) for name in swept):
        raise RunError(f"{run} is of no sweep that gradless made: its settings say {swept!r}")
    rows = sweep_rows(swept, algorithm, result)
    write_rows(Path(run) / "sweep.csv", rows)
    outcome = next(iter(result.metrics), "loss")
    for name in swept:
        suffix = "" if len(swept) == 1 else f"-{name}"
        draw_sweep(Path(run) / f"sweep{suffix}", rows, name, outcome)
    if console is not None:
        from gradless.cli.sweep import tell

        tell(console, run, swept, rows)


def sweep_rows(swept: list[str], algorithm: dict[str, Any], result: Result) -> list[dict[str, Any]]:
    """Return one row per chain: its settings and what came of it."""
    outcomes = {"loss": result.loss, **result.metrics, "acceptance": result.acceptance}
    settings = {name: np.asarray(algorithm[name], dtype=float) for name in swept}
    return [
        {
            "chain": place,
            **{name: float(values[place]) for name, values in settings.items()},
            **{name: float(np.ravel(values)[place]) for name, values in outcomes.items()},
        }
        for place in range(len(np.ravel(result.loss)))
    ]
