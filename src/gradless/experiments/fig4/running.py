"""The runs of Fig. 4, and the tables made of them."""

from pathlib import Path
from typing import Any

import numpy as np

from gradless import data
from gradless.data.functions import log_term
from gradless.engine.precision import precision_of
from gradless.experiments.fig4.medians import by_algorithm, last_before, overlap, step_of_outputs
from gradless.experiments.fig4.settings import ALGORITHMS, INIT, NAMES, Cell, Scale, cells
from gradless.experiments.tables import furthest, over, table_so_far, write_table
from gradless.experiments.workshop import Run, Stopped, Workshop, is_finished, read_run
from gradless.plots import held
from gradless.problems import make_problem
from gradless.records import has_checkpoint
from gradless.runs import rebuild

COLUMNS = (*Cell._fields, "chain", "step", "is_over", "loss", "pseudo_loss")  # of training.csv


def run(out: Path, scale: Scale, workshop: Workshop) -> None:
    """Train by all five algorithms, but for what the table has; then see what aMC's nets say."""
    done = over(table_so_far(out / "training.csv", *COLUMNS), _cell)
    try:
        for cell in cells(scale):
            if cell not in done:
                _train(cell, scale, workshop)
                collect(out, scale)
    except Stopped:
        collect(out, scale)
        # To rebuild nets takes a minute at the paper's scale: who stops a reproduction need not wait for it twice.
        if not (out / "outputs.csv").exists():
            collect_outputs(out, scale)
        raise
    collect_outputs(out, scale)


def _train(cell: Cell, scale: Scale, workshop: Workshop) -> None:
    steps = scale.steps if cell.algorithm in NAMES.values() else scale.gradient_steps
    workshop.train(
        cell.name,
        "log-sine",
        ALGORITHMS[cell.algorithm],
        options={"init": INIT},
        steps=steps,
        chains=scale.chains,
        seed=cell.block,
        record_every=max(1, steps // 500),
        stop_when_frozen=True,
    )


def _cell(row: dict[str, Any]) -> Cell:
    return Cell(row["algorithm"], row["block"])


def _stored(out: Path, scale: Scale) -> dict[Cell, Run]:
    return {cell: read_run(path) for cell in cells(scale) if has_checkpoint(path := out / "runs" / cell.name)}


def collect(out: Path, scale: Scale) -> None:
    """Save what all runs have reached.

    Runs that are not stored here stay as the table has them: a reproduction can go on from its table alone.
    """
    made = [row for cell, run in _stored(out, scale).items() for row in _records(cell, run)]
    rows = furthest(table_so_far(out / "training.csv", *COLUMNS), made, _cell)
    if rows:
        rows.sort(key=lambda row: (row["block"], list(ALGORITHMS).index(row["algorithm"])))
        write_table(out / "training.csv", rows)


def collect_outputs(out: Path, scale: Scale) -> None:
    """Save what aMC's nets say when epsilon = 0 starts on the sine, if some of each epsilon are stored here."""
    stored = _stored(out, scale)
    if not set(NAMES.values()) <= {cell.algorithm for cell in stored}:
        return
    of = by_algorithm(table_so_far(out / "training.csv"))
    step = step_of_outputs(of)
    said = (_outputs(name, stored, last_before(of[name], step)["overlap"], step) for name in NAMES.values())
    write_table(out / "outputs.csv", [row for rows in said for row in rows])


def _records(cell: Cell, run: Run) -> list[dict[str, Any]]:
    """Return the records of each chain, evenly spaced on a logarithmic axis as well as on a linear one."""
    step = run.table["step"]
    even = np.geomspace(1, max(1, step[-1]), 150), np.linspace(0, step[-1], 100)
    wanted = np.unique(np.searchsorted(step, np.concatenate(even)).clip(0, len(step) - 1))
    loss, pseudo_loss = (held(run.table[key].reshape(len(step), -1)) for key in ("loss", "pseudo_loss"))
    return [
        {
            **cell._asdict(),
            "chain": chain,
            "step": int(step[record]),
            "is_over": int(is_finished(run.path)),
            "loss": float(f"{loss[record, chain]:.6g}"),
            "pseudo_loss": float(f"{pseudo_loss[record, chain]:.6g}"),
        }
        for chain in range(loss.shape[1])
        for record in wanted
    ]


def _outputs(name: str, stored: dict[Cell, Run], typical: float, step: int) -> list[dict[str, Any]]:
    """Return what the net with the most typical overlap says at `step`, rebuilt from its accepted moves."""
    nets = []
    for cell, run in stored.items():
        if cell.algorithm == name:
            record = int(np.searchsorted(run.table["step"], step, side="right")) - 1
            loss, pseudo_loss = (
                held(run.table[key].reshape(len(run.table["step"]), -1))[record] for key in ("loss", "pseudo_loss")
            )
            distances = np.abs(overlap(loss, pseudo_loss) - typical)
            nets += [(distance, cell, record, chain) for chain, distance in enumerate(distances)]
    _, cell, record, chain = min(nets)
    problem = make_problem("log-sine", {"init": INIT})
    theta, target = data.log_sine()
    rebuilt = rebuild(stored[cell].path, int(stored[cell].table["step"][record]), problem)
    with precision_of(rebuilt.session.dtype):
        flattening = rebuilt.session.work.program.objective.flattening
        said = np.asarray(problem.outputs(flattening.unflatten(rebuilt.states[chain].x), theta))  # type: ignore[misc]
    columns = (theta, target, log_term(theta), said)
    return [
        {"algorithm": name, "step": step, "theta": t, "target": f, "log_term": slow, "output": output}
        for t, f, slow, output in np.concatenate(columns, axis=1).tolist()
    ]
