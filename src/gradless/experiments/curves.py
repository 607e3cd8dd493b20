"""Training curves, one run of one chain each: the table of their records, and how figures draw them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gradless.experiments.tables import column, furthest, over, table_so_far, write_table
from gradless.experiments.workshop import Run, Stopped, Workshop, is_finished
from gradless.plots import say_not_run

TABLE = "curves.csv"
NAMES = {"mc": "MC", "gd": "GD", "amc": "aMC"}


def train_curve(
    out: Path, workshop: Workshop, name: str, folder: str, *args: Any, siblings: Sequence[Path] = (), **plan: Any
) -> None:
    """Train, unless a table has the run to its end, and save its records, as far as it got.

    name: of the curve in the table.
    folder: the name of the run; what follows it is what `Workshop.train` takes.
    siblings: folders of figures that show the same run.
    """
    path = out / TABLE
    for place in (out, *siblings):
        mine = [row for row in table_so_far(place / TABLE, "run", "step", "is_over") if row["run"] == name]
        if over(mine, _run):
            _save(path, mine)
            return
    try:
        run = workshop.train(folder, *args, **plan)
    except Stopped as stop:
        _save(path, curve(name, stop.run))
        raise
    _save(path, curve(name, run))


def _run(row: dict[str, Any]) -> str:
    return str(row["run"])


def _save(path: Path, rows: list[dict[str, Any]]) -> None:
    write_table(path, furthest(table_so_far(path), rows, _run))


def records(steps: int, number: int = 200) -> dict[str, Any]:
    """Return a plan's steps, with about so many records."""
    return {"steps": steps, "record_every": max(1, steps // number)}


def curve(name: str, run: Run) -> list[dict[str, Any]]:
    """Return the records of a run of one chain as rows of a table."""
    kept = ("step", "epoch", "samples", "seconds", "loss", "accuracy", "acceptance", "sigma")
    end = {"is_over": int(is_finished(run.path))}
    return [
        {"run": name, **{one: float(run.table[one][place]) for one in kept}, **end}
        for place in range(len(run.table["step"]))
    ]


def lacking(rows: list[dict[str, Any]], runs: Sequence[str]) -> list[str]:
    """Return which runs a reproduction that was stopped does not have yet."""
    return [name for name in runs if all(row["run"] != name for row in rows)]


def last(rows: list[dict[str, Any]], run: str, name: str) -> float:
    """Return the last record of a quantity in a run."""
    return float([row[name] for row in rows if row["run"] == run][-1])


def at_epoch(rows: list[dict[str, Any]], run: str, epoch: float, name: str) -> float:
    """Return a quantity at an epoch, between two records if need be."""
    mine = [row for row in rows if row["run"] == run]
    return float(np.interp(epoch, column(mine, "epoch"), column(mine, name)))


def draw_curve(
    axis: Any, rows: list[dict[str, Any]], run: str, x: str, y: str, colour: str, dash: str, label: str
) -> None:
    """Draw loss, or accuracy in percent, of one run."""
    mine = [row for row in rows if row["run"] == run and row[x] > 0]
    if not mine:
        return
    values = column(mine, y) * (100 if y == "accuracy" else 1)
    axis.plot(column(mine, x), values, dash, color=colour, label=label, linewidth=1.8)


def finish_panels(loss_axis: Any, accuracy_axis: Any, x: str, letter: str, loss: str = "training loss U") -> None:
    """Name the axes of a panel of losses and one of accuracies."""
    loss_axis.set(xlabel=x, ylabel=loss, xscale="log", title=f"{letter} loss".strip())
    losses = [loss for line in loss_axis.lines for loss in line.get_ydata()]
    if losses and max(losses) > 3 * min(losses) > 0:
        loss_axis.set_yscale("log")
    accuracy_axis.set(xlabel=x, ylabel="test accuracy C (%)", xscale="log", title=f"{letter} accuracy".strip())
    accuracy_axis.set_ylim(0, 100)
    for axis in (loss_axis, accuracy_axis):
        name_curves(axis)


def name_curves(axis: Any) -> None:
    """Add grid and legend; where nothing has been run yet, say so."""
    if not axis.lines:
        say_not_run(axis)
        return
    axis.grid(alpha=0.25, linewidth=0.5)
    axis.legend(frameon=False)
