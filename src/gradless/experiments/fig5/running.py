"""The runs of Fig. 5, and the tables made of them."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gradless.experiments.fig5.problem import PROBLEM
from gradless.experiments.fig5.regimes import steepest
from gradless.experiments.fig5.settings import AGAIN, COLUMNS, FROM_LARGE, KINDS, LARGE, TARGET, TRAINING, Scale
from gradless.experiments.tables import furthest, over, table_so_far, write_table
from gradless.experiments.workshop import Workshop, is_finished, read_run
from gradless.problems import make_problem
from gradless.records import has_checkpoint
from gradless.runs.replay import rebuild
from gradless.types import Algorithm


def run(out: Path, scale: Scale, workshop: Workshop) -> None:
    """Train by aMC, by GD from its large gradients, then by GD and Adam, but for what the tables have to its end.

    A run by aMC that was stopped goes on after GD from its large gradients, if these are known: it takes far longer.
    """
    known = table_so_far(out / TRAINING, *COLUMNS)
    done = over([*known, *table_so_far(out / FROM_LARGE, *COLUMNS)], _name)
    again = [name for name in AGAIN if scale.steps_again and name not in done]
    if "aMC" in done and steepest([row for row in known if _name(row) == "aMC"], scale) is None:
        again = []  # it has never left the plateau
    shared = {"hidden": scale.hidden, "shrink": scale.shrink}
    amc = shared | {"with_norm": True}

    def train(name: str, algorithm: Algorithm, steps: int, record_every: int, **settings: Any) -> None:
        plan = {"options": shared, "batch": str(scale.batch), "record_every": record_every, **settings}
        workshop.train(name, PROBLEM, algorithm, steps=steps, **plan)

    def train_by_amc() -> None:
        target = f"accuracy >= {TARGET}"
        train("aMC", KINDS["aMC"], scale.steps, scale.record_every, options=amc, target_metric=target)

    try:
        if again and not (out / LARGE).exists() and not save_large(out, scale, amc, workshop.tell):
            train_by_amc()
            save_large(out, scale, amc, workshop.tell)
        if (out / LARGE).exists():
            for name in again:
                start = shared | {"start": str(out / LARGE)}
                train(name, AGAIN[name], scale.steps_again, max(1, scale.steps_again // 20), options=start)
        if "aMC" not in done:
            train_by_amc()
        for kind in ("GD", "Adam"):
            if kind not in done:
                train(kind, KINDS[kind], scale.steps_gradient, scale.record_every)
    finally:
        collect(out, scale)


def save_large(out: Path, scale: Scale, options: dict[str, Any], tell: Callable[[str], None]) -> bool:
    """Save the net of aMC's path where the gradients are largest; return whether the stored run has got that far."""
    path = out / "runs" / "aMC"
    step = steepest(list(_stored_records(path)), scale) if has_checkpoint(path) else None
    if step is not None:
        tell(f"aMC's gradients are largest about step {step:,}: its net there is rebuilt from its log")
        (state,) = rebuild(path, step, make_problem(PROBLEM, options)).states
        np.save(out / LARGE, np.asarray(state.x))
    return step is not None


def _name(row: dict[str, Any]) -> str:
    return str(row["algorithm"])


def collect(out: Path, scale: Scale) -> None:
    """Save the records of all runs in one table, and what was run in another; what is not stored here stays in them."""
    rows = _records(out, TRAINING, KINDS)
    if rows:
        write_table(out / TRAINING, rows)
        about = [
            {"algorithm": kind, "steps": max(row["step"] for row in rows if _name(row) == kind)}
            | {"shrink": scale.shrink, "batch": scale.batch, "hidden": scale.hidden}
            for kind in dict.fromkeys(map(_name, rows))
        ]
        write_table(out / "runs.csv", about)
    again = _records(out, FROM_LARGE, AGAIN)
    if again:
        write_table(out / FROM_LARGE, again)


def _records(out: Path, table: str, names: Iterable[str]) -> list[dict[str, Any]]:
    """Return the records of the runs of these names, as far as they got here or the table has them."""
    paths = [out / "runs" / name for name in names]
    made = [row for path in paths if has_checkpoint(path) for row in _stored_records(path)]
    order = list(names)
    return sorted(furthest(table_so_far(out / table), made, _name), key=lambda row: order.index(_name(row)))


def _stored_records(path: Path) -> Iterator[dict[str, Any]]:
    table = read_run(path).table
    for i, step in enumerate(table["step"]):
        values = {key: float(table[key][i]) for key in ("loss", "accuracy", "acceptance", "sigma")}
        values["gradient_norm"] = float(table["gradient_norm"][i]) if "gradient_norm" in table else float("nan")
        yield {"algorithm": path.name, "step": int(step), **values, "is_over": int(is_finished(path))}
