"""Where the commands print: plain text, so that a folder called `a[b]` or a metric called `:x:` comes out as it is."""

from rich.console import Console


def plain_console(stderr: bool = False, quiet: bool = False) -> Console:
    """Return a console that takes no markup out of what it prints."""
    return Console(stderr=stderr, quiet=quiet, markup=False, emoji=False, highlight=False, soft_wrap=True)
