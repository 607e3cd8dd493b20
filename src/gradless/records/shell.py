"""Paths in commands that a person is told to type."""

import shlex
from pathlib import Path


def in_shell(path: str | Path) -> str:
    """Return a path as it can be typed behind a command; one that begins with a dash would be taken for a flag."""
    words = str(path)
    return shlex.quote(f"./{words}" if words.startswith("-") else words)
