"""`gradless reproduce [F1 ... F8 E2] --scale smoke|quick|paper`."""

import importlib
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from gradless.cli.errors import one_line
from gradless.cli.flags import Duration
from gradless.cli.follow import use_double_precision_where_asked
from gradless.experiments import FIGURES, SCALES, module_of
from gradless.experiments.claims import FAIL, PASS, Verdict

STYLES = {PASS: "green", FAIL: "bold red"}


@click.command()
@click.argument("figures", nargs=-1)
@click.option("--scale", type=click.Choice(SCALES), default="quick", show_default=True, help="how much to run")
@click.option("--out", "-o", type=click.Path(file_okay=False), help="where to; reproduction/<scale>")
@click.option("--redraw", is_flag=True, help="draw and judge again from the saved data, without running")
@click.option("--time", "budget", type=Duration(), help="stop after this time; the same command goes on")
@click.option("--quiet", is_flag=True, help="only the table")
def command(
    figures: tuple[str, ...], scale: str, out: str | None, redraw: bool, budget: float | None, quiet: bool
) -> None:
    """Reproduce the paper's figures: run, draw, and say PASS or FAIL for each claim.

    FIGURES are F1 to F8 and E2 (the Langevin equation); all of them if none is given. A reproduction that was stopped
    goes on where it was with the same command.
    """
    use_double_precision_where_asked()
    from gradless.experiments.page import write_page
    from gradless.experiments.workshop import OutOfTime, Workshop

    console = Console()
    with one_line():
        chosen = [name.upper() for name in figures] or list(FIGURES)
        for name in chosen:
            if name not in FIGURES:
                raise ValueError(f"figures must be among {', '.join(FIGURES)}, got {name!r}")
        folder = Path(out or f"reproduction/{scale}")
        deadline = time.monotonic() + budget if budget else float("inf")
        tell = (lambda words: None) if quiet else (lambda words: console.print(words, highlight=False, soft_wrap=True))
        verdicts: list[Verdict] = []
        for name in chosen:
            figure = importlib.import_module(module_of(name))
            place = folder / name
            tell(f"{name}  {figure.TITLE}  (about {figure.SCALES[scale].budget} on 2 cores)")
            try:
                if not redraw:
                    place.mkdir(parents=True, exist_ok=True)
                    figure.run(place, figure.SCALES[scale], Workshop(place, tell, deadline, common=folder))
                figure.draw(place)
                verdicts += figure.check(place, scale)
            except OutOfTime as error:
                console.print(f"time is up in {name} ({error}); go on with the same command", highlight=False)
                break
            except FileNotFoundError as error:
                raise ValueError(
                    f"{name} has no saved data in {place} ({error.filename}): run it without --redraw"
                ) from error
        page = write_page(folder, scale, chosen, verdicts)
    show(console, verdicts)
    console.print(f"page {page}", highlight=False, soft_wrap=True)
    if any(verdict.outcome == FAIL for verdict in verdicts):
        raise SystemExit(1)


def show(console: Console, verdicts: list[Verdict]) -> None:
    """Print one line per claim."""
    table = Table("claim", "says", "measured", "rule", "verdict", box=None, padding=(0, 2, 0, 0))
    for verdict in verdicts:
        style: Any = STYLES.get(verdict.outcome, "yellow")
        table.add_row(verdict.claim, verdict.says, verdict.measured, verdict.rule, f"[{style}]{verdict.outcome}")
    console.print(table, highlight=False)
