"""`gradless sweep PROBLEM --sigma 1e-4:1e-1:13`."""

import dataclasses
import itertools
import math
from datetime import date
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from gradless.cli import flags as shared
from gradless.cli.console import told_if_possible
from gradless.cli.devices import DEVICE_OPTIONS, set_up
from gradless.cli.errors import one_line
from gradless.cli.follow import enable_float64, train_through
from gradless.cli.problem_options import load_problem
from gradless.engine.devices.processes import is_first
from gradless.engine.plan import MAX_CHAINS, check_whole
from gradless.records import next_run_path
from gradless.report.again import GRIDS


class Grid(click.ParamType):
    """START:END:NUMBER on a logarithmic grid, or values with commas between them."""

    name = "START:END:NUMBER|A,B,C"
    takes_several = True  # so that a settings file may have a list

    def __init__(self, is_count: bool = False):
        self.is_count = is_count  # as n_s is: a grid is rounded to whole numbers

    def convert(self, value: Any, param: Any, ctx: Any) -> np.ndarray:
        if isinstance(value, np.ndarray):
            return value
        try:
            if ":" not in str(value):
                return np.asarray([float(part) for part in str(value).split(",")])
            start, end, number = str(value).split(":")
            if not (float(start) > 0 and float(end) > 0 and 2 <= int(number) <= MAX_CHAINS):
                raise ValueError
            points = np.geomspace(float(start), float(end), int(number))
            return np.asarray(list(dict.fromkeys(np.rint(points)))) if self.is_count else points
        except ValueError:
            self.fail(f"must be START:END:NUMBER with positive ends (a log grid), or A,B,C, got {value!r}", param, ctx)


@click.pass_context
def sweep(ctx: click.Context, **flags: Any) -> None:
    enable_float64()
    with one_line():
        mesh = set_up(flags)
        problem, options = load_problem(ctx, flags)
        grids = {name: flags.pop(name) for name in GRIDS if flags.get(name) is not None}
        if not grids:
            raise ValueError("nothing to sweep: give a grid, for instance --sigma 1e-4:1e-1:13")
        check_whole("runs of a sweep", math.prod(map(len, grids.values())) * flags["seeds"], least=1, most=MAX_CHAINS)
        points = [point for point in itertools.product(*grids.values()) for _ in range(flags["seeds"])]
        plan = shared.make_plan(problem, flags | {"chains": len(points)})
        plan = dataclasses.replace(plan, shards=mesh.data if mesh else 1)
        first = dict(zip(grids, (float(value) for value in points[0]), strict=True))
        algorithm = dataclasses.replace(  # type: ignore[type-var]
            shared.make_algorithm(problem, flags | first, plan.steps),
            **{name: np.asarray(column) for name, column in zip(grids, zip(*points, strict=True), strict=True)},
        )
        folder = f"sweep-{flags['problem']}"
        run = flags["run"] or (str(next_run_path("runs", folder, date.today())) if is_first() else "")
    about = {"problem": flags["problem"], "options": options, "sweep": list(grids)}
    train_through(problem, algorithm, plan, run, about, flags, mesh)


@told_if_possible()
def tell(console: Console, run: str, swept: list[str], rows: list[dict[str, Any]]) -> None:
    """Print the median outcome per setting."""
    outcomes = [name for name in rows[0] if name not in ("chain", *swept)]
    table = Table(*swept, *outcomes, box=None, padding=(0, 2, 0, 0))
    for key, group in itertools.groupby(rows, key=lambda row: tuple(row[name] for name in swept)):
        members = list(group)
        medians = [f"{np.median([row[name] for row in members]):.5g}" for name in outcomes]
        table.add_row(*[f"{value:.3g}" for value in key], *medians)
    console.print(table)
    suffixes = [""] if len(swept) == 1 else [f"-{name}" for name in swept]
    pictures = ", ".join(str(Path(run) / f"sweep{suffix}.png") for suffix in suffixes)
    console.print(f"figure {pictures}, every run in {Path(run) / 'sweep.csv'}")


command = shared.command_with_problem(
    "sweep",
    [
        *[
            click.Option([f"--{name.replace('_', '-')}"], type=Grid(name == "n_s"), help="grid to sweep")
            for name in GRIDS
        ],
        click.Option(["--seeds"], type=click.IntRange(1), default=1, show_default=True, help="runs per setting"),
        *[option for option in shared.ALGORITHM_OPTIONS if option.name not in GRIDS],
        *shared.LENGTH_OPTIONS,
        *[option for option in shared.RUN_OPTIONS if option.name != "chains"],
        *DEVICE_OPTIONS,
        *shared.OUTPUT_OPTIONS,
    ],
    sweep,
    "Train PROBLEM at every point of a grid of settings, all in one compiled call; several grids make a product.",
)
