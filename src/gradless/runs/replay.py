"""The nets of a stored run at any of its steps, rebuilt from its seed and its log: what the command `replay` does."""

from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from gradless.engine import loop
from gradless.engine.disk.recording import differing
from gradless.engine.disk.replay import Replay
from gradless.engine.disk.stored import check_same_run, checked_meta, stored_copies
from gradless.engine.flat import which_are_trained
from gradless.engine.precision import precision_of
from gradless.engine.session import Session
from gradless.problem import Problem
from gradless.records import AcceptedLog, Checkpoint, RunDirectory, RunError, list_checkpoints, load, load_newest
from gradless.runs.settings import stored_algorithm, stored_plan, stored_problem
from gradless.runs.starting import prepare_problem
from gradless.signal_norm import leaf_names


class Rebuilt(NamedTuple):
    """A net at some step of a stored run, and how it compares with the checkpoints on the way."""

    step: int
    session: Session  # of the run's problem and plan, not begun: the states are beside it
    states: list[Any]  # one per chain
    checks: list[tuple[int, str | None]]  # checkpoint's step, and what differs if anything does


def rebuild(
    path: str | Path, step: int, problem: Problem | None = None, verify: bool = False, trust: bool = False
) -> Rebuilt:
    """Rebuild the nets of a stored run at `step` from its seed and its log of accepted steps."""
    with RunDirectory.open(path) as stored:
        settings = stored.settings
        problem = problem or stored_problem(path, settings, trust)
        newest = load_newest(stored.checkpoints_path, warn=lambda words: None, set_aside=False)
        meta, last = checked_meta(newest), newest.step
        kept = [load(file) for file in list_checkpoints(stored.checkpoints_path)] if verify else []
        log = AcceptedLog(stored.accepted_path, len(meta["chains"]))
        if not 0 <= step <= last:
            raise RunError(f"step must be from 0 to {last}, the last checkpoint of {path}, got {step}")
        reach = max([step, *[one.step for one in kept]])
        accepted = log.read_all(reach)
    algorithm = stored_algorithm(path, settings, problem)
    session = prepare_problem(problem, algorithm, stored_plan(path, settings, problem), mesh=None)
    check_same_run(meta, settings, session)
    ends = stored_ends(newest)
    growths = [chain["growths"] for chain in meta["chains"]]
    replay = Replay(session, accepted, ends, growths, stored_copies(newest, session))
    states, checks = None, []
    for one in sorted({step, *[checkpoint.step for checkpoint in kept]}):
        found = list(replay.go_to(one))
        states = found if one == step else states
        checks += [(one, differing(found, c.tensors)) for c in kept if c.step == one]
    return Rebuilt(step, session, states or [], checks)


def stored_ends(checkpoint: Checkpoint) -> list[int]:
    """Return the step at which each chain of a checkpoint stands."""
    found = checkpoint.tensors.get("t")
    if found is None or found.dtype.kind != "i" or found.shape != (len(checkpoint.meta["chains"]),):
        raise RunError(f"{checkpoint.path} is not of a run of gradless: it does not say where its chains stand")
    return found.tolist()


def standing(rebuilt: Rebuilt) -> list[tuple[float, dict[str, float]]]:
    """Return loss (on all data) and metrics of rebuilt nets."""
    work = rebuilt.session.work
    with precision_of(rebuilt.session.dtype):
        return [
            (
                float(loop.evaluate_loss(work.program, state.x, work.data)),
                {name: float(v) for name, v in loop.evaluate_metrics(work.program, state.x, work.test).items()},
            )
            for state in rebuilt.states
        ]


def named_parameters(rebuilt: Rebuilt) -> dict[str, Any]:
    """Return the parameters of rebuilt nets by name, chain axis first when there are several."""
    flattening = rebuilt.session.work.program.objective.flattening
    with precision_of(rebuilt.session.dtype):
        points = [np.asarray(state.x) for state in rebuilt.states]
        nets = flattening.unflatten(jax.numpy.asarray(points[0] if len(points) == 1 else np.stack(points)))
    paths, leaves = zip(*compress(jax.tree_util.tree_flatten_with_path(nets)[0], which_are_trained(nets)), strict=True)
    return {name or "x": leaf for name, leaf in zip(leaf_names(paths), leaves, strict=True)}
