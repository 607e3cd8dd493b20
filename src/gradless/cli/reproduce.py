"""`gradless reproduce [F1 ... F8 E2] --scale smoke|quick|paper`."""

import contextlib
import importlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gradless.cli.console import plain_console
from gradless.cli.errors import one_line
from gradless.cli.flags import Duration
from gradless.cli.follow import enable_float64, stopping_cleanly
from gradless.cli.interrupts import EXIT_CODES
from gradless.cli.progress import LiveLine, plain_lines
from gradless.data.store import DataUnavailable
from gradless.engine.session import Listener
from gradless.experiments import FIGURES, SCALES, module_of
from gradless.experiments.claims import FAIL, PASS, Verdict
from gradless.experiments.page import write_page

STYLES = {PASS: "green", FAIL: "bold red"}
LOG_WIDTH = 150  # of the table, where there is no terminal
LOG_SECONDS = 60.0  # between lines of progress where there is no terminal


@click.command()
@click.argument("figures", nargs=-1)
@click.option("--scale", type=click.Choice(SCALES), default="quick", show_default=True, help="how much to run")
@click.option(
    "--out",
    "-o",
    type=click.Path(file_okay=False),
    help="where to write, one scale per folder (default: reproduction/<scale>)",
)
@click.option("--redraw", is_flag=True, help="draw and judge again from the saved data, without running")
@click.option("--time", "budget", type=Duration(), help="stop after this time; the same command continues")
@click.option("--quiet", is_flag=True, help="only the table")
def command(
    figures: tuple[str, ...], scale: str, out: str | None, redraw: bool, budget: float | None, quiet: bool
) -> None:
    """Reproduce the paper's figures: run, draw, and say PASS or FAIL for each claim.

    FIGURES are F1 to F8 and E2 (the Langevin equation); all of them if none is given. The same command continues a
    reproduction that was stopped. Runs that a figure's tables hold to their end are not made again, except for the
    short ones of F3 and E2.
    """
    enable_float64()
    console = plain_console()
    with one_line():
        chosen = list(dict.fromkeys(name.upper() for name in figures)) or list(FIGURES)
        for name in chosen:
            if name not in FIGURES:
                raise ValueError(f"figures must be among {', '.join(FIGURES)}, got {name!r}")
        folder = Path(out or f"reproduction/{scale}")
        keep_to_one_scale(folder, scale, redraw)
        reproduction = Reproduction(console, folder, scale, redraw, budget, quiet)
        try:
            stopped_by = reproduction.go_through(chosen, leaves_out=not figures)
        finally:  # what there is, is told also where the next figure, or the page of all of them, cannot be made
            verdicts = [verdict for these in reproduction.judged.values() for verdict in these]
            if verdicts:
                show(console, verdicts)
        page = write_page(folder, scale, *everything(folder, scale, reproduction.judged))
    console.print(f"page {page}")
    if stopped_by in EXIT_CODES:
        raise SystemExit(EXIT_CODES[stopped_by])
    if any(verdict.outcome == FAIL for verdict in verdicts):
        raise SystemExit(1)


def keep_to_one_scale(folder: Path, scale: str, redraw: bool) -> None:
    """Refuse a folder of another scale: its finished runs would be taken for those of this one."""
    mark = folder / "scale.txt"
    before = mark.read_text(errors="replace").strip() if mark.exists() else ""
    if before not in ("", scale):
        raise ValueError(f"{folder} holds figures of --scale {before[:20]}: give that scale, or another --out")
    if not before and not redraw and any(next((folder / name).glob("*.csv"), None) for name in FIGURES):
        raise ValueError(
            f"{folder} holds tables of an unknown scale: write the scale into {mark}, or give another --out"
        )
    if not redraw:
        folder.mkdir(parents=True, exist_ok=True)
        mark.write_text(f"{scale}\n")


@dataclass
class Reproduction:
    """One call of the command: where to, how much, and what has been judged so far."""

    console: Console
    folder: Path
    scale: str
    redraw: bool = False
    budget: float | None = None  # seconds
    is_quiet: bool = False
    judged: dict[str, list[Verdict]] = field(default_factory=dict)

    def go_through(self, chosen: list[str], leaves_out: bool = False) -> str:
        """Run, draw and judge one figure after the other; return what stopped it, if anything did.

        leaves_out: whether a figure that cannot be made or drawn, for want of data, is no reason to leave the others.
        """
        from gradless.experiments.workshop import Halt, Stopped, Workshop

        deadline = float("inf") if self.budget is None else time.monotonic() + self.budget
        halt = Halt()
        for name in chosen:
            figure = importlib.import_module(module_of(name))
            place, size = self.folder / name, figure.SCALES[self.scale]
            if self.redraw and leaves_out and not place.is_dir():
                self.tell(f"{name} is left out: it has not been run")
                continue
            self.tell(f"{name}  {figure.TITLE}  (all of it on 2 cores: about {size.budget})")
            stopped: Stopped | None = None
            if not self.redraw:
                place.mkdir(parents=True, exist_ok=True)
                try:
                    with stopping_cleanly(halt):
                        figure.run(place, size, Workshop(place, self.tell, deadline, self.folder, halt, self.follow))
                except Stopped as error:
                    stopped = error
                except DataUnavailable as error:
                    if not leaves_out:
                        raise
                    self.console.print(f"{name} is left out: {error}")
                    continue
            self.judge(name, figure, place, was_stopped=stopped is not None)
            by = stopped.by if stopped else halt.stop_requested  # a figure without runs (E2) goes through to its end
            if by:
                reason = "time is up" if by == "time" else f"stopped by {by}"
                where = f"in {name} ({stopped})" if stopped else f"after {name}"
                self.console.print(f"{reason} {where}; go on with the same command")
                return by
        if not self.judged and self.redraw:
            raise ValueError(f"{self.folder} has no saved data: run it without --redraw")
        return ""

    def judge(self, name: str, figure: Any, place: Path, was_stopped: bool) -> None:
        """Draw and judge a figure; one that was stopped shows what it has."""
        try:
            with from_saved_data(name, place) if self.redraw or was_stopped else contextlib.nullcontext():
                figure.draw(place)
                self.judged[name] = figure.check(place, self.scale)
        except FileNotFoundError as error:
            if not was_stopped:
                words = f"{name} has no saved data in {place} ({error.filename}): run it without --redraw"
                raise ValueError(words) from error

    def tell(self, words: str) -> None:
        """Say what is going on."""
        if not self.is_quiet:
            self.console.print(words)

    def follow(self) -> Listener:
        """Return who shows the progress of a run."""
        if self.is_quiet:
            return Listener()
        return LiveLine(self.console) if self.console.is_terminal else plain_lines(self.console, LOG_SECONDS)


@contextlib.contextmanager
def from_saved_data(name: str, place: Path) -> Iterator[None]:
    """Say what is the matter with tables that were not made just now, and may have been damaged since."""
    try:
        yield
    except (LookupError, TypeError, ValueError) as error:
        words = f"the saved data of {name} in {place} are damaged ({type(error).__name__}: {error})"
        raise ValueError(f"{words}; move them away and run it again: what is not stored in runs/ is trained") from error


def everything(folder: Path, scale: str, judged: dict[str, list[Verdict]]) -> tuple[list[str], list[Verdict]]:
    """Return the figures that the folder holds and their verdicts, the new ones and those of earlier runs."""
    found: dict[str, list[Verdict]] = {}
    for name in FIGURES:
        if name in judged:
            found[name] = judged[name]
        elif list((folder / name).glob("*.png")):  # it was drawn, so its data are there
            try:
                with from_saved_data(name, folder / name):
                    found[name] = importlib.import_module(module_of(name)).check(folder / name, scale)
            except FileNotFoundError as error:
                words = f"{name} has lost {error.filename}, from which it was drawn: restore it, or run {name} again"
                raise ValueError(words) from error
    return list(found), [verdict for these in found.values() for verdict in these]


def show(console: Console, verdicts: list[Verdict]) -> None:
    """Print one line per claim."""
    table = Table("claim", "says", "measured", "rule", "verdict", box=None, padding=(0, 2, 0, 0))
    for verdict in verdicts:
        outcome = Text(verdict.outcome, STYLES.get(verdict.outcome, "yellow"))
        table.add_row(verdict.claim, verdict.says, verdict.measured, verdict.rule, outcome)
    if not console.is_terminal:
        console.width = LOG_WIDTH
    console.print(table, soft_wrap=False)
