"""`gradless report RUN...`."""

from functools import partial
from pathlib import Path

import click

from gradless.cli.console import plain_console
from gradless.cli.errors import one_line
from gradless.cli.follow import enable_float64


@click.command()
@click.argument("runs", type=click.Path(), nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--out", "-o", type=click.Path(), help="the file to write (default: report.html in the run; for several runs, here)"
)
@click.option("--overwrite", is_flag=True, help="replace a file that is no report of gradless")
@click.option("--trust", is_flag=True, help="run the code of the module that a run of module:object names")
def command(runs: tuple[str, ...], out: str | None, overwrite: bool, trust: bool) -> None:
    """Write one self-contained page about RUN, or about several compared.

    It opens from disk in any browser and loads nothing from a network. A folder of runs stands for all of them that
    can be read. Of a run of your own problem (module:object) the page shows what the net says only with --trust.
    """
    enable_float64()
    from gradless.report import write_report
    from gradless.report.listing import readable_runs_of

    with one_line():
        tell = partial(click.echo, err=True)
        chosen = [path for run in runs for path in readable_runs_of(Path(run), tell)]
        place = Path(out) if out else Path("report.html") if len(chosen) > 1 else chosen[0] / "report.html"
        write_report(list(chosen), place, trust, overwrite)
        plain_console().print(f"report {place}")
