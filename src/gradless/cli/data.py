"""`gradless data NAME`."""

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from gradless.cli.errors import one_line


@click.command()
@click.argument("name", type=click.Choice(["mnist"]))
@click.option("--data-dir", type=click.Path(file_okay=False), help="folder with the files, raw or gzipped")
def command(name: str, data_dir: str | None) -> None:
    """Fetch a data set, check it, and say where it is."""
    from gradless.data import mnist

    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with one_line(), Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("looking", total=None)

        def show(done: int, total: int, source: str) -> None:
            progress.update(task, completed=done, total=total, description=source)

        report = mnist.fetch(data_dir, show)
    console.print(
        f"MNIST is in {report.path} (from {report.source}), all four files have the right SHA-256", soft_wrap=True
    )
    for failure in getattr(report, "failures", ()):
        console.print(f"[yellow]{failure}", highlight=False, soft_wrap=True)
