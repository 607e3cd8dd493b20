"""`gradless bench`."""

import contextlib
import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from gradless.bench.contestants import CONTESTANTS, Contestant
from gradless.bench.growth import laws
from gradless.bench.measure import OURS, Measured, machine_facts, measure
from gradless.bench.roofline import Machine, measure_machine
from gradless.bench.timing import Spread
from gradless.bench.workloads import WORKLOADS, check_name, make_workload
from gradless.cli.console import plain_console
from gradless.cli.errors import first_line, one_line
from gradless.data.store import DataUnavailable

TURN_SECONDS = 0.4
REFERENCES = ("torch-eager", "jax-scan")


@click.command()
@click.argument("workloads", nargs=-1, metavar="[W1 ... W6]")
@click.option("--peers", is_flag=True, help="other libraries too; they come with pip install 'gradless[bench]'")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="turns of every contestant")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="write all numbers to this file")
def command(workloads: tuple[str, ...], peers: bool, rounds: int, file: Path | None) -> None:
    """Measure steps per second against others in one run, and against the limits of this machine.

    \b
    W1  MNIST 784-16-16-10, full batch      W4  RNN 2x64 on sequences of 784
    W2  step function, depth 128            W5  ResNet-18, minibatch 256
    W3  Rosenbrock                          W6  sine, a million parameters

    Contestants take turns in one run; medians are given, with the lowest and the highest of the rounds. A machine
    that does nothing else gives the cleanest numbers.
    """
    console, found = plain_console(), []
    with one_line():
        for name in workloads:
            check_name(name)
        if file is not None:
            file.touch()  # now, not after minutes of measuring, is the time to find that it cannot be written
        contestants = [*CONTESTANTS, *(_peers() if peers else ())]
        with _progress() as told:
            told("the machine: a large product, a long sum, many tanh")
            machine = measure_machine()
        facts = machine_facts()
        _tell_machine(console, facts, machine)
        for name in dict.fromkeys([name.upper() for name in workloads] or WORKLOADS):
            measured = _measure(console, name, contestants, machine, rounds)
            if measured is not None:
                found.append(measured)
                _tell(console, measured)
        if len(found) > 1:
            _tell_ratios(console, found)
        if file is not None:
            table = {"machine": {**facts, **machine._asdict()}, "workloads": [one.to_json() for one in found]}
            file.write_text(json.dumps(table, indent=1) + "\n")
            console.print(f"all numbers in {file}")


def _peers() -> Sequence[Contestant]:
    return importlib.import_module("gradless.bench.peers").PEERS


def _measure(
    console: Console, name: str, contestants: Sequence[Contestant], machine: Machine, rounds: int
) -> Measured | None:
    """Measure a workload; say so in a line where its data cannot be had, and go on with the others."""
    try:
        with _progress() as told:
            return measure(
                make_workload,
                name,
                contestants,
                machine,
                rounds,
                TURN_SECONDS,
                laws(name),
                told=lambda words: told(f"{name}  {words}"),
            )
    except DataUnavailable as error:
        console.print(f"{name} left out: {first_line(error)}")
        return None


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show what is being done: a line that moves in a terminal, nothing elsewhere."""
    console = plain_console(stderr=True)
    if not console.is_terminal:
        yield lambda words: None
        return
    with console.status("") as status:
        yield lambda words: status.update(words)


def _tell_machine(console: Console, facts: dict[str, Any], machine: Machine) -> None:
    console.print(f"{facts['cpu']}, {facts['cores']} cores, load {facts['load']:.1f}; JAX {facts['jax']}")
    rates = f"{machine.flops / 1e9:.0f} GFLOP/s, {machine.bandwidth / 1e9:.0f} GB/s read"
    console.print(f"measured here: {rates}, {machine.transcendentals / 1e9:.1f}e9 tanh/s (float32)")


def _tell(console: Console, measured: Measured) -> None:
    console.print(f"\n{measured.name}  {measured.title}, {measured.num_parameters:,} parameters")
    table = Table("contestant", "steps/s", "a step", "from", "to", box=None, padding=(0, 2, 0, 2))
    for name, spread in measured.seconds.items():
        times = [_time(value) for value in (spread.median, spread.low, spread.high)]
        table.add_row(name, f"{1 / spread.median:,.4g}", *times)
    for name, reason in measured.absent.items():
        table.add_row(name, reason)
    console.print(table)
    split, memory = measured.split, f"peak {measured.megabytes:,.0f} MB"
    shares = [
        f"{name} {_time(part)} ({part / split.total:.0%})"
        for name, part in (("noise", split.noise), ("loss", split.loss), ("the rest", split.rest))
    ]
    console.print(f"  {OURS}: {', '.join(shares)}; {measured.roofline:.0%} of the roofline; {memory}")
    for case, held in measured.held.items():
        console.print(f"  {case}: {held.vectors:.2f} parameter vectors, and activations of {held.activations:.2f}")
    for growth in measured.growth:
        sizes = ", ".join(f"{size:,}" for size in growth.sizes)
        times_told = ", ".join(_time(spread.median) for spread in growth.seconds)
        console.print(f"  {growth.what} {sizes}: {times_told} a step, which grows as its power {growth.exponent:.2f}")


def _tell_ratios(console: Console, found: list[Measured]) -> None:
    table = Table("", "steps/s", *(f"of {name}'s time" for name in REFERENCES), box=None, padding=(0, 2, 0, 0))
    for measured in found:
        ratios = [_ratio(measured.ratio(reference)) for reference in REFERENCES]
        table.add_row(measured.name, f"{1 / measured.seconds[OURS].median:,.4g}", *ratios)
    console.print()
    console.print(table)


def _ratio(spread: Spread | None) -> str:
    return "-" if spread is None else f"{spread.median:.3f} ({spread.low:.3f} to {spread.high:.3f})"


def _time(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if abs(seconds) * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
