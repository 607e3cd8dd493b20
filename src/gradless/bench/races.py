"""Races to a target, gradless against its peers, in one run: python -m gradless.bench.races mnist-90 --limit 120

The contestants of a race take turns of some tenths of a second, so that whatever else the machine does hits them alike.
Each has a clock of its own that runs in its turns only; compiling, and looking whether it is there, are not on it.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import jax

from gradless.bench.peers import cma, evosax, evotorch, nevergrad, scipy
from gradless.bench.peers.gradless import ours
from gradless.bench.peers.peer import Peer
from gradless.bench.peers.search import Search
from gradless.bench.peers.task import Task
from gradless.data.store import DataUnavailable
from gradless.engine.batches import Minibatch
from gradless.engine.placing import as_device
from gradless.engine.plan import parse_metric
from gradless.engine.precision import precision_of
from gradless.kernels import AMC
from gradless.problem import Problem
from gradless.problems import make_problem
from gradless.types import Params

SHORTEST_TURN = 0.2  # seconds
TURN_FRACTION = 0.02  # of the time on the clock: how finely the time to the target is resolved
GROWTH = 4  # of a turn, at most, over the one before: the first are mostly overhead
LIMIT = 120.0  # seconds on a contestant's clock, unless told


@dataclass(frozen=True)
class Race:
    """A problem, how far to get, and who takes part."""

    problem: Callable[[], Problem]
    target: str  # "accuracy >= 0.9", or "loss <= 1e-3"
    entries: tuple[Peer, ...]


@dataclass(frozen=True)
class Row:
    """What became of a contestant."""

    race: str
    contestant: str
    target: str
    settings: str
    reached: bool = False
    seconds: float | None = None  # on its clock, to the target or to the end; None if it did not run
    cpu_seconds: float | None = None  # the same, of all cores together
    compile_seconds: float | None = None
    evaluations: int | None = None
    samples: int | None = None
    value: float | None = None  # of what the target is about, at the end
    note: str = ""  # why it did not run


@dataclass
class Runner:
    """A contestant on its way."""

    entry: Peer
    search: Search
    value: float = float("nan")
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    is_there: bool = False
    turn: int = 1  # evaluations in the next turn

    def take_turn(self) -> None:
        """Go on for about the time of a turn."""
        before, cpu, began = self.search.evaluations, time.process_time(), time.perf_counter()
        self.search.advance(self.turn)
        elapsed = time.perf_counter() - began
        self.seconds += elapsed
        self.cpu_seconds += time.process_time() - cpu
        made = self.search.evaluations - before
        wanted = max(SHORTEST_TURN, TURN_FRACTION * self.seconds)
        self.turn = max(1, min(int(made * wanted / max(elapsed, 1e-6)), GROWTH * made))

    def row(self, name: str, race: Race) -> Row:
        """Return what has become of it."""
        search = self.search
        return Row(
            name,
            self.entry.name,
            race.target,
            self.entry.settings,
            self.is_there,
            self.seconds,
            self.cpu_seconds,
            search.compile_seconds,
            search.evaluations,
            search.samples,
            self.value,
        )


def judge(task: Task, target: str) -> Callable[[Params], tuple[float, bool]]:
    """Return what measures a net: the metric on the test data, or the loss on all data; and whether it will do."""
    name, sense, wanted = parse_metric(target)
    problem = task.problem
    with precision_of(task.dtype):
        if name == "loss":
            data, measure = task.all_data, jax.jit(task.loss)
        else:
            data = as_device(problem.test, task.dtype)
            measure = jax.jit(lambda params, test: problem.metrics(params, test)[name])  # type: ignore[misc]

    def judged(params: Params) -> tuple[float, bool]:
        with precision_of(task.dtype):
            value = float(measure(params, data))
        return value, value >= wanted if sense == ">=" else value <= wanted

    return judged


def hold(name: str, race: Race, limit: float = LIMIT, seed: int = 0) -> list[Row]:
    """Let the entries of a race run to the target or to `limit` seconds each; the fastest come first."""
    if not limit > 0:
        raise ValueError(f"limit must be positive, got {limit}")
    problem = race.problem()
    task = Task(problem, problem.precision, seed=seed)
    judged = judge(task, race.target)
    runners, rows = [], []
    for entry in race.entries:
        missing = entry.missing()
        try:
            if missing is None:
                runners.append(Runner(entry, entry.begin(task)))
        except NotImplementedError as error:
            missing = str(error)
        if missing is not None:
            rows.append(Row(name, entry.name, race.target, entry.settings, note=missing))
    going = list(runners)
    while going:
        for runner in going:
            runner.take_turn()
            runner.value, runner.is_there = judged(runner.search.params())
        going = [runner for runner in going if not runner.is_there and runner.seconds < limit]
    ran = [runner.row(name, race) for runner in runners]
    return sorted(ran, key=lambda row: (not row.reached, row.seconds)) + rows


def run(
    names: Sequence[str] = (),
    limit: float = LIMIT,
    tell: Callable[[list[Row]], None] | None = None,
    seed: int = 0,
) -> list[Row]:
    """Hold the races of these names, or all; `tell` is given the rows of each race when it is over."""
    check_names(names)
    rows = []
    for name in dict.fromkeys(names or RACES):
        held = hold(name, RACES[name], limit, seed)
        rows += held
        if tell:
            tell(held)
    return rows


def check_names(names: Iterable[str]) -> None:
    """Refuse the name of no race."""
    for name in names:
        if name not in RACES:
            raise ValueError(f"there is no race {name!r}; there are {', '.join(RACES)}")


def table(rows: Iterable[Row]) -> str:
    """Return the rows of a race as text."""
    lines: list[str] = []
    for row in rows:
        if not lines:
            lines.append(f"{row.race}: to {row.target}")
        if row.seconds is None:
            lines.append(f"  {row.contestant:26s} did not run: {row.note}")
            continue
        end = f"{row.seconds:.3g} s" if row.reached else f"not in {row.seconds:.3g} s"
        cost = f"{row.cpu_seconds:.3g} s of CPU, {row.compile_seconds:.3g} s to compile, {row.samples:.3g} samples"
        lines.append(f"  {row.contestant:26s} {end:>15s}, {cost}, at {row.value:.4g}  ({row.settings})")
    return "\n".join(lines)


MNIST = (
    ours(
        "sigma 0.01, n_s 20, signal norm, minibatches of 2000 held for 800 moves",
        AMC(sigma=1e-2, n_s=20, signal_norm=True),
        lambda problem: Minibatch(2000, hold=800),
    ),
    evosax.OPEN_ES,
    evosax.OPEN_ES_STEADY,
    evotorch.MNIST,
    cma.POPULATION,
)
DEEP = ours("sigma 0.01, epsilon 0.01, n_s 100, signal norm", AMC(sigma=1e-2, epsilon=1e-2, n_s=100, signal_norm=True))
SMALL = (
    DEEP,
    evosax.OPEN_ES_FULL,
    evotorch.REGRESSION,
    cma.POPULATION,
    nevergrad.ONE_PLUS_ONE,
    scipy.POWELL,
    scipy.NELDER_MEAD,
)
RACES: dict[str, Race] = {
    "mnist-90": Race(lambda: make_problem("mnist", {}), "accuracy >= 0.9", MNIST),
    "mnist-95": Race(lambda: make_problem("mnist", {}), "accuracy >= 0.95", MNIST),
    "sine": Race(lambda: make_problem("sine", {}), "loss <= 1e-3", SMALL),
    "step-32": Race(lambda: make_problem("step", {"depth": 32}), "loss <= 0.01", SMALL),
}


@click.command(help=__doc__)
@click.argument("names", nargs=-1)
@click.option("--limit", type=float, default=LIMIT, show_default=True, help="seconds on each contestant's clock")
@click.option("--seed", type=int, default=0, show_default=True, help="of the start and of all noise")
@click.option("--json", "file", type=click.Path(dir_okay=False), help="also write the rows to this file")
def main(names: tuple[str, ...], limit: float, seed: int, file: str | None) -> None:
    try:
        check_names(names)
        if file:
            Path(file).touch()  # now, not after minutes of racing, is the time to find that it cannot be written
        rows = run(names, limit, tell=lambda held: click.echo(table(held)), seed=seed)
        if file:
            Path(file).write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    except (ValueError, OSError, DataUnavailable) as error:
        raise click.UsageError(str(error)) from None


if __name__ == "__main__":
    main()
