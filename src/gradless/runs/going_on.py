"""A stored run gone on with: what the command `resume` does."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradless.engine.callback import Callback
from gradless.engine.devices.mesh import Mesh
from gradless.engine.devices.processes import is_first
from gradless.engine.disk.recording import go_along, go_on_recording
from gradless.engine.plan import LARGEST
from gradless.engine.progress import watching
from gradless.engine.result import Result
from gradless.engine.session import Listener, Session
from gradless.engine.train import Metrics
from gradless.problem import Problem
from gradless.records import RunDirectory
from gradless.runs.settings import check_same_algorithm, mode_of, stored_algorithm, stored_plan, stored_problem
from gradless.runs.starting import prepare_problem
from gradless.types import Algorithm, Loss


def reopen(
    path: str | Path,
    *,
    steps: int | None = None,
    time_budget: float | None = None,
    algorithm: Algorithm | None = None,
    problem: Problem | None = None,
    trust: bool = False,
    listeners: list[Listener] | None = None,
    report: Callable[[str], None] | None = None,
    speculate: int | str | None = None,
    mesh: Mesh | None = None,
) -> Session:
    """Return a session that stands at the last good checkpoint of a stored run and records on from there.

    Without a limit it goes on to what the run was meant for: its steps, or the rest of its time. `time_budget` counts
    from now. More steps than it was meant for are remembered with the run, in the place of its time. The mesh may be
    another one.
    """
    directory = RunDirectory.resume(path) if is_first() else RunDirectory.open(path)
    try:
        settings = directory.settings
        problem = problem or stored_problem(path, settings, trust)
        if algorithm is None:
            algorithm = stored_algorithm(path, settings, problem)
        else:
            check_same_algorithm(algorithm, settings)
        plan = stored_plan(path, settings, problem)
        given: dict[str, Any] = {"steps": steps, "speculate": speculate}
        changed = {name: value for name, value in given.items() if value is not None}
        if steps is not None or time_budget is not None:
            changed["time_budget"] = time_budget
        wanted = dataclasses.replace(plan, **changed)
        session = prepare_problem(problem, algorithm, wanted, mesh)
        if is_first():
            go_on_recording(session, directory, wanted, report)
        else:
            go_along(session, directory, report)
        if time_budget is not None:
            session.time_budget += session.spent
        meant = {**settings["plan"], "steps": steps, "time_budget": None}
        is_more = steps is not None and (steps >= plan.steps or plan.steps == LARGEST)
        if is_more and meant != settings["plan"] and is_first():
            directory.update_settings({**settings, "plan": meant})
    except BaseException:
        directory.close()
        raise
    session.listeners += listeners or []
    return session


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
    progress: bool | None = None,
    trust: bool = False,
    speculate: int | str | None = None,
    mesh: Mesh | None = None,
) -> Result:
    """Continue a recorded run from its last good checkpoint, bit for bit as if it had never stopped.

    A run of a named problem needs nothing but its folder. A run of a Python loss stores no code: what it was begun
    with must be given again.

    run: the folder of the run.
    steps: the total to reach; without it and `time_budget` the run continues to its original limit: its steps, or
        the rest of its time.
    loss, params, data, metrics, test: as they were given to `gl.train`.
    error: the error function of progressive batches.
    algorithm: needed only if the run's cannot be read back, because one of its settings was a function.
    time_budget: seconds after which the run stops, counted from now.
    callback, progress: as in `gl.train`.
    speculate, mesh: as in `gl.train`; they may differ from those the run was begun with, and the chain stays the same.
    trust: whether to import the module of a run of `module:object`, which runs that module's code.
    """
    listeners: list[Listener] = [Callback(callback)] if callback is not None else []
    problem = None if loss is None else Problem(params, loss, data, test, metrics, error)
    others = {"params": params, "data": data, "metrics": metrics, "test": test, "error": error}
    if problem is None and (given := [name for name, value in others.items() if value is not None]):
        raise ValueError(
            f"{', '.join(given)} without loss: a run of a named problem has its own, and a run of a Python loss needs "
            "loss= too"
        )
    with mode_of(run), watching(progress) as watchers:
        session = reopen(
            run,
            steps=steps,
            time_budget=time_budget,
            algorithm=algorithm,
            problem=problem,
            trust=trust,
            listeners=listeners,
            speculate=speculate,
            mesh=mesh,
        )
        session.listeners[:0] = watchers
        session.go()
        return dataclasses.replace(session.result(), run=str(run))
