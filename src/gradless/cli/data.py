"""`gradless data NAME`."""

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from gradless.cli.console import plain_console
from gradless.cli.errors import one_line
from gradless.data import mnist
from gradless.data.store import Report


@click.command()
@click.argument("name", type=click.Choice(["mnist"]))
@click.option("--data-dir", type=click.Path(file_okay=False), help="folder with the files, raw or gzipped")
def command(name: str, data_dir: str | None) -> None:
    """Fetch a data set, check it, and say where it is."""
    console = plain_console()
    report = fetch_mnist(data_dir, console)
    words = f"MNIST is in {report.path} (from {report.source}), all four files have the right SHA-256"
    console.print(words)
    for failure in report.failures:
        console.print(failure, style="yellow")


def fetch_mnist(data_dir: str | None, console: Console) -> Report:
    """Make sure that MNIST is here, with a bar while it comes."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    is_shown = console.is_terminal  # else rich would print an empty line
    with one_line(), Progress(*columns, console=console, transient=True, disable=not is_shown) as progress:
        task = progress.add_task("looking for MNIST", total=None)

        def show(done: int, total: int, source: str) -> None:
            progress.update(task, completed=done, total=total, description=source)

        return mnist.fetch(data_dir, show)
