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
_DAMAGED_LOG = re.compile(r"accepted\.log\.damaged(-[0-9]+)?")


def clear_run(path: Path) -> tuple[Path, ...]:
    """Deletes the files of a run that we know by name; returns what else is there, which is kept.

    Refuses, before anything is deleted, if one of our names is a link or of another kind than ours.
    """
    ours = event_files(path)
    kept: list[Path] = []
    temporaries = durable.temporaries(path)
    for entry in sorted(path.iterdir()):
        is_ours = entry.name in _FILES or bool(_DAMAGED_LOG.fullmatch(entry.name)) or entry in temporaries
        if entry.is_symlink() and (is_ours or entry.name in _STAY):
            raise RunError(f"{entry} is a link, which a run must not contain: remove it first")
        if is_ours and not entry.is_file():
            raise RunError(f"{entry} is not a file, as it is in a run: remove it first")
        if entry.name == "checkpoints":
            _sort_checkpoints(entry, ours, kept)
        elif is_ours:
            ours.append(entry)
        elif entry.name not in _STAY:
            kept.append(entry)
    for entry in ours:
        disk.unlink(entry)
    return tuple(kept)


def _sort_checkpoints(folder: Path, ours: list[Path], kept: list[Path]) -> None:
    if not folder.is_dir():
        raise RunError(f"{folder} is not a folder, as it is in a run: remove it first")
    temporaries = durable.temporaries(folder)
    for entry in sorted(folder.iterdir()):
        is_ours = (bool(_CHECKPOINT.fullmatch(entry.name)) and entry.is_file()) or entry in temporaries
        (ours if is_ours and not entry.is_symlink() else kept).append(entry)
