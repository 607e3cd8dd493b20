"""A problem's run begun, recorded in a folder of its own: what the command `train` does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradless.engine.batches import Batches, FullBatch, Minibatch, Progressive
from gradless.engine.devices.mesh import Mesh
from gradless.engine.disk.recording import begun
from gradless.engine.plan import Plan
from gradless.engine.session import Listener, Session
from gradless.engine.train import prepare
from gradless.engine.tuning import Tuning, tune_sigma
from gradless.problem import Problem
from gradless.types import Algorithm


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
    session = begun(
        lambda: prepare_problem(problem, algorithm, plan, mesh), run, algorithm, plan, about, overwrite, report
    )
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
        progress=False,  # the command says what it is doing
    )
