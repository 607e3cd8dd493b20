"""`gradless train PROBLEM`."""

import dataclasses
from datetime import date
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from gradless.cli import flags as shared
from gradless.cli.console import plain_console
from gradless.cli.devices import DEVICE_OPTIONS, set_up
from gradless.cli.errors import one_line
from gradless.cli.follow import enable_float64, train_through
from gradless.cli.problem_options import load_problem
from gradless.cli.tensorboard import check_tensorboard
from gradless.engine.devices.processes import first_checks, is_first
from gradless.engine.plan import Plan
from gradless.problem import Problem
from gradless.records import RunDirectory, next_run_path
from gradless.runs import tune_problem
from gradless.types import Algorithm


@click.pass_context
def train(ctx: click.Context, **flags: Any) -> None:
    enable_float64()
    with one_line():
        if flags["tensorboard"]:
            check_tensorboard()
        mesh = set_up(flags)
        first_checks(lambda: RunDirectory.check_free(flags["run"], flags["overwrite"]) if flags["run"] else None)
        problem, options = load_problem(ctx, flags)
        plan = dataclasses.replace(shared.make_plan(problem, flags), shards=mesh.data if mesh else 1)
        algorithm = choose_algorithm(problem, flags, plan)
        run = flags["run"] or (str(next_run_path("runs", flags["problem"], date.today())) if is_first() else "")
    about = {"problem": flags["problem"], "options": options}
    train_through(problem, algorithm, plan, run, about, flags, mesh)


def choose_algorithm(problem: Problem, flags: dict[str, Any], plan: Plan) -> Algorithm:
    """Return the algorithm; with `--sigma auto` try several sigmas first, and print what was tried."""
    if flags["sigma"] != "auto":
        return shared.make_algorithm(problem, flags, plan.steps)
    algorithm = shared.make_algorithm(problem, flags | {"sigma": None}, plan.steps)
    tuning = tune_problem(problem, algorithm, plan)
    if not (flags["quiet"] or flags["json"]):
        table = Table("sigma", "loss", "acceptance", box=None, padding=(0, 2, 0, 0))
        for sigma, loss, acceptance in zip(tuning.sigmas, tuning.losses, tuning.acceptances, strict=True):
            row = [f"{sigma:.2e}", f"{loss:.5g}", f"{acceptance:.3f}"]
            table.add_row(*row) if sigma != tuning.sigma else table.add_row(*row[:2], Text(f"{row[2]} best", "bold"))
        plain_console().print(f"--sigma auto: trial chains of {tuning.steps} steps", table)
    return shared.make_algorithm(problem, flags | {"sigma": float(tuning.sigma)}, plan.steps)


command = shared.command_with_problem(
    "train",
    [
        *shared.ALGORITHM_OPTIONS,
        *shared.LENGTH_OPTIONS,
        *shared.RUN_OPTIONS,
        *DEVICE_OPTIONS,
        click.Option(["--tensorboard"], is_flag=True, help="also write event files for TensorBoard"),
        *shared.OUTPUT_OPTIONS,
    ],
    train,
    "Train PROBLEM and record the run. Settings that no flag gives are the problem's own: the paper's, where it gives "
    "them.",
)
