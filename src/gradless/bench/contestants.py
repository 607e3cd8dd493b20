"""Who takes part: what a contestant is, and the aMC of gradless as one of them."""

from collections.abc import Callable
from typing import Protocol

from gradless.bench.workloads import Workload


class Contestant(Protocol):
    """Somebody's way to make a step."""

    name: str

    def missing(self) -> str | None:
        """Return what to install, if it cannot run here."""

    def prepare(self, workload: Workload) -> Callable[[int], None]:
        """Return a function that makes so many steps (evaluations of the loss at population 1), compiled and warm.

        NotImplementedError where the workload is not for it.
        """
