"""What a stored run says it is of, read back from its settings; whatever they hold is looked at before it is used."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from gradless.engine.plan import Plan, chain_numbers
from gradless.engine.precision import is_x64
from gradless.kernels import algorithm_from_json, algorithm_to_json
from gradless.problem import Problem
from gradless.problems import make_problem
from gradless.records import RunDirectory, RunError, how_to_go_on
from gradless.threefry import NAME as GENERATOR
from gradless.types import Algorithm


def stored_problem(path: str | Path, settings: dict[str, Any], trust: bool) -> Problem:
    """Return the problem that a stored run names; a module that it names is imported only if that is trusted."""
    name, options = settings.get("problem"), settings.get("options", {})
    if name is None and "optimize" in settings:
        raise RunError(f"{path} was made by gradless optimize: go on with {how_to_go_on(path, settings)}")
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


def stored_algorithm(path: str | Path, settings: dict[str, Any], problem: Problem) -> Algorithm:
    """Return the algorithm of a stored run; a function among its settings is taken from the problem's own."""
    try:
        table = settings["algorithm"]
        own = problem.algorithms.get(table["name"], {})
        functions = {name: own[name] for name in own.keys() & table.keys() if callable(own[name])}
        return algorithm_from_json({**table, **functions})
    except (KeyError, TypeError, AttributeError, OverflowError):
        raise _not_ours(path, "algorithm", settings.get("algorithm")) from None


def check_same_algorithm(algorithm: Algorithm, settings: dict[str, Any]) -> None:
    """Refuse an algorithm given again that is not the run's. A function is known by its name."""
    given = json.loads(json.dumps(algorithm_to_json(algorithm)))
    if given != settings.get("algorithm"):
        raise RunError(f"algorithm must be that of the run, {settings.get('algorithm')}, got {given}: leave it out")


def stored_plan(path: str | Path, settings: dict[str, Any], problem: Problem) -> Plan:
    """Return the plan of a stored run; refuse one that JAX would compute differently now than when it was begun."""
    table = settings.get("plan")
    try:
        plan = Plan.from_json(table, problem.error)  # type: ignore[arg-type]
        chain_numbers(plan.chains)
    except (KeyError, TypeError, AttributeError, OverflowError):
        raise _not_ours(path, "plan", table) from None
    if settings.get("x64", is_x64()) != is_x64():
        mode = "with" if settings["x64"] else "without"
        raise RunError(f"{path} was made {mode} JAX's jax_enable_x64: set it so before you go on, or use gl.resume")
    if settings.get("generator", GENERATOR) != GENERATOR:
        raise RunError(f"{path} was made with random numbers by {settings['generator']}, this gradless has {GENERATOR}")
    return plan


@contextlib.contextmanager
def mode_of(run: str | Path) -> Iterator[None]:
    """Let JAX have float64, or not, as it had when the run was begun: the command line always has it."""
    with RunDirectory.open(run) as stored:
        wanted = stored.settings.get("x64")
    with jax.enable_x64(wanted if isinstance(wanted, bool) else is_x64()):
        yield


def _not_ours(path: str | Path, name: str, value: Any) -> RunError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:80]}..."
    return RunError(f"{Path(path) / 'settings.json'} has a {name} that gradless did not write: {shown}")
