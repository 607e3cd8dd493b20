"""The flags that the training commands share, and what they mean for an algorithm and a plan."""

import contextlib
import dataclasses
import difflib
import os
import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gradless.cli import interrupts
from gradless.engine.batches import Minibatch, Progressive, num_samples
from gradless.engine.plan import LARGEST, Plan, chain_numbers, check_whole
from gradless.kernels import ALGORITHMS, Anneal
from gradless.problem import Problem
from gradless.report.again import NUMBERS
from gradless.runs import parse_batch
from gradless.types import Algorithm

ALGORITHM_FLAGS = (*NUMBERS, "signal_norm")


class Duration(click.ParamType):
    """A time such as 90, 90s, 5m, 2h or 1h30m, in seconds."""

    name = "TIME"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, int | float):
            return float(value)
        found = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", value.strip())
        if not found or not any(found.groups()):
            self.fail(f"must look like 90s, 5m, 2h or 1h30m, got {value!r}", param, ctx)
        hours, minutes, seconds = (float(part or 0) for part in found.groups())
        return 3600 * hours + 60 * minutes + seconds


class Temperature(click.ParamType):
    """A number, or START:END for simulated annealing over the run."""

    name = "T|START:END"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        parts = str(value).split(":")
        try:
            numbers = tuple(float(part) for part in parts)
        except ValueError:
            numbers = ()
        if len(numbers) not in (1, 2):
            self.fail(f"must be a number, or START:END for annealing, got {value!r}", param, ctx)
        return numbers[0] if len(numbers) == 1 else numbers


class Sigma(click.ParamType):
    """A positive number, or `auto` to try several first."""

    name = "NUMBER|auto"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value == "auto" or isinstance(value, float):
            return value
        try:
            return float(value)
        except ValueError:
            self.fail(f"must be a number or auto, got {value!r}", param, ctx)


def read_config(ctx: click.Context, param: click.Parameter, path: str | None) -> str | None:
    """Take the settings of a TOML file as defaults: flags win."""
    if path is None:
        return None
    try:
        table = tomllib.loads(Path(path).read_text("utf-8-sig"))  # some editors begin a file with a mark
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise click.BadParameter(f"{path} is not TOML: {error}") from error
    # As text, so that a value is looked at as closely as that of a flag: steps = 2.5 is refused, not cut off.
    kinds = {one.name: one.type for one in ctx.command.get_params(ctx)}
    names = {name.replace("-", "_"): value for name, value in table.items()}
    names = {name: _as_text(value, kinds.get(name)) for name, value in names.items()}
    for name in names:
        if sum(key.replace("-", "_") == name for key in table) > 1:
            raise click.BadParameter(f"{path} sets {name!r} twice, with _ and with -: leave one out")
    known = [one.name for one in ctx.command.get_params(ctx) if one.name not in ("problem", "config", "help", None)]
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, [one for one in known if one], n=1)
            raise click.BadParameter(f"{path} sets {name!r}, which is no setting" + (f"; {close[0]}?" if close else ""))
    ctx.default_map = {**(ctx.default_map or {}), **names}
    return path


def _as_text(value: Any, kind: click.ParamType | None) -> str:
    """Return a value of a file as it would stand behind a flag; a list, where several are taken, with commas."""
    is_list = isinstance(value, list) and getattr(kind, "takes_several", False)
    return ",".join(map(str, value)) if is_list else str(value)


ALGORITHM_OPTIONS = [
    click.Option(["--algorithm"], type=click.Choice(list(ALGORITHMS)), help="mc, amc, gd (gradient descent) or adam"),
    click.Option(["--sigma"], type=Sigma(), help="initial move scale, or auto to try several first"),
    click.Option(["--epsilon"], type=float, help="rate at which mu follows accepted moves"),
    click.Option(["--n-s"], type=float, help="rejections in a row before sigma shrinks; inf for never"),
    click.Option(["--signal-norm/--no-signal-norm"], default=None, help="scale moves by the neurons' inputs"),
    click.Option(["--temperature"], type=Temperature(), help="START:END anneals over the run (default: 0)"),
    click.Option(["--sigma-decay"], type=float, help="factor on sigma after n_s rejections (default: 0.95)"),
    click.Option(["--learning-rate"], type=float, help="step size of gd and adam"),
    click.Option(["--clip"], type=float, help="largest gradient norm, of gd and adam"),
]

LENGTH_OPTIONS = [
    click.Option(["--steps"], type=int, help="number of steps"),
    click.Option(["--epochs"], type=int, help="passes over the data, as records count them, instead of --steps"),
    click.Option(["--time"], type=Duration(), help="stop after this time, for instance 2h"),
    click.Option(["--target-loss"], type=float, help="stop when the loss is this low"),
    click.Option(["--target-metric"], help='stop when a metric meets this, for instance "accuracy >= 0.9"'),
    click.Option(["--stop-when-frozen"], is_flag=True, default=None, help="stop when moves are too small to change x"),
]

RUN_OPTIONS = [
    click.Option(["--batch"], help="full, a minibatch size such as 2000, or progressive:500"),
    click.Option(["--hold"], type=click.IntRange(1), help="moves made on each minibatch (default: 1)"),
    click.Option(["--chains"], type=click.IntRange(1), help="number of independent chains (default: 1)"),
    click.Option(["--seed"], type=click.IntRange(0), help="seed of all random numbers (default: 0)"),
    click.Option(["--precision"], type=click.Choice(["float32", "float64"]), help="of the parameters"),
    click.Option(["--record-every"], type=click.IntRange(1), help="steps between records (default: 1/1000 of all)"),
    click.Option(
        ["--select-every"],
        type=click.IntRange(1),
        help="steps between selections: the best chains replace the worst",
    ),
    click.Option(["--select-fraction"], type=float, help="share of the chains that is replaced (default: 0.25)"),
    click.Option(["--checkpoint-every"], type=Duration(), metavar="SECONDS", help="between checkpoints (default: 30)"),
]

FOLDERS = {"train": "<problem>", "sweep": "sweep-<problem>", "compare": "compare-<problem>", "optimize": "optimize"}


class RunFolder(click.Option):
    """`--run`, whose help names the folder that the command makes by itself."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        folder = FOLDERS[str(ctx.command.name)]
        return f"--run {self.make_metavar(ctx)}", f"folder of the run; runs/{folder}-<date>-<n>"


OUTPUT_OPTIONS = [
    RunFolder(["--run"], type=click.Path(file_okay=False)),
    click.Option(["--overwrite"], is_flag=True, help="replace an earlier run in that folder"),
    click.Option(
        ["--config"], type=click.Path(), callback=read_config, is_eager=True, help="settings in TOML; flags win"
    ),
    click.Option(["--quiet"], is_flag=True, help="only the last line"),
    click.Option(["--json"], is_flag=True, help="one JSON object per line, for machines"),
]


def make_algorithm(problem: Problem, flags: dict[str, Any], steps: int) -> Algorithm:
    """Return the algorithm that the flags ask for; what they leave open is the problem's own choice."""
    name = flags.get("algorithm") or next(iter(problem.algorithms), "amc")
    if name not in ALGORITHMS:
        raise ValueError(f"algorithms of the problem must be among {', '.join(ALGORITHMS)}, got {name!r}")
    fields = {field.name for field in dataclasses.fields(ALGORITHMS[name])}
    given = {flag: flags[flag] for flag in ALGORITHM_FLAGS if flags.get(flag) is not None}
    for flag in given:
        if flag not in fields:
            raise ValueError(f"--{flag.replace('_', '-')} does not apply to algorithm {name}: it has {_list(fields)}")
    settings = {**problem.algorithms.get(name, {}), **given}
    for unknown in settings.keys() - fields:
        raise ValueError(f"algorithm {name} of the problem has no setting {unknown!r}: it has {_list(fields)}")
    if isinstance(settings.get("temperature"), tuple):
        if steps >= LARGEST:
            raise ValueError("--temperature START:END needs --steps or --epochs, over which it falls")
        start, end = settings["temperature"]
        settings["temperature"] = Anneal(start, end, steps=float(steps))
    return ALGORITHMS[name](**settings)


def make_plan(problem: Problem, flags: dict[str, Any]) -> Plan:
    """Return how the run is to be made; what the flags leave open is the problem's own choice."""
    batches = parse_batch(str(flags.get("batch") or problem.batch), problem)
    if flags.get("hold"):
        if not isinstance(batches, Minibatch):
            raise ValueError("--hold needs minibatches: give their size with --batch")
        batches = Minibatch(batches.size, batches.sampling, flags["hold"])
    if flags.get("select_fraction") is not None and flags.get("select_every") is None:
        raise ValueError("--select-fraction needs --select-every")
    optional = {
        name: flags[name]
        for name in (
            "seed",
            "record_every",
            "select_every",
            "select_fraction",
            "checkpoint_every",
            "stop_when_frozen",
            "speculate",
        )
        if flags.get(name) is not None
    }
    return Plan(
        steps=_steps(problem, batches, flags),
        batches=batches,
        chains=chain_numbers(flags.get("chains") or 1),
        precision=flags.get("precision") or problem.precision,
        target_loss=flags.get("target_loss"),
        target_metric=flags.get("target_metric"),
        time_budget=flags.get("time"),
        **optional,
    )


def _steps(problem: Problem, batches: Any, flags: dict[str, Any]) -> int:
    flags = _given_win(flags, "steps", "epochs")
    if flags.get("epochs") is None:
        no_limit = flags.get("time") is not None and flags.get("steps") is None
        return LARGEST if no_limit else flags["steps"] if flags.get("steps") is not None else problem.steps
    if flags.get("steps") is not None:
        raise ValueError("--steps and --epochs exclude each other: give one")
    if isinstance(batches, Progressive):
        raise ValueError("--epochs has no fixed number of steps with progressive batches: give --steps or --time")
    check_whole("epochs", flags["epochs"], least=1, most=LARGEST)
    num_data = num_samples(problem.data)
    batches.check(num_data)
    # The first step at which the records say so: each move on a held minibatch counts, and the last one is shorter.
    wanted = flags["epochs"] * max(num_data, 1)
    return bisect_left(range(LARGEST + 1), wanted, key=lambda steps: batches.drawn(steps, num_data))


def _given_win(flags: dict[str, Any], *names: str) -> dict[str, Any]:
    """Leave out what a file says of settings that exclude each other, if one of them was given as a flag."""
    ctx = click.get_current_context(silent=True)
    given = [one for one in names if ctx and ctx.get_parameter_source(one) == ParameterSource.COMMANDLINE]
    return flags if not given else flags | {name: None for name in names if name not in given}


@contextlib.contextmanager
def giving_back(run: str, flags: dict[str, Any]) -> Iterator[None]:
    """Delete the empty folder that was made for a run without a name again, if the run does not begin."""

    def give_back() -> None:
        if not flags["run"]:
            with contextlib.suppress(OSError):
                os.rmdir(run)

    try:
        with interrupts.leaving_after(give_back):
            yield
    except BaseException:
        give_back()
        raise


def _list(fields: set[str]) -> str:
    return ", ".join(f"--{flag.replace('_', '-')}" for flag in ALGORITHM_FLAGS if flag in fields)


def command_with_problem(name: str, options: list[click.Option], run: Callable[..., None], doc: str) -> click.Command:
    """Return a command whose argument is a problem, and whose flags include that problem's own options."""
    from gradless.cli.problem_options import ProblemCommand

    argument = click.Argument(["problem"])
    return ProblemCommand(name, params=[argument, *options], callback=run, help=doc)
