"""What a chain holds: the peak of a process of its own, and what XLA sets aside for a step, in parameter vectors."""

import multiprocessing
import resource
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from gradless.bench.contestants import SessionChain, started
from gradless.bench.split import LossAlone, evaluate_again
from gradless.bench.workloads import Workload
from gradless.engine import loop
from gradless.engine.precision import precision_of

STEPS = 3  # enough for every buffer to have been used
PLAIN = {"epsilon": 0.0, "signal_norm": False}
CASES: dict[str, tuple[dict[str, Any], int]] = {  # settings, and proposals a round
    "epsilon 0": (PLAIN, 1),
    "with mu": ({**PLAIN, "epsilon": 1e-3}, 1),
    "with lambda": ({**PLAIN, "signal_norm": True}, 1),
    "speculating 4 ahead": (PLAIN, 4),
}


class Held(NamedTuple):
    """What XLA sets aside for steps on a workload, in parameter vectors of N numbers."""

    vectors: float  # beside what the loss alone needs: x, the noise, the proposal, and all that is copied of them
    activations: float  # what the loss alone needs beside x and the data


def peak_megabytes(make: Callable[[str], Workload], name: str) -> float:
    """Return the peak memory of a new process that makes a few steps on workload `make(name)`, in MB."""
    # A JAX process must not be forked; and a spawned one starts with nothing of ours in its memory.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak_here, (make, name))


def _peak_here(make: Callable[[str], Workload], name: str) -> float:
    SessionChain(started(make(name)))(STEPS)
    return peak_of_this_process()


def peak_of_this_process() -> float:
    """Return the most memory that this process has held, in MB."""
    # Linux counts what the parent held when it started this process into ru_maxrss; the status file does not.
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def held_by_case(workload: Workload) -> dict[str, Held]:
    """Return what a chain holds without mu, lambda and speculation, and with each of them."""
    return {
        name: held(replace(workload, settings={**workload.settings, **own}), speculate)
        for name, (own, speculate) in CASES.items()
    }


def held(workload: Workload, speculate: int = 1) -> Held:
    """Return what the loop holds at most, from XLA's plan of its buffers; the data are not counted."""
    session = started(workload, speculate=speculate)
    chain, (program, data) = session.chains[0], session.work.stage(0)
    alone = LossAlone(session)
    vector = session.points[0].nbytes
    with precision_of(session.dtype):
        step = loop.advance.lower(program, chain.algorithm, chain.key, chain.carry, data, None, session.work.limits(1))
        loss = evaluate_again.lower(alone.program, alone.x, alone.data, 1)
        for_step, for_loss = (_temporary(lowered.compile()) for lowered in (step, loss))
    state = sum(leaf.nbytes for leaf in chain.carry.state)
    return Held((state + for_step - for_loss) / vector, for_loss / vector)


def _temporary(compiled: Any) -> int:
    return compiled.memory_analysis().temp_size_in_bytes
