"""Options such as --depth come from the problem: they are read off the function that makes it."""

import inspect
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import click

from gradless.cli.console import plain_console
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
            shared = {param.name for param in self.params} | {"help"}
            for option in ctx.meta["own"]:
                if option.name in shared:
                    flag = f"--{option.name.replace('_', '-')}"
                    raise ValueError(f"problem {name!r} has an option {flag}, which is a flag of every run: rename it")
        return super().parse_args(ctx, args)

    def _find_name(self, args: list[str]) -> str | None:
        """Return the word that stands for the problem: the first that is neither a flag nor a flag's value.

        Of a flag not known yet, which is the problem's own, nobody can tell whether the word after it is its value.
        """
        takes_value = {
            flag: not option.is_flag
            for option in self.params
            if isinstance(option, click.Option)
            for flag in (*option.opts, *option.secondary_opts)
        }
        doubtful = []
        words = iter([*args, ""])
        word = next(words)
        while word:
            if not word.startswith("-"):
                return word
            following = next(words)
            is_alone = "=" in word or word in ("-h", "--help") or not takes_value.get(word, True)
            if is_alone or (word not in takes_value and following.startswith("-")):
                word = following
            else:
                doubtful += [] if word in takes_value else [following]
                word = next(words, "")
        return next((word for word in doubtful if word in PROBLEMS or ":" in word), None)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *ctx.meta.get("own", [])]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Problems (`PROBLEM --help` shows the options of each)"):
            rows = [(name, (factory.__doc__ or "").splitlines()[0]) for name, factory in PROBLEMS.items()]
            formatter.write_dl(
                [*rows, ("module:object", "your own: a gradless.Problem or a function that returns one")]
            )


def options_of(factory: Callable[..., Any]) -> list[click.Option]:
    """Return one flag per keyword argument of the function that makes a problem."""
    try:
        hints = get_type_hints(factory, include_extras=True)
    except Exception:  # annotations that only a type checker can read: the defaults say enough
        hints = {}
    options = []
    for name, parameter in inspect.signature(factory).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        kind, words = _kind(hints.get(name, type(parameter.default)))
        if kind is None and parameter.default is not parameter.empty:
            continue  # a tuple, say, cannot be told by a flag
        flag = f"--{name.replace('_', '-')}"
        names = [f"{flag}/--no-{name.replace('_', '-')}"] if kind is bool else [flag]
        default = "" if parameter.default in ("", inspect.Parameter.empty) else f" [{parameter.default}]"
        options.append(click.Option(names, type=kind or str, default=None, help=f"{words}{default}"))
    return options


def _kind(hint: Any) -> tuple[Any, str]:
    """Return the type that a flag reads, None if it can read no such thing, and what to say of it."""
    words = "option of the problem"
    if get_origin(hint) is Annotated:
        hint, *own = get_args(hint)
        words = " ".join(str(word) for word in own)
    if get_origin(hint) in (Union, UnionType):  # int | None: the flag may be left out
        hints = [one for one in get_args(hint) if one is not NoneType]
        hint = hints[0] if len(hints) == 1 else str if str in hints else None
    if hint in (Any, NoneType, inspect.Parameter.empty, type):  # nothing is said of it
        hint = str
    return (hint if hint in (int, float, str, bool) else None), words


def load_problem(ctx: click.Context, flags: dict[str, Any]) -> tuple[Problem, dict[str, Any]]:
    """Return the problem that the command names and the options it was given; data are fetched with a bar."""
    options = take_options(ctx, flags)
    if flags["problem"] in PROBLEMS and flags["problem"].startswith("mnist"):
        fetch_mnist(options.get("data_dir"), plain_console(stderr=True, quiet=bool(flags["quiet"] or flags["json"])))
    return make_problem(flags["problem"], options), options


def take_options(ctx: click.Context, flags: dict[str, Any]) -> dict[str, Any]:
    """Take the problem's own options out of the flags, and return those that were given."""
    own = {option.name: flags.pop(option.name, None) for option in ctx.meta["own"]}
    return {name: value for name, value in own.items() if value is not None}
