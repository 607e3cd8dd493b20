"""What a live page shows, read again only when the run has changed, however many browsers look on."""

import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gradless.records import RunError
from gradless.report.listing import MAX_RUNS, find_runs
from gradless.report.page import embedded
from gradless.report.run_view import RunView


class WatchedRun:
    """One run; `text` is the JSON of the page's data, with a number that grows when it changes."""

    def __init__(self, path: Path, trust: bool, about: dict[str, str]) -> None:
        self.view = RunView(path, trust, in_background=True)
        self._about = about  # where the page finds its events, and the list of runs
        self._lock = threading.Lock()
        self._stamp: Any = None
        self._data: dict[str, Any] = {}
        self._number = 0

    def data(self) -> tuple[int, dict[str, Any]]:
        """Return the data of the page and their number; a run that cannot be read is told as `gone`."""
        with self._lock:
            stamp = self.view.stamp()
            if stamp != self._stamp:
                self._stamp = stamp
                self._number += 1
                try:
                    self._data = {"runs": [self.view.facts()], **self._about}
                except RunError as error:
                    self._data = {"gone": f"{error}", **self._about}
            return self._number, self._data

    def is_busy(self) -> bool:
        """Return whether the nets are being asked at this moment."""
        return self.view.asking is not None and self.view.asking.is_alive()


class WatchedFolder:
    """A folder of runs: the list, and each of its runs by name."""

    def __init__(self, root: Path, trust: bool) -> None:
        self.root = root
        self.trust = trust
        self._lock = threading.Lock()
        self._rows: dict[str, IndexRow] = {}
        self._runs: dict[str, WatchedRun] = {}
        self._data: dict[str, Any] = {}
        self._number = 0

    def run(self, name: str) -> WatchedRun | None:
        """Return the run of that name if it is in the list: a name is looked up, never made into a path."""
        with self._lock:
            paths = self._paths()
            if name not in paths:
                return None
            if name not in self._runs:
                about = {"live": f"/events/{name_in_url(name)}", "home": "/"}
                self._runs[name] = WatchedRun(paths[name], self.trust, about)
            return self._runs[name]

    def data(self) -> tuple[int, dict[str, Any]]:
        """Return the list of runs, the latest first, and its number."""
        with self._lock:
            paths = self._paths()
            self._rows = {name: self._rows.get(name) or IndexRow(path) for name, path in paths.items()}
            rows = [
                {**row.read(), "name": name, "href": f"/run/{name_in_url(name)}"} for name, row in self._rows.items()
            ]
            rows.sort(key=lambda row: row["last_record"] or "", reverse=True)
            more = max(0, len(rows) - MAX_RUNS)
            data = {"index": rows[:MAX_RUNS], "more": more, "folder": str(self.root), "live": "/events"}
            if data != self._data:
                self._data, self._number = data, self._number + 1
            return self._number, self._data

    def is_busy(self) -> bool:
        """Return whether some net is being asked at this moment."""
        return any(run.is_busy() for run in self._runs.values())

    def _paths(self) -> dict[str, Path]:
        return {path.relative_to(self.root).as_posix(): path for path in find_runs(self.root)}


class IndexRow:
    """One line of the list, read again only when the run has changed."""

    def __init__(self, path: Path) -> None:
        self._view = RunView(path)
        self._stamp: Any = None
        self._row: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """Return what the list says of the run."""
        stamp = self._view.stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._row = self._view.outline()
            except RunError as error:
                names = ("algorithm", "step", "loss", "last_record")
                self._row = {"problem": str(error), "state": "damaged", **dict.fromkeys(names)}
        return self._row


def name_in_url(name: str) -> str:
    """Return the name of a run as one part of a path; names on a disk need not be text."""
    return quote(name, safe="", errors="surrogateescape")


def event(number: int, data: dict[str, Any]) -> bytes:
    """Return data as one server-sent event; the JSON has no line breaks, which would end it."""
    return f"id: {number}\ndata: {embedded(data)}\n\n".encode()
