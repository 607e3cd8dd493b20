"""`gradless resume RUN`."""

from typing import Any

import click

from gradless.cli.flags import Duration
from gradless.cli.follow import see_through, use_double_precision_where_asked


@click.command()
@click.argument("run", type=click.Path())
@click.option("--steps", type=click.IntRange(1), help="total number of steps to reach; by default that of the run")
@click.option("--time", type=Duration(), help="stop after this time, for instance 2h")
@click.option("--quiet", is_flag=True, help="only the last line")
@click.option("--json", is_flag=True, help="one JSON object per line, for machines")
def command(run: str, **flags: Any) -> None:
    """Go on with RUN from its last good checkpoint, bit for bit as if it had never stopped."""
    use_double_precision_where_asked()
    from gradless.runs import reopen

    def make(listeners: list[Any], report: Any) -> Any:
        return reopen(run, steps=flags["steps"], time_budget=flags["time"], listeners=listeners, report=report)

    see_through(make, run, flags)
