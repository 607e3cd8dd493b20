"""What the machine gives to this process: cores, and packages by version."""

import os
from importlib.metadata import PackageNotFoundError, version


def num_cores() -> int:
    """Return how many cores this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def version_of(package: str) -> str | None:
    """Return the version of an installed package, or None if there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
