"""`gradless resume RUN`."""

from typing import Any

import click

from gradless.cli.devices import DEVICE_OPTIONS, set_up
from gradless.cli.errors import one_line
from gradless.cli.flags import Duration
from gradless.cli.follow import enable_float64, resume_command, see_through


@click.command()
@click.argument("run", type=click.Path())
@click.option("--steps", type=click.IntRange(1), help="total number of steps to reach")
@click.option("--time", type=Duration(), help="stop after this time from now, for instance 2h")
@click.option("--trust", is_flag=True, help="run the code of the module that a run of module:object names")
@click.option("--tensorboard", is_flag=True, help="write event files, also of a run begun without them")
@click.option("--quiet", is_flag=True, help="only the last line")
@click.option("--json", is_flag=True, help="one JSON object per line, for machines")
def command(run: str, **flags: Any) -> None:
    """Continue RUN from its last good checkpoint, bit for bit as if it had never stopped.

    Without --steps and --time it continues to its original limit: its steps, or the rest of its time.

    A run of your own problem (module:object) needs --trust: its settings say which module is imported, and a run that
    came from elsewhere could name any.
    """
    enable_float64()
    with one_line():
        mesh = set_up(flags)
    from gradless.runs import reopen

    def make(listeners: list[Any], report: Any) -> Any:
        session = reopen(
            run,
            steps=flags["steps"],
            time_budget=flags["time"],
            trust=flags["trust"],
            listeners=listeners,
            report=report,
            speculate=flags["speculate"],
            mesh=mesh,
        )
        if session.t >= session.steps and not flags["quiet"]:
            more = "a larger --steps" if flags["steps"] else "--steps"
            report(f"nothing to do: {run} has made {session.t:,} steps; {more} gives it more")
        elif session.time_budget <= session.spent and not flags["quiet"]:
            report(f"nothing to do: {run} has had its time; --time or --steps gives it more")
        return session

    see_through(
        make,
        run,
        again=resume_command(run, flags["trust"]),
        is_quiet=flags["quiet"],
        is_json=flags["json"],
        has_events=flags["tensorboard"],
        is_resumed=True,
    )


command.params += DEVICE_OPTIONS
