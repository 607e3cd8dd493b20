"""A peer: a library with the settings its own documentation recommends."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gradless.bench.peers.search import Search
from gradless.bench.peers.task import Task

WARM_UP = 3  # evaluations, so that the first of a library's own preparations are not timed


@dataclass(frozen=True)
class Peer:
    """One way of another library to minimise; a contestant of `gradless bench`."""

    name: str
    package: str  # the name under which Python finds the library
    install: str  # the name under which pip finds it
    settings: str  # in words, for the table
    search: Callable[[Task], Search]
    largest: int | None = None  # the number of parameters beyond which it is not for a task

    def missing(self) -> str | None:
        """Return what to install, if it cannot run here."""
        return None if importlib.util.find_spec(self.package) else f"pip install {self.install}"

    def begin(self, task: Task) -> Search:
        """Return the search on a task, compiled; NotImplementedError where the task is not for it."""
        if self.largest is not None and len(task.x0) > self.largest:
            raise NotImplementedError(f"{self.name} is for at most {self.largest} parameters, got {len(task.x0)}")
        return self.search(task)

    def prepare(self, workload: Any) -> Callable[[int], None]:
        """Return a function that makes so many evaluations of the loss at population 1, compiled and warmed up."""
        search = self.begin(Task.of(workload))
        search.advance(WARM_UP)
        return search.advance
