"""Several processes that run the same session in step: what they must agree on between chunks."""

from collections.abc import Callable

import jax
import numpy as np
from jax.experimental import multihost_utils

WORDS = 32  # bytes of the reason to stop that are passed on


def is_first() -> bool:
    """Return whether this process writes for all."""
    return jax.process_index() == 0


def first_checks(check: Callable[[], None]) -> None:
    """Let process 0 look at something for all: where it refuses, so do the others, who would wait for it in vain.

    All processes must call this, also those that are given nothing to look at.
    """
    refusal: Exception | None = None
    if is_first():
        try:
            check()
        except Exception as error:
            refusal = error
    is_refused = refusal is not None
    if jax.process_count() > 1:
        is_refused = bool(np.ravel(multihost_utils.process_allgather(np.int32(is_refused)))[0])
    if refusal is not None:
        raise refusal
    if is_refused:
        raise ValueError("process 0 has refused the run")


def check_in_step(t: int) -> None:
    """Refuse to begin where processes stand at different steps."""
    if jax.process_count() == 1:
        return
    steps = np.ravel(multihost_utils.process_allgather(np.int32(t))).tolist()
    if len(set(steps)) > 1:
        raise ValueError(f"the processes stand at steps {steps}: all must see the run directory that process 0 writes")


def agree(numbers: list[int], reason: str) -> tuple[list[int], str]:
    """Return the numbers of process 0, and the reason to stop of the first process that has one.

    Clocks and signals differ between processes; the lengths of chunks, and the end, may not.
    """
    if jax.process_count() == 1:
        return numbers, reason
    told = np.frombuffer(reason.encode()[:WORDS].ljust(WORDS, b"\0"), np.uint8).astype(np.int32)
    everyone = np.asarray(multihost_utils.process_allgather(np.concatenate([told, np.asarray(numbers, np.int32)])))
    reasons = [bytes(row[:WORDS].astype(np.uint8)).rstrip(b"\0").decode(errors="replace") for row in everyone]
    return everyone[0, WORDS:].tolist(), next(filter(None, reasons), "")
