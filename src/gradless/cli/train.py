"""`gradless train PROBLEM`."""

from datetime import date
from typing import Any

import click

from gradless.cli import flags as shared
from gradless.cli.errors import one_line
from gradless.cli.follow import see_through, use_double_precision_where_asked
from gradless.cli.problem_options import take_options
from gradless.problems import make_problem
from gradless.records import next_run_path
from gradless.runs import start_problem


@click.pass_context
def train(ctx: click.Context, **flags: Any) -> None:
    use_double_precision_where_asked()
    with one_line():
        options = take_options(ctx, flags)
        problem = make_problem(flags["problem"], options)
        plan = shared.make_plan(problem, flags)
        flags["sigma"] = shared.tuned_sigma(problem, flags, plan) if flags["sigma"] == "auto" else flags["sigma"]
        algorithm = shared.make_algorithm(problem, flags, plan.steps)
        run = flags["run"] or str(next_run_path("runs", flags["problem"], date.today()))
    about = {"problem": flags["problem"], "options": options}

    def make(listeners: list[Any], report: Any) -> Any:
        return start_problem(
            problem,
            algorithm,
            plan,
            run=run,
            about=about,
            overwrite=flags["overwrite"],
            listeners=listeners,
            report=report,
        )

    see_through(make, run, flags)


command = shared.command_with_problem(
    "train",
    [*shared.ALGORITHM_OPTIONS, *shared.LENGTH_OPTIONS, *shared.RUN_OPTIONS, *shared.OUTPUT_OPTIONS],
    train,
    "Train PROBLEM and record the run. What no flag sets is the problem's own choice, as in the paper.",
)
