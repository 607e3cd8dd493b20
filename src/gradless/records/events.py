"""The event files for TensorBoard in the folder of a run: which they are, and no others."""

import re
from pathlib import Path

from .errors import RunError

EVENTS = "tensorboard"  # the folder
_CHAIN = re.compile(r"chain-[0-9]+")


def event_files(run: Path) -> list[Path]:
    """Return the event files of a run; refuse a link, through which another folder's could be meant."""
    folder = run / EVENTS
    chains = [entry for entry in folder.iterdir() if _CHAIN.fullmatch(entry.name)] if folder.is_dir() else []
    files = [file for one in (folder, *sorted(chains)) if one.is_dir() for file in sorted(one.glob("events.out.*"))]
    for entry in (folder, *chains, *files):
        if entry.is_symlink():
            raise RunError(f"{entry} is a link, which a run must not contain: remove it first")
    return [file for file in files if file.is_file()]
