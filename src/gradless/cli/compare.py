"""`gradless compare PROBLEM`."""

import dataclasses
import json
from datetime import date
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from gradless.cli import flags as shared
from gradless.cli.console import plain_console, told_if_possible
from gradless.cli.errors import one_line
from gradless.cli.follow import enable_float64, see_through
from gradless.cli.problem_options import load_problem
from gradless.cli.progress import print_json
from gradless.engine.disk.stored import checked_meta
from gradless.engine.plan import Plan
from gradless.engine.program import GOING
from gradless.engine.session import Session
from gradless.engine.summary import in_words
from gradless.kernels import ALGORITHMS, algorithm_to_json
from gradless.plots import columns, draw_comparison
from gradless.records import (
    COLUMNS,
    Checkpoint,
    Metrics,
    RunDirectory,
    RunError,
    has_checkpoint,
    in_shell,
    load_newest,
    next_run_path,
)
from gradless.report.curves import last_known, overall_acceptance
from gradless.report.listing import is_run
from gradless.runs import reopen, start_problem
from gradless.types import Algorithm


@click.pass_context
def compare(ctx: click.Context, **flags: Any) -> None:
    enable_float64()
    with one_line():
        problem, options = load_problem(ctx, flags)
        names = list(dict.fromkeys(problem.algorithms if flags["algorithms"] is None else _named(flags["algorithms"])))
        if not names:
            raise ValueError("the problem has settings for no algorithm: name some, for instance --algorithms mc,amc")
        for name in names:
            if name not in ALGORITHMS:
                raise ValueError(f"algorithms must be among {', '.join(ALGORITHMS)}, got {name!r}")
        _check_flags(flags, names)
        plan = shared.make_plan(problem, flags)
        algorithms = {name: _algorithm(problem, flags, name, plan.steps) for name in names}
        folder = flags["run"] or str(next_run_path("runs", f"compare-{flags['problem']}", date.today()))
        if is_run(Path(folder)):
            raise RunError(f"{folder} holds a run, and a comparison is a folder of several: choose another")
    about = {"problem": flags["problem"], "options": options}
    again = f"the same command, with --run {in_shell(folder)}"
    for name, algorithm in algorithms.items():
        path = Path(folder) / name
        with one_line():
            begun = None if flags["overwrite"] else _begun(path, about, algorithm, plan)
        if begun is not None and _is_over(begun, plan):
            if flags["quiet"] or flags["json"]:
                _tell_again(str(path), _table(folder, name), algorithm, flags["json"])
            continue
        if not (flags["quiet"] or flags["json"]):
            with told_if_possible():
                click.echo(name)

        def make(
            listeners: list[Any], report: Any, path: Path = path, algorithm: Any = algorithm, begun: Any = begun
        ) -> Session:
            given = {"listeners": listeners, "report": report}
            if begun is not None:
                session = reopen(path, problem=problem, algorithm=algorithm, **given)
                session.time_budget = np.inf if plan.time_budget is None else plan.time_budget
                return session
            with shared.giving_back(folder, flags):
                return start_problem(
                    problem, algorithm, plan, run=path, about=about, overwrite=flags["overwrite"], **given
                )

        is_resumed = begun is not None
        see_through(make, str(path), again=again, is_quiet=True, is_json=flags["json"], is_resumed=is_resumed)
    with one_line():
        tables = {name: _table(folder, name) for name in names}
        metrics = [name for name in tables[names[0]] if name not in COLUMNS]
        picture = draw_comparison(Path(folder) / "comparison", tables, next(iter(metrics), None))
    if not (flags["json"] or flags["quiet"]):
        _tell(tables, metrics, picture)


def _named(algorithms: str) -> list[str]:
    return [name.strip() for name in algorithms.split(",")]


def _begun(path: Path, about: dict[str, Any], algorithm: Algorithm, plan: Plan) -> Checkpoint | None:
    """Return where a run of the same settings stands, if there is one; refuse one of others."""
    if not has_checkpoint(path):
        return None
    wanted = {**about, "algorithm": algorithm_to_json(algorithm), "plan": plan.to_json()}
    with RunDirectory.open(path) as run:
        stored = {name: run.settings.get(name) for name in wanted}
        if _without_sitting(stored) != _without_sitting(json.loads(json.dumps(wanted))):
            raise RunError(f"{path} holds a run of other settings: give those, or --overwrite, or another --run")
        return load_newest(run.checkpoints_path, warn=lambda words: None, set_aside=False)


def _without_sitting(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings but for those that may differ from one sitting to the next."""
    plan = settings["plan"] if isinstance(settings["plan"], dict) else {}
    return settings | {"plan": plan | {"time_budget": None, "checkpoint_every": None}}


def _is_over(stored: Checkpoint, plan: Plan) -> bool:
    """Return whether all chains are at their end: of the steps or the time, at a target, frozen or diverged."""
    if stored.step >= plan.steps:
        return True
    if plan.time_budget is not None and checked_meta(stored)["spent"] >= plan.time_budget:
        return True
    status = stored.tensors.get("status")
    return status is not None and bool((status != GOING).all())


def _check_flags(flags: dict[str, Any], names: list[str]) -> None:
    """Refuse a flag that none of the algorithms has."""
    known = {field.name for name in names for field in dataclasses.fields(ALGORITHMS[name])}
    for flag in shared.ALGORITHM_FLAGS:
        if flags.get(flag) is not None and flag not in known:
            raise ValueError(f"--{flag.replace('_', '-')} applies to none of {', '.join(names)}")


def _algorithm(problem: Any, flags: dict[str, Any], name: str, steps: int) -> Any:
    """Return one of the algorithms, with those of the flags that it has."""
    fields = {field.name for field in dataclasses.fields(ALGORITHMS[name])}
    own = {flag: value for flag, value in flags.items() if flag not in shared.ALGORITHM_FLAGS or flag in fields}
    return shared.make_algorithm(problem, own | {"algorithm": name}, steps)


def _table(folder: str, name: str) -> dict[str, Any]:
    with RunDirectory.open(Path(folder) / name) as run:
        return columns(Metrics(run.metrics_path).rows())


@told_if_possible()
def _tell_again(run: str, records: dict[str, Any], algorithm: Algorithm, is_json: bool) -> None:
    """Tell how a run that was over before has ended, from its records, as it did then."""
    last = _last(records)
    metrics = {name: last[name] for name in last if name not in COLUMNS}
    if not is_json:
        ends = [f"U {in_words(last['loss'])}", *(f"{name} {in_words(metrics[name])}" for name in metrics)]
        click.echo("  ".join([*ends, run]))
        return
    sums = {name: int(np.nansum(last[name])) for name in ("evaluations", "samples", "nonfinite")}
    about = {"steps": int(records["step"][-1]), "seconds": float(records["seconds"][-1]), "run": run}
    each = {"loss": last["loss"], "sigma": last["sigma"], "acceptance": overall_acceptance(records)}
    told = {name: _alone(values) for name, values in each.items()}
    told["metrics"] = {name: _alone(values) for name, values in metrics.items()}
    print_json({"event": "result", **told, **sums, **about, "algorithm": algorithm_to_json(algorithm)})


def _alone(values: np.ndarray) -> Any:
    return values[0] if len(values) == 1 else values


def _last(records: dict[str, Any]) -> dict[str, Any]:
    """Return the last numbers: of several chains some may have ended before; one alone that shows NaN has diverged."""
    return {column: values[-1:] if values.ndim == 1 else last_known(values) for column, values in records.items()}


@told_if_possible()
def _tell(tables: dict[str, dict[str, Any]], metrics: list[str], picture: Path) -> None:
    table = Table("algorithm", "loss U", *metrics, "samples", "time", box=None, padding=(0, 2, 0, 0))
    for name, records in tables.items():
        last = _last(records)
        numbers = [in_words(last[column]) for column in ("loss", *metrics)]
        samples, seconds = int(np.sum(last["samples"])), float(np.max(last["seconds"]))
        table.add_row(name, *numbers, f"{samples:,}", f"{seconds:.1f} s")
    console = plain_console()
    console.print(table)
    console.print(f"figure {picture}")


command = shared.command_with_problem(
    "compare",
    [
        click.Option(
            ["--algorithms"], help="names with commas between (default: all that the problem has settings for)"
        ),
        click.Option(["--sigma"], type=float, help="initial move scale, of mc and amc"),
        *[option for option in shared.ALGORITHM_OPTIONS if option.name not in ("algorithm", "sigma")],
        *shared.LENGTH_OPTIONS,
        *shared.RUN_OPTIONS,
        *shared.OUTPUT_OPTIONS,
    ],
    compare,
    "Train PROBLEM by several algorithms and plot loss and metric against steps, samples seen and time.",
)
