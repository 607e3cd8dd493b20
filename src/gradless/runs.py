"""A named problem trained and recorded, and gone on with later: what the commands `train` and `resume` do."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradless.engine.batches import Batches, FullBatch, Minibatch, Progressive
from gradless.engine.plan import Plan
from gradless.engine.recording import begin_recording, go_on_recording
from gradless.engine.result import Result
from gradless.engine.session import Listener, Session
from gradless.engine.train import Callback, Metrics, prepare
from gradless.kernels import algorithm_from_json
from gradless.problem import Problem
from gradless.problems import make_problem
from gradless.records import RunDirectory, RunError
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
    if run is not None:
        begin_recording(session, run, algorithm, plan, about, overwrite, report)
    session.listeners += listeners or []
    session.begin()
    return session


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


def stored_problem(path: str | Path, settings: dict[str, Any]) -> Problem:
    """Return the problem that a stored run names."""
    if settings.get("problem") is None:
        raise RunError(f"{path} was made by gl.train from a Python loss: go on with gl.resume(..., loss=, params=, data=)")
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
