"""`gradless watch RUN`."""

import os
import threading

import click

from gradless.cli.errors import one_line
from gradless.cli.follow import enable_float64, stopping_cleanly
from gradless.cli.interrupts import EXIT_CODES


class Waiting:
    """Waits until a signal asks to stop."""

    def __init__(self) -> None:
        self.stop_requested: str | None = None

    def wait(self) -> str:
        """Return the name of the signal; looked for often enough that nobody notices."""
        pause = threading.Event()
        while self.stop_requested is None:
            pause.wait(0.2)
        return self.stop_requested


@click.command()
@click.argument("run", type=click.Path())
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0 takes a free one")
@click.option("--trust", is_flag=True, help="run the code of the module that a run of module:object names")
def command(run: str, port: int, trust: bool) -> None:
    """Show RUN in a browser while it goes on; of a folder with runs in it, the list of them.

    The page is served to this machine only, at 127.0.0.1, and nothing is written anywhere. Ctrl-C ends it.
    """
    enable_float64()
    from gradless.report.live import LiveServer

    waiting = Waiting()
    with stopping_cleanly(waiting):
        with one_line():
            server = LiveServer(run, port, trust)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True).start()
        click.echo(f"watching {run} at {server.address} (Ctrl-C ends it)")
        name = waiting.wait()
        server.stop()
    click.echo("stopped", err=True)
    if server.home.is_busy():
        os._exit(EXIT_CODES[name])  # JAX computes for a page that nobody waits for any more; it cannot be interrupted
    raise SystemExit(EXIT_CODES[name])
