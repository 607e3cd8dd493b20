"""`gradless optimize --command "./simulate {params} {result}"`."""

import dataclasses
from datetime import date
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

from gradless.asktell.chain import MOST_ROWS
from gradless.cli.console import plain_console
from gradless.cli.errors import one_line
from gradless.cli.evaluating import follower, show
from gradless.cli.flags import ALGORITHM_OPTIONS, OUTPUT_OPTIONS, Duration, giving_back
from gradless.cli.follow import stopping_cleanly
from gradless.cli.interrupts import EXIT_CODES
from gradless.cli.progress import report_to
from gradless.command.files import SUFFIXES, read_params
from gradless.command.optimization import Limits, Optimization
from gradless.command.program import OutsideProgram
from gradless.command.store import Setup, begin, go_on
from gradless.engine.plan import NUM_RECORDS
from gradless.kernels import ALGORITHMS, Anneal
from gradless.records import RunDirectory, in_shell, next_run_path
from gradless.types import Algorithm

STEPS = 1000  # where no limit is given
KERNELS = ("amc", "mc")
SITTING = ("workers", "timeout", "retries", "steps", "evaluations", "time", "target_loss")  # may change at --resume
SETTINGS = ("sigma", "epsilon", "n_s", "temperature", "sigma_decay")


class Bounds(click.ParamType):
    """LOW:HIGH for all parameters; either may be left out."""

    name = "LOW:HIGH"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[float, float]:
        low, colon, high = str(value).partition(":")
        try:
            numbers = float(low or "-inf"), float(high or "inf")
        except ValueError:
            colon = ""
        if not colon:
            self.fail(f"must look like 0:1, 0: or :1, got {value!r}", param, ctx)
        return numbers


OPTIONS: list[click.Parameter] = [
    click.Option(["--command"], help='the program, for instance "./simulate {params} {result}"'),
    click.Option(["--dim"], type=click.IntRange(1), help="number of parameters; they start at 0"),
    click.Option(["--x0"], type=click.Path(dir_okay=False), help="file to start from: numbers as text, .json or .npy"),
    click.Option(
        ["--params-format"],
        type=click.Choice(list(SUFFIXES)),
        help="of {params} (default: that of --x0, else text)",
    ),
    click.Option(["--result-key"], default="loss", help="name of the loss in a result that is JSON (default: loss)"),
    click.Option(["--shell"], is_flag=True, help="run the command by /bin/sh; without this no shell is used"),
    click.Option(["--bounds"], type=Bounds(), help="moves are reflected at these, for instance 0:1 or 0:"),
    click.Option(
        ["--workers"], type=click.IntRange(1, MOST_ROWS), default=1, help="evaluations at a time; the chain is the same"
    ),
    click.Option(["--timeout"], type=Duration(), help="end an evaluation after this time, as a failure"),
    click.Option(
        ["--retries"],
        type=click.IntRange(0),
        default=0,
        help="further tries after a failure; then the move is rejected",
    ),
    click.Option(["--average"], type=click.IntRange(1), default=1, help="evaluations of each point, for noisy losses"),
    click.Option(
        ["--reevaluate-every"], type=click.IntRange(1), help="steps between new evaluations of the same point"
    ),
    click.Option(["--algorithm"], type=click.Choice(KERNELS), help="amc (adaptive, the default) or mc"),
    click.Option(["--sigma"], type=float, help="initial move scale"),
    *[option for option in ALGORITHM_OPTIONS if option.name in ("epsilon", "n_s", "temperature", "sigma_decay")],
    click.Option(["--seed"], type=click.IntRange(0), default=0, help="seed of all random numbers (default: 0)"),
    click.Option(["--steps"], type=click.IntRange(1), help=f"number of steps; {STEPS} where nothing else ends the run"),
    click.Option(["--evaluations"], type=click.IntRange(1), help="number of evaluations, those thrown away included"),
    click.Option(["--time"], type=Duration(), help="stop after this time, for instance 2h"),
    click.Option(["--target-loss"], type=float, help="stop when the loss is this low"),
    click.Option(["--record-every"], type=click.IntRange(1), help="steps between records (default: 1/1000 of all)"),
    click.Option(["--resume"], is_flag=True, help="continue the run in --run; nothing is evaluated twice"),
    click.Option(["--trust"], is_flag=True, help="with --resume: run the program that the run names"),
    *OUTPUT_OPTIONS,
]


@click.pass_context
def optimize(ctx: click.Context, **flags: Any) -> None:
    console = plain_console(stderr=flags["json"])
    with one_line():
        if flags["resume"]:
            directory, setup = _go_on(ctx, flags)
        else:
            directory, setup = _begin(flags)
        with directory:
            run = _prepare(directory, setup, flags)
            run.report = report_to(console, flags["json"])
            with follower(console, flags["quiet"], flags["json"]) as run.listener, stopping_cleanly(run):
                run.go()
    path = str(directory.path)
    show(console, run, path, flags["quiet"], flags["json"])
    if run.stopped_by in EXIT_CODES:
        again = f"gradless optimize --resume --trust --run {in_shell(path)}"
        click.echo(f"stopped by {run.stopped_by} at step {run.chain.step:,}; go on with: {again}", err=True)
        raise SystemExit(EXIT_CODES[run.stopped_by])


def _begin(flags: dict[str, Any]) -> tuple[RunDirectory, Setup]:
    setup = _setup(flags)
    program(setup, flags).check()
    setup.chain()  # refuses what cannot be, before a folder is made
    path = flags["run"] or str(next_run_path("runs", "optimize", date.today()))
    with giving_back(path, flags):
        return begin(path, setup, _sitting(flags), flags["overwrite"]), setup


def _go_on(ctx: click.Context, flags: dict[str, Any]) -> tuple[RunDirectory, Setup]:
    if flags["run"] is None or flags["overwrite"]:
        raise ValueError("--resume needs the folder of a run, --run DIR, and no --overwrite")
    said = {name for name in flags if ctx.get_parameter_source(name) not in (ParameterSource.DEFAULT, None)}
    given = {name: flags[name] for name in said & {field.name for field in dataclasses.fields(Setup)}}
    given |= {"bounds": list(flags["bounds"])} if "bounds" in given else {}
    given |= {"x0": _start(flags)[0].tolist()} if said & {"x0", "dim"} else {}
    given.pop("algorithm", None)
    directory, setup, sitting = go_on(flags["run"], given, flags["trust"])
    try:
        _check_same_algorithm(setup.algorithm, {name: flags[name] for name in said & {"algorithm", *SETTINGS}})
        stored = set(SITTING) - said - ({"steps"} if sitting.get("has_default_steps") else set())
        flags |= {name: sitting.get(name) for name in stored if sitting.get(name) is not None}
        program(setup, flags).check()
        directory.update_settings({**directory.settings, "sitting": _sitting(flags)})
    except BaseException:
        directory.close()
        raise
    return directory, setup


def _check_same_algorithm(algorithm: Algorithm, given: dict[str, Any]) -> None:
    for name, value in given.items():
        stored = algorithm.name if name == "algorithm" else getattr(algorithm, name, None)
        if isinstance(stored, Anneal):
            stored = (stored.start, stored.end)
        if stored != value:
            raise ValueError(f"--{name.replace('_', '-')} must be that of the run, {stored}, got {value}: leave it out")


def _sitting(flags: dict[str, Any]) -> dict[str, Any]:
    # The default number of steps is kept for those who watch the run; a limit given later takes its place.
    default = {"steps": _steps(flags), "has_default_steps": flags["steps"] is None}
    return {name: flags[name] for name in SITTING} | default


def _setup(flags: dict[str, Any]) -> Setup:
    if flags["command"] is None:
        raise ValueError('--command must name the program, for instance --command "./simulate {params} {result}"')
    x0, form = _start(flags)
    return Setup(
        command=flags["command"],
        x0=x0,
        algorithm=_algorithm(flags),
        seed=flags["seed"],
        shell=flags["shell"],
        params_format=flags["params_format"] or form,
        result_key=flags["result_key"],
        average=flags["average"],
        reevaluate_every=flags["reevaluate_every"],
        bounds=flags["bounds"],
        record_every=flags["record_every"] or max(1, (_steps(flags) or 0) // NUM_RECORDS),
    )


def _start(flags: dict[str, Any]) -> tuple[np.ndarray, str]:
    if (flags["dim"] is None) == (flags["x0"] is None):
        raise ValueError("give --dim N, to start at N zeros, or --x0 FILE, and not both")
    return read_params(Path(flags["x0"])) if flags["x0"] else (np.zeros(flags["dim"]), "text")


def _algorithm(flags: dict[str, Any]) -> Algorithm:
    name = flags["algorithm"] or KERNELS[0]
    kernel = ALGORITHMS[name]
    given = {setting: flags[setting] for setting in SETTINGS if flags[setting] is not None}
    for setting in given.keys() - {field.name for field in dataclasses.fields(kernel)}:
        raise ValueError(f"--{setting.replace('_', '-')} does not apply to algorithm {name}")
    if isinstance(given.get("temperature"), tuple):
        if (steps := _steps(flags)) is None:
            raise ValueError("--temperature START:END needs --steps, over which it falls")
        start, end = given["temperature"]
        given["temperature"] = Anneal(start, end, steps=float(steps))
    return kernel(**given)


def _steps(flags: dict[str, Any]) -> int | None:
    has_limit = any(flags[name] is not None for name in ("evaluations", "time", "target_loss"))
    return flags["steps"] or (None if has_limit else STEPS)


def program(setup: Setup, flags: dict[str, Any]) -> OutsideProgram:
    """Return the program of a run; how long and how often it is tried may differ from sitting to sitting."""
    return OutsideProgram(
        setup.command, setup.shell, setup.params_format, setup.result_key, flags["timeout"], flags["retries"]
    )


def _prepare(directory: RunDirectory, setup: Setup, flags: dict[str, Any]) -> Optimization:
    given = {
        "steps": _steps(flags),
        "evaluations": flags["evaluations"],
        "seconds": flags["time"],
        "target_loss": flags["target_loss"],
    }
    limits = Limits(**{name: float(value) for name, value in given.items() if value is not None})
    return Optimization(
        setup.chain(),
        program(setup, flags),
        directory,
        limits,
        workers=flags["workers"],
        average=setup.average,
        record_every=setup.record_every,
    )


command = click.Command(
    "optimize",
    params=OPTIONS,
    callback=optimize,
    help="Minimise what an outside program computes. {params} in the command becomes the name of a file with the "
    "parameters, {result} the name of the file to which the program writes its loss (without {result} it prints the "
    "loss), {seed} a number for a noisy program, different for each evaluation.",
)
