"""The command line: `gradless --help` is the tour."""

import contextlib
import importlib
import io
import os
import sys
import time
from typing import Any

import click

from gradless.cli import interrupts
from gradless.cli.console import told_if_possible
from gradless.cli.errors import told

# Each command lives in the file of its name and is imported only when it is called.
COMMANDS = {
    "train": "train a named problem, or your own as module:object",
    "resume": "continue a run from its last checkpoint",
    "replay": "rebuild the net of a run at any step",
    "sweep": "try many settings at once, with the plot",
    "compare": "train one problem by several algorithms, with the plot",
    "optimize": "minimise what an outside program computes",
    "report": "write a page about a run, or about several compared",
    "watch": "show the same page live, on this machine only",
    "reproduce": "make the paper's figures, with PASS or FAIL for each claim",
    "bench": "measure steps per second, against other libraries and the machine's limit",
    "launch": "start several processes on this machine that work on one run",
    "data": "fetch a data set and say where it is",
    "doctor": "show devices, versions, what is missing",
}


WRONG_USE = 2
REFUSAL_SECONDS = 1.0  # that the other processes of a run have to come to the same refusal


def leave_others() -> None:
    """End this process at once if it is one of several: taking leave of them, JAX would wait for them or abort them.

    Process 0 goes last, since JAX aborts whoever loses it.
    """
    jax = sys.modules.get("jax")
    if jax is None or not jax.distributed.is_initialized():
        return
    with contextlib.suppress(OSError, ValueError):  # an output that is closed
        sys.stdout.flush(), sys.stderr.flush()
    if jax.process_index() == 0:
        time.sleep(REFUSAL_SECONDS)
    os._exit(WRONG_USE)


class Tour(click.Group):
    """The list of commands, loaded one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        with interrupts.leaving_at_once():
            return importlib.import_module(f"gradless.cli.{name}").command

    def main(self, *args: Any, **kwargs: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a ? where there is no sigma, not the end of a run
        with interrupts.noted():
            try:
                return super().main(*args, **kwargs)
            except SystemExit as ended:
                if ended.code == WRONG_USE:
                    leave_others()
                raise
            except OSError as error:  # of what is printed outside of the commands' own care, `--help` say
                with told_if_possible():
                    raise error
                print(f"Error: {told(error)}", file=sys.stderr)
                sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            interrupts.leave()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(f"there is no command {args[0]!r}: {', '.join(COMMANDS)}", ctx) from error


@click.group(cls=Tour, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="gradless")
def main() -> None:
    """Train neural networks without gradients, by Metropolis Monte Carlo and its adaptive variant aMC.

    A first result: gradless train digits
    """
