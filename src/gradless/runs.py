"""A named problem trained and recorded, and gone on with later: what the commands `train` and `resume` do."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from gradless.engine import run as loop
from gradless.engine.batches import Batches, FullBatch, Minibatch, Progressive
from gradless.engine.plan import Plan
from gradless.engine.recording import begin_recording, differing, go_on_recording
from gradless.engine.replay import Replay
from gradless.engine.result import Result
from gradless.engine.session import Listener, Session, precision_of
from gradless.engine.train import Callback, Metrics, prepare
from gradless.engine.tuning import Tuning, tune_sigma
from gradless.kernels import algorithm_from_json
from gradless.problem import Problem
from gradless.problems import make_problem
from gradless.records import AcceptedLog, RunDirectory, RunError, list_checkpoints, load, load_newest
from gradless.types import Algorithm, Loss


def parse_batch(text: str, problem: Problem) -> Batches:
    """Return what `full`, `2000` or `progressive:500` means for a problem."""
    kind, _, number = text.partition(":")
    if text == "full":
        return FullBatch()
    try:
        if kind == "progressive" and number:
            if problem.error is None:
                raise ValueError("batch progressive needs a problem with an error function, and this one has none")
            return Progressive(_whole(number), problem.error)
        return Minibatch(_whole(text))
    except _NotWhole:
        raise ValueError(f"batch must be full, a size such as 2000, or progressive:500, got {text!r}") from None


class _NotWhole(ValueError):
    pass


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _NotWhole from None


def start_problem(
    problem: Problem,
    algorithm: Algorithm,
    plan: Plan,
    *,
    run: str | Path | None,
    about: dict[str, Any],
    overwrite: bool = False,
    listeners: list[Listener] | None = None,
    report: Callable[[str], None] | None = None,
) -> Session:
    """Return a session of a new run that has begun, recorded in `run` if that is given."""
    session = prepare(
        algorithm, problem.loss, problem.init, plan, data=problem.data, metrics=problem.metrics, test=problem.test
    )
    session.begin()
    if run is not None:
        begin_recording(session, run, algorithm, plan, about, overwrite, report)
    session.listeners += listeners or []
    return session


def tune_problem(problem: Problem, algorithm: Algorithm, plan: Plan) -> Tuning:
    """Return the best sigma for a problem, by short trial chains as `plan` would run them."""
    return tune_sigma(
        algorithm,
        problem.loss,
        problem.init,
        data=problem.data,
        batches=plan.batches if not isinstance(plan.batches, Progressive) else Minibatch(plan.batches.start),
        steps=max(50, min(plan.steps // 20, 500)),
        seed=plan.seed,
        precision=plan.precision,
    )


def reopen(
    path: str | Path,
    *,
    steps: int | None = None,
    time_budget: float | None = None,
    algorithm: Algorithm | None = None,
    problem: Problem | None = None,
    listeners: list[Listener] | None = None,
    report: Callable[[str], None] | None = None,
) -> Session:
    """Return a session that stands at the last good checkpoint of a stored run and records on from there."""
    with RunDirectory.open(path) as stored:
        settings = stored.settings
    problem = problem or stored_problem(path, settings)
    algorithm = algorithm or algorithm_from_json(settings["algorithm"])
    plan = Plan.from_json(settings["plan"], problem.error)
    plan = dataclasses.replace(plan, steps=steps or plan.steps, time_budget=time_budget)
    session = prepare(
        algorithm, problem.loss, problem.init, plan, data=problem.data, metrics=problem.metrics, test=problem.test
    )
    directory = RunDirectory.resume(path)
    try:
        go_on_recording(session, directory, plan, report)
    except BaseException:
        directory.close()
        raise
    session.listeners += listeners or []
    return session


class Rebuilt(NamedTuple):
    """A net at some step of a stored run, and how it compares with the checkpoints on the way."""

    step: int
    session: Session  # its chains stand where the run stood
    states: list[Any]  # one per chain
    checks: list[tuple[int, str | None]]  # checkpoint's step, and what differs if anything does


def rebuild(path: str | Path, step: int, problem: Problem | None = None, verify: bool = False) -> Rebuilt:
    """Rebuild the nets of a stored run at `step` from its seed and its log of accepted steps."""
    with RunDirectory.open(path) as stored:
        settings = stored.settings
        newest = load_newest(stored.checkpoints_path, warn=lambda words: None, set_aside=False)
        last = newest.step
        kept = [load(file) for file in list_checkpoints(stored.checkpoints_path)] if verify else []
        log = AcceptedLog(stored.accepted_path, len(newest.meta["chains"]))
        if not 0 <= step <= last:
            raise RunError(f"step must be from 0 to {last}, the last checkpoint of {path}, got {step}")
        reach = max([step, *[one.step for one in kept]])
        accepted = [log.read(place, reach) for place in range(len(newest.meta["chains"]))]
    problem = problem or stored_problem(path, settings)
    plan = Plan.from_json(settings["plan"], problem.error)
    algorithm = algorithm_from_json(settings["algorithm"])
    session = prepare(
        algorithm, problem.loss, problem.init, plan, data=problem.data, metrics=problem.metrics, test=problem.test
    )
    growths = [chain["growths"] for chain in newest.meta["chains"]]
    replay = Replay(session, accepted, growths, newest.meta["selections"])
    states, checks = None, []
    for one in sorted({step, *[checkpoint.step for checkpoint in kept]}):
        found = list(replay.go_to(one))
        states = found if one == step else states
        checks += [(one, differing(found, c.tensors)) for c in kept if c.step == one]
    return Rebuilt(step, session, states or [], checks)


def stored_problem(path: str | Path, settings: dict[str, Any]) -> Problem:
    """Return the problem that a stored run names."""
    if settings.get("problem") is None:
        raise RunError(
            f"{path} was made by gl.train from a Python loss: go on with gl.resume(..., loss=, params=, data=)"
        )
    return make_problem(settings["problem"], settings.get("options", {}))


def resume(
    run: str | Path,
    *,
    steps: int | None = None,
    loss: Loss | None = None,
    params: Any = None,
    data: Any = None,
    metrics: Metrics | None = None,
    test: Any = None,
    error: Callable[..., Any] | None = None,
    algorithm: Algorithm | None = None,
    time_budget: float | None = None,
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> Result:
    """Go on with a recorded run from its last good checkpoint, bit for bit as if it had never stopped.

    steps: the total to reach, by default that of the run. A run of a named problem needs nothing more. A run of a
    Python loss needs the `loss`, `params` and `data` (and `metrics`, `test`, `error`) it was begun with again.
    """
    problem = None if loss is None else Problem(params, loss, data, test, metrics, error)
    session = reopen(run, steps=steps, time_budget=time_budget, algorithm=algorithm, problem=problem)
    if callback:
        session.listeners.append(Callback(callback))
    session.go()
    return dataclasses.replace(session.result(), run=str(run))


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
        nets = [flattening.unflatten(state.x) for state in rebuilt.states]
    stacked = nets[0] if len(nets) == 1 else jax.tree.map(lambda *leaves: np.stack(leaves), *nets)
    leaves = jax.tree_util.tree_flatten_with_path(stacked)[0]
    return {jax.tree_util.keystr(path, simple=True, separator=".") or "x": leaf for path, leaf in leaves}
