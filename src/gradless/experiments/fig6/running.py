"""The runs of Fig. 6, and the tables made of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gradless.engine.flat import Flattening
from gradless.experiments.claims import write_table
from gradless.experiments.fig6.settings import DEEPER, DEPTHS, KINDS, TRAINED, Cell, Scale, plan
from gradless.experiments.workshop import Run, Workshop, has_checkpoint, is_finished, read_run
from gradless.problems import make_problem


def run(out: Path, scale: Scale, workshop: Workshop) -> None:
    """Train every net; what is there so far is saved even when time runs out."""
    try:
        for cell in plan(scale):
            if cell.depth == scale.deepest and _is_settled(out, scale):
                continue  # F6d asks for one trained net
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
    found = [row for cell, run in _stored(out, scale) if cell.depth == scale.deepest for row in summarise(cell, run)]
    return any(row["end"] == "trained" for row in found)


def _stored(out: Path, scale: Scale) -> Iterator[tuple[Cell, Run]]:
    for cell in plan(scale):
        path = out / "runs" / cell.name
        if has_checkpoint(path):
            yield cell, read_run(path)


def collect(out: Path, scale: Scale) -> None:
    """Save what the stored runs have reached: all of them in a line each, curves and outputs of those drawn."""
    stored = list(_stored(out, scale))
    rows = [row for cell, run in stored for row in summarise(cell, run)]
    if not rows:
        return
    curves: list[dict[str, Any]] = []
    outputs: list[dict[str, Any]] = []
    bests = {_key(row): row for row in sorted(rows, key=lambda row: -row["loss"])}
    for cell, run in stored:
        for chain in range(len(np.ravel(run.tensors["t"]))):
            best = bests.get((cell.kind, cell.depth, cell.help))
            is_best = best is not None and (best["init"], best["block"], best["chain"]) == (*cell[2:4], chain)
            if cell.help or cell.depth not in DEPTHS:
                continue
            if is_best or (cell.depth in DEEPER and cell.kind in ("Adam", "aMC on")):
                curves += _curve(cell, run, chain, is_best)
            if is_best and cell.depth in scale.shown:
                outputs += _outputs(cell, run, chain)
    write_table(out / "runs.csv", rows)
    if curves:
        write_table(out / "curves.csv", curves)
    if outputs:
        write_table(out / "outputs.csv", outputs)


def _key(row: dict[str, Any]) -> tuple[str, int, str]:
    return row["kind"], row["depth"], row["help"]


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


def _curve(cell: Cell, run: Run, chain: int, is_best: bool) -> list[dict[str, Any]]:
    step, loss = run.table["step"], run.table["loss"].reshape(len(run.table["step"]), -1)[:, chain]
    step, loss = step[np.isfinite(loss)], loss[np.isfinite(loss)]
    wanted = np.unique(np.searchsorted(step, np.geomspace(1, max(1, step[-1]), 120)).clip(0, len(step) - 1))
    return [
        {**cell._asdict(), "chain": chain, "is_best": int(is_best), "step": int(step[i]), "loss": float(loss[i])}
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
