"""A user's mistake is one line, never a stack trace; a mistake of ours keeps its trace."""

import contextlib
import os
import re
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

import click

LIBRARIES = (str(Path(__file__).parents[1]), *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))
FRAME = re.compile(r'  File "(.+)", line (\d+)')  # of a trace in words, which goes on to what is wrong:
TRACE = re.compile(r"Traceback \(most recent call last\):\n((?:  .+\n)+)(.+)")


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """Turn what users can get wrong, also in code of their own, into a message and exit code 2."""
    from gradless.data.store import DataUnavailable
    from gradless.records import RunError

    try:
        yield
    except (click.ClickException, BrokenPipeError):  # who read our output has gone: click ends without a word
        raise
    except OSError as error:
        raise Refused(told(error)) from error
    except Exception as error:
        place, words = place_in_users_code(error)
        if place is not None:
            raise Refused(f"{place}: {words}") from error
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
            raise Refused(f"not enough memory: a smaller net, fewer samples or chains ({first_line(error)})") from error
        if isinstance(error, ValueError | RunError | DataUnavailable):
            raise Refused(str(error)) from error
        raise


def place_in_users_code(error: BaseException) -> tuple[str | None, str]:
    """Return file and line where a user's own module was at fault, if it was, and what went wrong there.

    Of an error in a callback, as a simulator is one, JAX keeps but the words of its trace.
    """
    frames = [(frame.filename, str(frame.lineno)) for frame in traceback.extract_tb(error.__traceback__)]
    words = f"{type(error).__name__}: {first_line(error)}"
    if first_line(error).endswith("Traceback (most recent call last):") and (quoted := TRACE.search(str(error))):
        frames += FRAME.findall(quoted[1])
        words = quoted[2]
    for file, line in reversed(frames):
        if not file.startswith((*LIBRARIES, "<")):
            return f"{os.path.relpath(file)}, line {line}", words
    return None, words


def told(error: OSError) -> str:
    """Return what went wrong with a file, which may be the output, that has no name."""
    words = error.strerror or str(error)
    return words if error.filename is None else f"{error.filename}: {words}"


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return (str(error).splitlines() or [""])[0]


class Refused(click.ClickException):
    """Wrong use: what is wrong and what to do."""

    exit_code = 2
