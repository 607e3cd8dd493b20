"""A run seen through to its end: live progress, signals, figures, the summary and the exit code."""

import contextlib
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

import click
from rich.console import Console

from gradless.cli import interrupts, summary
from gradless.cli.console import plain_console, told_if_possible
from gradless.cli.devices import together
from gradless.cli.errors import one_line
from gradless.cli.figures import draw_figures
from gradless.cli.flags import giving_back
from gradless.cli.progress import follower, print_json, report_to
from gradless.cli.tensorboard import EventFiles, goes_on_with_events
from gradless.engine.devices.mesh import Mesh
from gradless.engine.devices.processes import is_first
from gradless.engine.disk.recording import Recording
from gradless.engine.plan import Plan
from gradless.engine.result import Result
from gradless.engine.session import Session
from gradless.problem import Problem
from gradless.records import RunDirectory, RunError, in_shell
from gradless.runs import start_problem
from gradless.types import Algorithm


def enable_float64() -> None:
    """Let JAX have float64 in this process, which is ours: float32 nets then still add up their losses in float64."""
    import jax

    jax.config.update("jax_enable_x64", True)


def train_through(
    problem: Problem,
    algorithm: Algorithm,
    plan: Plan,
    run: str,
    about: dict[str, Any],
    flags: dict[str, Any],
    mesh: Mesh | None = None,
) -> Result:
    """Begin a run of a named problem in its directory and see it through."""

    def make(listeners: list[Any], report: Callable[[str], None]) -> Session:
        with giving_back(run, flags):
            return start_problem(
                problem,
                algorithm,
                plan,
                run=run,
                about=about,
                overwrite=flags["overwrite"],
                listeners=listeners,
                report=report,
                mesh=mesh,
            )

    return see_through(
        make,
        run,
        again=resume_command(run, trust=":" in flags["problem"]),
        is_quiet=flags["quiet"],
        is_json=flags["json"],
        has_events=flags.get("tensorboard", False),
    )


def resume_command(run: str, trust: bool) -> str:
    """Return what to type to go on with a run."""
    return f"gradless resume {in_shell(run)}{' --trust' if trust else ''}"


def see_through(
    make: Callable[[list[Any], Callable[[str], None]], Session],
    run: str,
    *,
    again: str,
    is_quiet: bool,
    is_json: bool,
    has_events: bool = False,
    is_resumed: bool = False,
) -> Result:
    """Make the session, run it, draw its figures and tell how it ended; exit with the code that says so.

    `again` says how to go on with a run that was stopped.
    """
    console = plain_console(stderr=is_json, quiet=not is_first())
    is_quiet, is_json = is_quiet or not is_first(), is_json and is_first()
    report = report_to(console, is_json)
    with one_line(), together():
        with working(console, "compiling", is_quiet or is_json):
            listeners = [follower(console, run, is_quiet, is_json)]
            if is_first() and (has_events or (is_resumed and goes_on_with_events(run, report))):
                listeners.append(EventFiles(run, report))
            session = make(listeners, report)
        session.report = report
        with stopping_cleanly(session):
            session.go()
        result = session.result()
    if not is_first():
        raise SystemExit(interrupts.EXIT_CODES.get(session.stopped_by or "", 0))  # the rest is for process 0 to tell
    if is_json:
        print_json(summary.as_json(result, run) | {"algorithm": _stored_algorithm(run)})
    else:
        summary.show(console, result, run, is_quiet)
    is_complete = all(listener.is_complete for listener in session.listeners if isinstance(listener, Recording))
    try:
        draw_figures(run, result, None if is_json or is_quiet else console)
    except (OSError, RunError) as error:
        report(f"the figures could not be drawn: {error}")
        is_complete = False
    if session.stopped_by in interrupts.EXIT_CODES:
        with told_if_possible():
            click.echo(f"stopped by {session.stopped_by} at step {session.t:,}; go on with: {again}", err=True)
        raise SystemExit(interrupts.EXIT_CODES[session.stopped_by])
    if not is_complete:
        raise SystemExit(1)
    return result


def _stored_algorithm(run: str) -> Any:
    """Return the settings of the algorithm, with a list of those that differ from chain to chain."""
    with RunDirectory.open(run) as stored:
        return stored.settings.get("algorithm")


def working(console: Console, words: str, is_silent: bool) -> contextlib.AbstractContextManager[Any]:
    """Show that something is being done which may take more than a moment."""
    return contextlib.nullcontext() if is_silent or not console.is_terminal else console.status(words)


class Stoppable(Protocol):
    """What can be asked to stop, by the name of a signal."""

    stop_requested: str | None


class stopping_cleanly:
    """While this lasts SIGINT, SIGTERM and SIGHUP end the run after the present chunk, and a second SIGINT at once.

    So does a SIGINT that came before and was lost.
    """

    def __init__(self, session: Stoppable):
        self.session = session
        self.before: dict[int, Any] = {}

    def __enter__(self) -> None:
        for number in interrupts.ending():
            self.before[number] = signal.signal(number, self._stop)
        if interrupts.asked.is_set():
            self.session.stop_requested = "SIGINT"

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.session.stop_requested == "SIGINT" and number == signal.SIGINT:
            os._exit(interrupts.EXIT_CODE)  # asked twice: not even the checkpoint is waited for
        self.session.stop_requested = signal.Signals(number).name
