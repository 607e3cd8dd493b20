"""A minimiser in progress: taken so many evaluations further at a time, whoever wrote its loop."""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from gradless.bench.peers.task import Task
from gradless.engine.precision import precision_of
from gradless.types import Key, Params

Step = Callable[[Key, Any, Any], Any]  # step(key, state, data) -> state


class Search(Protocol):
    """A minimiser in progress."""

    @property
    def evaluations(self) -> int:
        """Evaluations of the loss so far, one for each member of a population."""

    @property
    def samples(self) -> int:
        """How many samples these evaluations saw."""

    @property
    def compile_seconds(self) -> float:
        """Time it took to compile."""

    def advance(self, evaluations: int) -> None:
        """Make so many evaluations more; a population is finished, so that it may be some more."""

    def params(self) -> Params:
        """Return the net that the minimiser would hand over now."""


class Compiled:
    """A search whose steps are one compiled loop, for libraries in JAX."""

    def __init__(self, task: Task, step: Step, state: Any, data: Any, net: Callable[[Any], Params], population: int):
        self.task, self.data, self.net, self.population = task, data, net, population
        self.evaluations = 0
        self.steps = 0
        began = time.perf_counter()
        with precision_of(task.dtype):
            key = jax.random.key(task.seed)
            kinds = jax.eval_shape(step, key, state, data)
            # A library may begin with Python numbers and go on with arrays; a compiled loop wants arrays throughout.
            self.state = jax.tree.map(lambda leaf, kind: jnp.asarray(leaf, kind.dtype), state, kinds)
            self._loop = jax.jit(partial(_loop, step))
            self._go(0)
        self.compile_seconds = time.perf_counter() - began

    @property
    def samples(self) -> int:
        """How many samples the evaluations saw."""
        return self.evaluations * self.task.samples

    def advance(self, evaluations: int) -> None:
        """Make so many evaluations more."""
        steps = -(-evaluations // self.population)
        with precision_of(self.task.dtype):
            self._go(steps)
        self.steps += steps
        self.evaluations += steps * self.population

    def _go(self, steps: int) -> None:
        begin, end = (jnp.asarray(step, jnp.int32) for step in (self.steps, self.steps + steps))
        key = jax.random.key(self.task.seed)
        self.state = jax.block_until_ready(self._loop(key, self.state, self.data, begin, end))

    def params(self) -> Params:
        """Return the net that the library would hand over now."""
        with precision_of(self.task.dtype):
            return self.net(self.state)


def _loop(step: Step, key: Key, state: Any, data: Any, begin: jax.Array, end: jax.Array) -> Any:
    return jax.lax.fori_loop(begin, end, lambda t, state: step(jax.random.fold_in(key, t), state, data), state)


class Called:
    """A search by somebody's loop that calls a function: it waits inside that call until it may go on.

    The loop runs in a thread of its own, so that every library is used as its documentation shows, makes exactly the
    evaluations asked for, and keeps its state between turns. `minimise(loss, x0)` may return: it then begins again
    from the best point. It may set `center`, where what it hands over is not the best point it has seen.
    """

    def __init__(self, task: Task, minimise: Callable[["Called", np.ndarray], None], many: bool = False):
        self.task, self.minimise = task, minimise
        self.evaluations = 0
        self.best, self.best_loss = task.x0, np.inf
        self.center: np.ndarray | None = None
        self._left = 0
        self._error: BaseException | None = None
        self._may_go, self._has_paused = threading.Event(), threading.Event()
        began = time.perf_counter()
        with precision_of(task.dtype):
            self._value = task.compiled(many)
            self._value(np.stack([task.x0] * 2) if many else task.x0)
        self.compile_seconds = time.perf_counter() - began
        threading.Thread(target=self._run, daemon=True).start()
        self._wait()

    @property
    def samples(self) -> int:
        """How many samples the evaluations saw."""
        return self.evaluations * self.task.samples

    def __call__(self, x: Any, data: Any = None) -> Any:
        """Return U(x), or one U for each row, as soon as evaluations are wanted."""
        if self._left <= 0:
            self._has_paused.set()
            self._may_go.wait()
            self._may_go.clear()
        x = np.asarray(x)
        losses = self._value(x, data)
        self.evaluations += losses.size
        self._left -= losses.size
        least = int(np.argmin(losses))
        if losses.flat[least] < self.best_loss:
            self.best, self.best_loss = (x if losses.ndim == 0 else x[least]).copy(), float(losses.flat[least])
        return losses if losses.ndim else float(losses)

    def advance(self, evaluations: int) -> None:
        """Make so many evaluations more."""
        self._left = evaluations
        self._has_paused.clear()
        self._may_go.set()
        self._wait()

    def _wait(self) -> None:
        self._has_paused.wait()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with precision_of(self.task.dtype):  # the mode belongs to a thread
                while True:
                    self.minimise(self, self.best.astype(np.float64))
        except BaseException as error:
            self._error = error
            self._has_paused.set()

    def params(self) -> Params:
        """Return the best net seen, or the center of the search where it has one."""
        x = self.best if self.center is None else self.center
        with precision_of(self.task.dtype):
            return self.task.flattening.unflatten(jnp.asarray(x, self.task.dtype))
