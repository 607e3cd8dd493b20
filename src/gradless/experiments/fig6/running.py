"""The runs of Fig. 6, and the tables made of them."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from gradless.engine.flat import Flattening
from gradless.experiments.fig6.settings import DEEPER, DEPTHS, KINDS, TRAINED, Cell, Scale, cell_of, plan
from gradless.experiments.tables import over, reach, table_so_far, write_table
from gradless.experiments.workshop import Run, Workshop, is_finished, read_run
from gradless.problems import make_problem
from gradless.records import has_checkpoint

COLUMNS = (*Cell._fields, "chain", "steps", "loss", "induction", "end", "is_over")  # of runs.csv


def run(out: Path, scale: Scale, workshop: Workshop) -> None:
    """Train every net that the tables do not hold yet; what is there so far is saved even when time runs out."""
    done = over(table_so_far(out / "runs.csv", *COLUMNS), cell_of)
    try:
        for cell in plan(scale):
            if cell in done or (cell.depth == scale.deepest and _is_settled(out, scale)):
                continue
            layers = scale.layers_on if cell.kind == "aMC on" else scale.layers
            steps = min(scale.steps, layers // cell.depth)
            workshop.train(
                cell.name,
                "step",
                KINDS[cell.kind],
                options=cell.options,
                steps=steps,
                chains=scale.chains,
                seed=cell.block,
                target_loss=1e-4 if cell.depth in scale.shown and not cell.help else TRAINED,
                stop_when_frozen=True,
                record_every=max(1, steps // 1000),
            )
    finally:
        collect(out, scale)


def _is_settled(out: Path, scale: Scale) -> bool:
    """Return whether a net of the greatest depth has been trained: F6d asks for one."""
    rows = [row for row in _summaries(out, _stored(out, scale), scale) if row["depth"] == scale.deepest]
    return any(row["end"] == "trained" for row in rows)


def _stored(out: Path, scale: Scale) -> list[tuple[Cell, Run]]:
    """Return the runs that are stored here, but for those that the table has further on, from another machine."""
    noted = table_so_far(out / "runs.csv", *COLUMNS)
    cells = [cell for cell in plan(scale) if has_checkpoint(out / "runs" / cell.name)]
    runs = [(cell, read_run(out / "runs" / cell.name)) for cell in cells]
    return [
        (cell, run)
        for cell, run in runs
        if reach(summarise(cell, run), "steps") >= reach((row for row in noted if cell_of(row) == cell), "steps")
    ]


def collect(out: Path, scale: Scale) -> None:
    """Save what all runs have reached in a line each, and curves and outputs of those drawn.

    Runs that are not stored here stay as the tables have them: a reproduction can go on from its tables alone.
    """
    stored = _stored(out, scale)
    rows = _summaries(out, stored, scale)
    if not rows:
        return
    curves = _curves(out, stored, scale)
    at_hand = {_single(row) for row in curves}
    write_table(out / "runs.csv", rows)
    plain = [row for row in rows if not row["help"] and _single(row) in at_hand]
    # Of each kind and depth the run with the lowest loss, which comes last and stays.
    bests = {(row["kind"], row["depth"]): _single(row) for row in sorted(plain, key=_loss, reverse=True)}
    curves = [row | {"is_best": int(bests.get((row["kind"], row["depth"])) == _single(row))} for row in curves]
    curves = [row for row in curves if row["is_best"] or _is_drawn_singly(cell_of(row))]
    if curves:
        write_table(out / "curves.csv", curves)
    outputs = [
        row
        for cell, run in stored
        for chain in range(len(np.ravel(run.tensors["t"])))
        if cell.depth in scale.shown and bests.get((cell.kind, cell.depth)) == (cell, chain)
        for row in _outputs(cell, run, chain)
    ]
    new = {(row["kind"], row["depth"]) for row in outputs}
    outputs += [row for row in table_so_far(out / "outputs.csv") if (row["kind"], row["depth"]) not in new]
    if outputs:
        order = list(KINDS)
        write_table(out / "outputs.csv", sorted(outputs, key=lambda row: (order.index(row["kind"]), row["depth"])))


def _summaries(out: Path, stored: list[tuple[Cell, Run]], scale: Scale) -> list[dict[str, Any]]:
    return _with_noted(out / "runs.csv", [row for cell, run in stored for row in summarise(cell, run)], stored, scale)


def _curves(out: Path, stored: list[tuple[Cell, Run]], scale: Scale) -> list[dict[str, Any]]:
    """Return the curves of all plain nets that may be drawn."""
    rows = [
        row
        for cell, run in stored
        if not cell.help and cell.depth in DEPTHS
        for chain in range(len(np.ravel(run.tensors["t"])))
        for row in _curve(cell, run, chain)
    ]
    return _with_noted(out / "curves.csv", rows, stored, scale)


def _with_noted(
    path: Path, rows: list[dict[str, Any]], stored: list[tuple[Cell, Run]], scale: Scale
) -> list[dict[str, Any]]:
    """Return the rows of stored runs and those that the table has of others, in the order of the plan."""
    here = {cell for cell, _ in stored}
    order = {cell: place for place, cell in enumerate(plan(scale))}
    rows = rows + [row for row in table_so_far(path) if cell_of(row) not in here]
    return sorted(rows, key=lambda row: order.get(cell_of(row), len(order)))


def _is_drawn_singly(cell: Cell) -> bool:
    return cell.depth in DEEPER and cell.kind in ("Adam", "aMC on")


def _single(row: dict[str, Any]) -> tuple[Cell, int]:
    return cell_of(row), row["chain"]


def _loss(row: dict[str, Any]) -> float:
    return float(row["loss"])


def summarise(cell: Cell, run: Run) -> list[dict[str, Any]]:
    """Return one row per chain: how far it went, its loss, and when it first had U < 0.01."""
    losses = run.table["loss"].reshape(len(run.table["step"]), -1)
    frozen = run.table["is_frozen"].reshape(losses.shape)
    rows = []
    for chain, steps in enumerate(np.ravel(run.tensors["t"])):
        loss = losses[:, chain][np.isfinite(losses[:, chain])]
        below = run.table["step"][losses[:, chain] < TRAINED]
        end = "trained" if len(below) else "frozen" if frozen[:, chain].any() else "untrained"
        rows.append(
            {
                **cell._asdict(),
                "chain": chain,
                "steps": int(steps),
                "loss": float(loss[-1]),
                "induction": int(below[0]) if len(below) else "",
                "end": end,
                "is_over": int(is_finished(run.path)),
            }
        )
    return rows


def _curve(cell: Cell, run: Run, chain: int) -> list[dict[str, Any]]:
    step, loss = run.table["step"], run.table["loss"].reshape(len(run.table["step"]), -1)[:, chain]
    step, loss = step[np.isfinite(loss)], loss[np.isfinite(loss)]
    wanted = np.unique(np.searchsorted(step, np.geomspace(1, max(1, step[-1]), 120)).clip(0, len(step) - 1))
    return [
        {**cell._asdict(), "chain": chain, "is_best": 0, "step": int(step[i]), "loss": float(f"{loss[i]:.6g}")}
        for i in wanted
    ]


def _outputs(cell: Cell, run: Run, chain: int) -> list[dict[str, Any]]:
    problem = make_problem("step", cell.options)
    if not callable(problem.init) or problem.outputs is None:
        raise ValueError("the problem must have an init function and outputs")
    with jax.enable_x64(True):
        x = np.atleast_2d(run.tensors["state.x"])[chain]
        params = Flattening.of(problem.init(jax.random.key(0)), "float64").unflatten(jax.numpy.asarray(x))
        says = np.ravel(problem.outputs(params, problem.data[0]))
    theta, target = map(np.ravel, problem.data)
    return [
        {"kind": cell.kind, "depth": cell.depth, "theta": float(t), "target": float(f), "output": float(o)}
        for t, f, o in zip(theta, target, says, strict=True)
    ]
