"""Deleting an earlier run from its folder, and nothing else that lies there."""

import re
from pathlib import Path

from . import disk, durable
from .errors import RunError
from .events import EVENTS, event_files

# settings.json and run.lock are ours too, but stay: the settings are replaced in one rename, the lock is held.
_STAY = {"settings.json", "run.lock", "checkpoints", EVENTS}
_FILES = {"environment.json", "metrics.jsonl", "accepted.log", "report.html", "journal.jsonl"} | {
    f"best.{suffix}" for suffix in ("txt", "json", "npy")
}
_CHECKPOINT = re.compile(r"[0-9]+\.safetensors(\.damaged(-[0-9]+)?)?")
_FIGURE = re.compile(r"(training|sweep)\.csv|(training|sweep(-[a-z_]+)?)\.(png|svg)")


def clear_run(path: Path) -> None:
    """Delete the files of a run that we know by name, and keep what else is there.

    Refuses, before anything is deleted, if one of our names is a link or of another kind than ours.
    """
    ours = event_files(path)
    temporaries = durable.temporaries(path)
    for entry in sorted(path.iterdir()):
        is_ours = entry.name in _FILES or bool(_FIGURE.fullmatch(entry.name)) or entry in temporaries
        if entry.is_symlink() and (is_ours or entry.name in _STAY):
            raise RunError(f"{entry} is a link, which a run must not contain: remove it first")
        if is_ours and not entry.is_file():
            raise RunError(f"{entry} is not a file, as it is in a run: remove it first")
        if entry.name == "checkpoints":
            ours += _checkpoints(entry)
        elif is_ours:
            ours.append(entry)
    for entry in ours:
        disk.unlink(entry)


def _checkpoints(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise RunError(f"{folder} is not a folder, as it is in a run: remove it first")
    temporaries = durable.temporaries(folder)
    named = [entry for entry in sorted(folder.iterdir()) if _CHECKPOINT.fullmatch(entry.name) and entry.is_file()]
    return [entry for entry in (*named, *temporaries) if not entry.is_symlink()]
