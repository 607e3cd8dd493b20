"""A named problem trained and recorded, and gone on with later: what the commands `train` and `resume` do."""

import contextlib
import dataclasses
import json
import shlex
from collections.abc import Callable, Iterator
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from gradless.engine import run as loop
from gradless.engine.batches import Batches, FullBatch, Minibatch, Progressive
from gradless.engine.callback import Callback
from gradless.engine.flat import which_are_trained
from gradless.engine.mesh import Mesh
from gradless.engine.plan import LARGEST, Plan, chain_numbers, check_whole
from gradless.engine.processes import is_first
from gradless.engine.recording import begin_recording, differing, go_along, go_on_recording
from gradless.engine.replay import Replay
from gradless.engine.result import Result
from gradless.engine.session import Listener, Session, is_x64, precision_of
from gradless.engine.stored import check_same_run, checked_meta
from gradless.engine.train import Metrics, prepare
from gradless.engine.tuning import Tuning, tune_sigma
from gradless.kernels import algorithm_from_json, algorithm_to_json
from gradless.problem import Problem
from gradless.problems import make_problem
from gradless.records import AcceptedLog, Checkpoint, RunDirectory, RunError, list_checkpoints, load, load_newest
from gradless.signal_norm import leaf_names
from gradless.threefry import NAME as GENERATOR
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


def prepare_problem(problem: Problem, algorithm: Algorithm, plan: Plan, mesh: Mesh | None) -> Session:
    """Return a session of a problem that has not begun."""
    given = {"data": problem.data, "metrics": problem.metrics, "test": problem.test}
    return prepare(algorithm, problem.loss, problem.init, plan, **given, mesh=mesh)


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
    mesh: Mesh | None = None,
) -> Session:
    """Return a session of a new run that has begun, recorded in `run` if that is given."""
    if run is not None and is_first():
        RunDirectory.check_free(run, overwrite)
    session = prepare_problem(problem, algorithm, plan, mesh)
    session.begin()
    if run is not None and is_first():
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
    trust: bool = False,
    listeners: list[Listener] | None = None,
    report: Callable[[str], None] | None = None,
    speculate: int | str | None = None,
    mesh: Mesh | None = None,
) -> Session:
    """Return a session that stands at the last good checkpoint of a stored run and records on from there.

    A target of more steps is remembered with the run; `time_budget` counts from now. The mesh may be another one.
    """
    directory = RunDirectory.resume(path) if is_first() else RunDirectory.open(path)
    try:
        settings = directory.settings
        problem = problem or stored_problem(path, settings, trust)
        algorithm = stored_algorithm(path, settings, problem) if algorithm is None else _same(algorithm, settings)
        plan = stored_plan(path, settings, problem)
        given: dict[str, Any] = {"steps": steps, "speculate": speculate}
        changed = {name: value for name, value in given.items() if value is not None}
        wanted = dataclasses.replace(plan, **changed, time_budget=time_budget)
        session = prepare_problem(problem, algorithm, wanted, mesh)
        if is_first():
            go_on_recording(session, directory, wanted, report)
        else:
            go_along(session, directory, report)
        session.time_budget += session.seconds_before
        if wanted.steps > plan.steps and is_first():
            directory.update_settings({**settings, "plan": {**settings["plan"], "steps": wanted.steps}})
    except BaseException:
        directory.close()
        raise
    session.listeners += listeners or []
    return session


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
        accepted = [log.read(place, reach) for place in range(len(meta["chains"]))]
    algorithm = stored_algorithm(path, settings, problem)
    session = prepare_problem(problem, algorithm, stored_plan(path, settings, problem), mesh=None)
    check_same_run(meta, settings, session)
    ends = stored_ends(newest)
    growths = [chain["growths"] for chain in meta["chains"]]
    replay = Replay(session, accepted, ends, growths, meta["selections"])
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


def stored_problem(path: str | Path, settings: dict[str, Any], trust: bool) -> Problem:
    """Return the problem that a stored run names; a module that it names is imported only if that is trusted."""
    name, options = settings.get("problem"), settings.get("options", {})
    if name is None and "optimize" in settings:
        again = f"`gradless optimize --resume --trust --run {shlex.quote(str(path))}`"
        raise RunError(f"{path} was made by gradless optimize: go on with {again}")
    if name is None:
        raise RunError(
            f"{path} was made by gl.train from a Python loss: go on with gl.resume(..., loss=, params=, data=)"
        )
    if not isinstance(name, str) or not isinstance(options, dict):
        raise _not_ours(path, "problem", name)
    if ":" in name and not trust:
        module = name.partition(":")[0]
        raise RunError(
            f"{path} is of the problem {name!r}, which runs the code of the module {module!r}: if you know that "
            "module, give --trust (in Python trust=True)"
        )
    return make_problem(name, options)


def _same(algorithm: Algorithm, settings: dict[str, Any]) -> Algorithm:
    """Return an algorithm that is given again; refuse another one than the run's. A function is known by its name."""
    given = json.loads(json.dumps(algorithm_to_json(algorithm)))
    if given != settings.get("algorithm"):
        raise RunError(f"algorithm must be that of the run, {settings.get('algorithm')}, got {given}: leave it out")
    return algorithm


def stored_algorithm(path: str | Path, settings: dict[str, Any], problem: Problem) -> Algorithm:
    """Return the algorithm of a stored run; a function among its settings is taken from the problem's own."""
    try:
        table = settings["algorithm"]
        own = problem.algorithms.get(table["name"], {})
        functions = {name: own[name] for name in own.keys() & table.keys() if callable(own[name])}
        return algorithm_from_json({**table, **functions})
    except (KeyError, TypeError, AttributeError, OverflowError):
        raise _not_ours(path, "algorithm", settings.get("algorithm")) from None


PLAN_KINDS: dict[str, Any] = {  # what Plan itself does not look at
    "stop_when_frozen": bool,
    "select_every": int | None,
    "select_fraction": int | float,
    "target_loss": int | float | None,
    "target_metric": str | None,
    "checkpoint_every": int | float,
}


def stored_plan(path: str | Path, settings: dict[str, Any], problem: Problem) -> Plan:
    """Return the plan of a stored run; refuse one that JAX would compute differently now than when it was begun."""
    table = settings.get("plan")
    try:
        plan = Plan.from_json(table, problem.error)  # type: ignore[arg-type]
        for number in chain_numbers(plan.chains):
            check_whole("chains", number, least=0, most=LARGEST)
    except (KeyError, TypeError, AttributeError, OverflowError):
        raise _not_ours(path, "plan", table) from None
    for name, kind in PLAN_KINDS.items():
        if not isinstance(getattr(plan, name), kind):
            raise _not_ours(path, name, getattr(plan, name))
    if settings.get("x64", is_x64()) != is_x64():
        mode = "with" if settings["x64"] else "without"
        raise RunError(f"{path} was made {mode} JAX's jax_enable_x64: set it so before you go on, or use gl.resume")
    if settings.get("generator", GENERATOR) != GENERATOR:
        raise RunError(f"{path} was made with random numbers by {settings['generator']}, this gradless has {GENERATOR}")
    return plan


def _not_ours(path: str | Path, name: str, value: Any) -> RunError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:80]}..."
    return RunError(f"{Path(path) / 'settings.json'} has a {name} that gradless did not write: {shown}")


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
    trust: bool = False,
    speculate: int | str | None = None,
    mesh: Mesh | None = None,
) -> Result:
    """Go on with a recorded run from its last good checkpoint, bit for bit as if it had never stopped.

    A run of a named problem needs nothing but its folder. A run of a Python loss stores no code and needs what it was
    begun with again.

    run: the folder of the run.
    steps: the total to reach, by default that of the run.
    loss, params, data, metrics, test: as they were given to `gl.train`.
    error: the error function of progressive batches.
    algorithm: only where the run's cannot be read back, because one of its settings was a function.
    time_budget: seconds after which the run stops, counted from now.
    callback: as in `gl.train`.
    speculate, mesh: as in `gl.train`; they may differ from those the run was begun with, and the chain stays the same.
    trust: whether to import the module of a run of `module:object`, which runs that module's code.
    """
    listeners: list[Listener] = [Callback(callback)] if callback is not None else []
    problem = None if loss is None else Problem(params, loss, data, test, metrics, error)
    with mode_of(run):
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
        session.go()
        return dataclasses.replace(session.result(), run=str(run))


@contextlib.contextmanager
def mode_of(run: str | Path) -> Iterator[None]:
    """Let JAX have float64, or not, as it had when the run was begun: the command line always has it."""
    with RunDirectory.open(run) as stored:
        wanted = stored.settings.get("x64")
    with jax.enable_x64(wanted if isinstance(wanted, bool) else is_x64()):
        yield


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
