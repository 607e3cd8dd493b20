"""Options such as --depth come from the problem: they are read off the function that makes it."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import click
from rich.console import Console

from gradless.cli.data import fetch_mnist
from gradless.cli.errors import one_line
from gradless.problem import Problem
from gradless.problems import PROBLEMS, find_problem, make_problem


class ProblemCommand(click.Command):
    """A command `NAME [OPTIONS] PROBLEM` that also takes the options of the problem it is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        name = self._find_name(args)
        with one_line():
            ctx.meta["own"] = [] if name is None else options_of(find_problem(name))
        return super().parse_args(ctx, args)

    def _find_name(self, args: list[str]) -> str | None:
        """Return the word that stands for the problem: the first that is neither a flag nor a flag's value."""
        takes_value = {
            flag: not option.is_flag
            for option in self.params
            if isinstance(option, click.Option)
            for flag in (*option.opts, *option.secondary_opts)
        }
        words = iter(args)
        for word in words:
            if not word.startswith("-"):
                return word
            if "=" not in word and takes_value.get(word, word not in ("-h", "--help")):
                next(words, None)  # its value; a flag not known yet is the problem's own, and most of those take one
        return next((word for word in args if word in PROBLEMS), None)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        own = ctx.meta.get("own", [])
        taken = {option.name for option in own}
        return [*[param for param in super().get_params(ctx) if param.name not in taken], *own]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Problems (`PROBLEM --help` shows the options of each)"):
            rows = [(name, (factory.__doc__ or "").splitlines()[0]) for name, factory in PROBLEMS.items()]
            formatter.write_dl(
                [*rows, ("module:object", "your own: a gradless.Problem or a function that returns one")]
            )


def options_of(factory: Callable[..., Any]) -> list[click.Option]:
    """Return one flag per keyword argument of the function that makes a problem."""
    hints = get_type_hints(factory, include_extras=True)
    options = []
    for name, parameter in inspect.signature(factory).parameters.items():
        kind, words = _kind(hints.get(name, str))
        flag = f"--{name.replace('_', '-')}"
        names = [f"{flag}/--no-{name.replace('_', '-')}"] if kind is bool else [flag]
        default = "" if parameter.default in ("", inspect.Parameter.empty) else f" [{parameter.default}]"
        options.append(click.Option(names, type=kind, default=None, help=f"{words}{default}"))
    return options


def _kind(hint: Any) -> tuple[Any, str]:
    if get_origin(hint) is Annotated:
        kind, *words = get_args(hint)
        return kind, " ".join(str(word) for word in words)
    return (hint if hint in (int, float, str, bool) else str), "option of the problem"


def load_problem(ctx: click.Context, flags: dict[str, Any]) -> tuple[Problem, dict[str, Any]]:
    """Return the problem that the command names and the options it was given; data are fetched with a bar."""
    options = take_options(ctx, flags)
    if flags["problem"].startswith("mnist"):
        fetch_mnist(options.get("data_dir"), Console(stderr=True, quiet=bool(flags["quiet"] or flags["json"])))
    return make_problem(flags["problem"], options), options


def take_options(ctx: click.Context, flags: dict[str, Any]) -> dict[str, Any]:
    """Take the problem's own options out of the flags, and return those that were given."""
    own = {option.name: flags.pop(option.name, None) for option in ctx.meta["own"]}
    return {name: value for name, value in own.items() if value is not None}
