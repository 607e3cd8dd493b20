"""`gradless compare PROBLEM`."""

import dataclasses
from datetime import date
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from gradless.cli import flags as shared
from gradless.cli.console import plain_console
from gradless.cli.errors import one_line
from gradless.cli.follow import see_through, use_double_precision_where_asked
from gradless.cli.problem_options import load_problem
from gradless.cli.summary import spread
from gradless.engine.result import Result
from gradless.kernels import ALGORITHMS
from gradless.plots import columns, draw_comparison
from gradless.records import Metrics, RunDirectory, next_run_path
from gradless.runs import start_problem


@click.pass_context
def compare(ctx: click.Context, **flags: Any) -> None:
    use_double_precision_where_asked()
    with one_line():
        problem, options = load_problem(ctx, flags)
        names = list(dict.fromkeys(flags["algorithms"].split(",") if flags["algorithms"] else problem.algorithms))
        if not names:
            raise ValueError("the problem has settings for no algorithm: name some, for instance --algorithms mc,amc")
        for name in names:
            if name not in ALGORITHMS:
                raise ValueError(f"algorithms must be among {', '.join(ALGORITHMS)}, got {name!r}")
        _check_flags(flags, names)
        plan = shared.make_plan(problem, flags)
        algorithms = {name: _algorithm(problem, flags, name, plan.steps) for name in names}
        folder = flags["run"] or str(next_run_path("runs", f"compare-{flags['problem']}", date.today()))
    results: dict[str, Result] = {}
    for name, algorithm in algorithms.items():
        if not (flags["quiet"] or flags["json"]):
            click.echo(name)

        def make(listeners: list[Any], report: Any, name: str = name, algorithm: Any = algorithm) -> Any:
            with shared.giving_back(folder, flags):
                return start_problem(
                    problem,
                    algorithm,
                    plan,
                    run=Path(folder) / name,
                    about={"problem": flags["problem"], "options": options},
                    overwrite=flags["overwrite"],
                    listeners=listeners,
                    report=report,
                )

        results[name] = see_through(make, str(Path(folder) / name), flags | {"quiet": True})
    metric = next(iter(results[names[0]].metrics), None)
    with one_line():
        picture = draw_comparison(Path(folder) / "comparison", {name: _table(folder, name) for name in names}, metric)
    if not (flags["json"] or flags["quiet"]):
        _tell(results, picture)


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


def _tell(results: dict[str, Result], picture: Path) -> None:
    metrics = list(next(iter(results.values())).metrics)
    table = Table("algorithm", "loss U", *metrics, "samples", "time", box=None, padding=(0, 2, 0, 0))
    for name, result in results.items():
        values = [spread(result.metrics[metric]) for metric in metrics]
        table.add_row(name, spread(result.loss), *values, f"{result.samples:,}", f"{result.seconds:.1f} s")
    console = plain_console()
    console.print(table)
    console.print(f"figure {picture}")


command = shared.command_with_problem(
    "compare",
    [
        click.Option(["--algorithms"], help="with commas; by default all that the problem has settings for"),
        click.Option(["--sigma"], type=float, help="initial move scale, of mc and amc"),
        *[option for option in shared.ALGORITHM_OPTIONS if option.name not in ("algorithm", "sigma")],
        *shared.LENGTH_OPTIONS,
        *shared.RUN_OPTIONS,
        *shared.OUTPUT_OPTIONS,
    ],
    compare,
    "Train PROBLEM by several algorithms and plot loss and metric against steps, samples seen and time.",
)
