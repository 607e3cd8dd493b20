"""The signals that end a run; and Ctrl-C before a run has begun, or after it has ended."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

import click

EXIT_CODE = 130
EXIT_CODES = {"SIGINT": EXIT_CODE, "SIGTERM": 143, "SIGHUP": 129}
asked = threading.Event()  # whether it was pressed: as an exception it may come up where a library drops exceptions


def ending() -> list[signal.Signals]:
    """Return the signals that end a run: that of a closed terminal too, but not under nohup, which ignores it."""
    known = [getattr(signal, name) for name in EXIT_CODES if hasattr(signal, name)]
    return [one for one in known if one.name != "SIGHUP" or signal.getsignal(one) is not signal.SIG_IGN]


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, as it does anyway, and be remembered."""
    with _handling(_note, [signal.SIGINT]):
        asked.clear()
        yield


@contextlib.contextmanager
def leaving_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process while there is nothing to save yet."""
    with _handling(_leave, [signal.SIGINT]):
        yield


@contextlib.contextmanager
def leaving_after(tidy_up: Callable[[], None]) -> Iterator[None]:
    """Let the other signals end the process, as they do anyway, but tidy up before."""

    def leave(number: int, frame: FrameType | None) -> None:
        tidy_up()
        _leave(number, frame)

    with _handling(leave, [one for one in ending() if one != signal.SIGINT]):
        yield


def leave() -> NoReturn:
    """Say so and end the process; by Ctrl-C at once, without tearing down what compiles in other threads."""
    click.echo("stopped", err=True)
    if asked.is_set():
        sys.stdout.flush()
        os._exit(EXIT_CODE)
    raise SystemExit(EXIT_CODE)


@contextlib.contextmanager
def _handling(handler: Callable[[int, FrameType | None], None], numbers: list[signal.Signals]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _note(number: int, frame: FrameType | None) -> None:
    asked.set()
    raise KeyboardInterrupt


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"stopped\n")
    os._exit(EXIT_CODES[signal.Signals(number).name])
