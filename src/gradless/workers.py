"""Several evaluations of a Python function at a time, in processes of our own or wherever the user's `map` sends them.

Imports no JAX: a worker process needs none.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from gradless.machine import num_cores

Evaluate = Callable[[np.ndarray], Iterable[Any]]  # the losses of points, in their order
GUARD = 'if __name__ == "__main__":'


@dataclass(frozen=True)
class Call:
    """fun(x, *args) as a function of x alone, which a `map` can send to other processes."""

    fun: Callable[..., Any]
    args: tuple[Any, ...]

    def __call__(self, x: np.ndarray) -> Any:
        try:
            return self.fun(x, *self.args)
        except StopIteration as error:  # a map would take it for the end of the points
            raise RuntimeError("fun must return a number, it raised StopIteration") from error


@contextlib.contextmanager
def evaluating(call: Call, workers: Any, ahead: int | None = None) -> Iterator[tuple[Evaluate, int]]:
    """Give a function that evaluates points, and how many to give it at a time.

    workers: a number of processes; an executor or pool with `map`; or a function such as `pool.map`.
    ahead: how many at a time, if the user has said; one worker has nothing to do with more than one.
    """
    if workers is map:  # Python's own, which is one worker
        workers = 1
    if isinstance(workers, int | np.integer) and not isinstance(workers, bool) and workers >= 1:
        if workers == 1:
            yield (lambda points: map(call, points)), 1
        else:
            with processes(call, int(workers)) as evaluate:
                yield evaluate, ahead or int(workers)
    elif callable(their_map := getattr(workers, "map", workers)):
        yield (lambda points: their_map(call, list(points))), ahead or num_cores()
    else:
        raise ValueError(f"workers must be a whole number of at least 1, or have a map, got {workers!r}")


@contextlib.contextmanager
def processes(call: Call, num: int) -> Iterator[Evaluate]:
    """Give a function that evaluates points in `num` fresh processes, which end with this context however it ends."""
    try:
        ForkingPickler.dumps(call)
    except Exception as error:
        name = getattr(call.fun, "__qualname__", repr(call.fun))
        words = "define it at the top of a module, or give an executor of threads as workers"
        raise ValueError(f"fun and args must be fit to be sent to worker processes, got {name}: {words}") from error
    spawn = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(num, mp_context=spawn, initializer=_begin, initargs=(call,))

    def evaluate(points: np.ndarray) -> Iterable[Any]:
        try:
            return executor.map(_evaluate, points)
        except OSError as error:
            if error.errno is not None:
                raise
            # The executor was starting a process while it closed its pipes, as another one had crashed.
            raise BrokenProcessPool(str(error)) from error

    try:
        yield evaluate
    except BrokenProcessPool as error:
        words = f"fun crashed it, or it could not import your script, which then needs {GUARD!r} around what it runs"
        raise RuntimeError(f"a worker process has ended: {words}") from error
    finally:
        # What still runs was thrown away. The executor itself can only wait for it, so the processes are ended here.
        children = list((getattr(executor, "_processes", None) or {}).values())
        executor.shutdown(wait=False, cancel_futures=True)
        for child in children:
            child.terminate()
        for child in children:
            child.join()


_call: Call


def _begin(call: Call) -> None:
    """Prepare a worker: Ctrl-C is for the process that started it, and it must not outlive that one."""
    global _call
    _call = call
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _evaluate(x: np.ndarray) -> Any:
    return _call(x)
