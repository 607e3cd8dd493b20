"""`gradless launch -n 2 -- train ...`: several processes on this machine, for a first try."""

import os
import signal
import socket
import subprocess
import sys
import time
from types import FrameType

import click

from gradless.cli import WRONG_USE, interrupts

PATIENCE = 60.0  # seconds that the others have to end by themselves after one has failed
POLL_SECONDS = 0.1


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("-n", "--processes", type=click.IntRange(1), default=2, show_default=True, help="how many")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def command(processes: int, command: tuple[str, ...]) -> None:
    """Start COMMAND (train or resume, with --mesh) as several processes that work on one run.

    Each has its share of the cores. Process 0 prints and writes the run; if one dies, all end.
    """
    if command[0] not in ("train", "resume"):
        raise click.UsageError(f"launch starts train or resume, got {command[0]!r}")
    address = f"127.0.0.1:{free_port()}"
    children: list[subprocess.Popen] = []
    early: list[int] = []  # signals that came before all had started

    def pass_on(number: int, frame: FrameType | None = None) -> None:
        if len(children) < processes:
            early.append(number)
        else:
            send(children, number)

    before = {number: signal.signal(number, pass_on) for number in interrupts.ending()}
    try:
        for place in range(processes):
            own = ["--coordinator", address, "--process", str(place), "--processes", str(processes)]
            children.append(start([*command, *own]))
            take_cores(children[-1].pid, place, processes)
        for number in early:
            send(children, number)
        raise SystemExit(wait(children))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def start(words: list[str]) -> subprocess.Popen:
    """Start gradless with these words, in a process group of its own.

    A terminal signals the whole group of the launcher; with what the launcher passes on, Ctrl-C would come twice.
    """
    quieter = {"TF_CPP_MIN_LOG_LEVEL": "2"} | os.environ  # fewer lines of JAX's own
    return subprocess.Popen([sys.executable, "-m", "gradless", *words], env=quieter, process_group=0)


def send(children: list[subprocess.Popen], number: int) -> None:
    """Send a signal to those who are still there."""
    for child in children:
        if child.poll() is None:
            child.send_signal(number)


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def take_cores(pid: int, place: int, processes: int) -> None:
    """Let a process have its share of the cores, before it has made its threads: more of them than cores are slower."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(pid, cores[place::processes] or [cores[place % len(cores)]])


def wait(children: list[subprocess.Popen]) -> int:
    """Wait for all; once one has failed give the others time to end, then end them."""
    failed_at: float | None = None
    first = 0
    while any(child.poll() is None for child in children):
        codes = [child.poll() for child in children]
        if failed_at is None and any(codes):
            place, first = next((place, code) for place, code in enumerate(codes) if code)
            failed_at = time.monotonic()
            if first < 0:
                click.echo(f"process {place} was killed by signal {-first}; the others end", err=True)
        if failed_at is not None and time.monotonic() - failed_at > PATIENCE:
            send(children, signal.SIGKILL)
        time.sleep(POLL_SECONDS)
    codes = [child.returncode for child in children]
    first = codes[0] if codes[0] == WRONG_USE else first or next((code for code in codes if code), 0)
    return 128 - first if first < 0 else first
