"""The runs in a folder, found without following a link out of it."""

from collections.abc import Callable
from pathlib import Path

from gradless.records import RunDirectory, RunError

MAX_RUNS = 500
DEPTH = 2  # runs/NAME, and runs/compare-NAME/ALGORITHM


def is_run(path: Path) -> bool:
    """Return whether a folder holds a run, as far as its settings.json tells."""
    return (path / "settings.json").is_file()


def runs_of(path: Path) -> list[Path]:
    """Return the folder itself if it is a run, else the runs in it; a RunError if there are none."""
    if is_run(path):
        return [path]
    if not path.is_dir():
        raise RunError(f"{path} is not a folder: give the folder of a run, or a folder with runs in it")
    found = find_runs(path)
    if not found:
        raise RunError(f"{path} holds no gradless run: give the folder of a run, or a folder with runs in it")
    return found


def readable_runs_of(path: Path, report: Callable[[str], None]) -> list[Path]:
    """Return the folder itself if it is a run, else the runs in it that are whole; `report` is told of the others."""
    found = runs_of(path)
    if found == [path]:
        return found
    whole = []
    for run in found:
        try:
            with RunDirectory.open(run):
                whole.append(run)
        except (OSError, RunError) as error:
            report(f"left out: {error}")
    if not whole:
        raise RunError(f"{path} holds no run that can be read")
    return whole


def find_runs(root: Path, depth: int = DEPTH) -> list[Path]:
    """Return the runs under a folder, newest last; folders that are links are left out: they may lead anywhere."""
    found: list[Path] = []
    try:
        entries = sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.is_symlink())
    except OSError:
        return []
    for entry in entries:
        if is_run(entry):
            found.append(entry)
        elif depth > 1:
            found += find_runs(entry, depth - 1)
    return found
