"""Where the commands print: plain text, so that a folder called `a[b]` or a metric called `:x:` comes out as it is."""

import contextlib
import os
import sys
from collections.abc import Iterator

from rich.console import Console


def plain_console(stderr: bool = False, quiet: bool = False) -> Console:
    """Return a console that takes no markup out of what it prints."""
    return Console(stderr=stderr, quiet=quiet, markup=False, emoji=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def told_if_possible() -> Iterator[None]:
    """Let a run go on where what is printed of it cannot be written, on a full disk say: from then on it is silent."""
    try:
        yield
    except BrokenPipeError:  # who read our output has gone, and with them the wish for a run
        raise
    except OSError:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                with open(os.devnull, "w") as nowhere:
                    os.dup2(nowhere.fileno(), stream.fileno())
