"""The host's side of a run: all chains in rounds, chunk after chunk, until something ends it."""

import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from gradless.engine import loop
from gradless.engine.chains import Chain, num_workers
from gradless.engine.devices.processes import agree, check_in_step
from gradless.engine.diagnosis import VANISHED_WORDS, advice, frozen_words
from gradless.engine.flat import are_keys
from gradless.engine.precision import precision_of
from gradless.engine.program import AT_TARGET, DIVERGED, FROZEN, GOING, MAX_RECORDS, MAX_STEPS
from gradless.engine.result import Result, Trace
from gradless.engine.selection import Selection
from gradless.engine.work import Work

ROUND_SECONDS = 0.5  # so that progress is shown about twice a second
STATUS_WORDS = {AT_TARGET: "target", FROZEN: "frozen", DIVERGED: "diverged"}


class Listener:
    """Someone who follows a run from the host, between chunks."""

    def steps_begin(self) -> None:
        """The chains go on: until `chunk_done` nobody else has anything to say."""

    def chunk_done(self, session: "Session", rows: list[dict[str, Any]], flags: np.ndarray) -> None:
        """See the new records, and which of the last steps up to session.t each chain accepted."""

    def finished(self, session: "Session") -> None:
        """The run has ended, for whatever reason; `session.stopped_by` says which."""


@dataclass
class Session:
    """A run in progress."""

    work: Work
    chains: list[Chain]
    points: list[jax.Array]  # where the chains start
    steps: int
    time_budget: float = float("inf")  # seconds of all sittings, whatever they are spent on
    selection: Selection | None = None
    metric_names: tuple[str, ...] = ()
    listeners: list[Listener] = field(default_factory=list)
    t: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)  # per chain, over the whole run
    seconds_before: float = 0.0  # of steps in earlier sittings, when resumed
    seconds: float = 0.0  # of steps
    spent: float = 0.0  # of the time budget so far: on steps, compilation and what listeners do, in all sittings
    stopped_by: str | None = None
    stop_requested: str | None = None  # set from a signal handler or a callback
    is_double: bool = False  # whether JAX computes in float64 for the caller too
    report: Callable[[str], None] = warnings.warn  # told what the user should know while the run goes on
    is_frozen_told: bool = False
    _chunk: int = 1
    _clock: float = 0.0  # when `spent` was up to date

    @property
    def dtype(self) -> Any:
        """The floating-point type of x."""
        return self.work.program.objective.flattening.dtype

    @property
    def compile_seconds(self) -> float:
        """Time spent compiling so far."""
        return sum(self.work.compile_seconds)

    def begin(self) -> None:
        """Evaluate the starting points; refuse one whose loss is not a number."""
        began = time.perf_counter()
        with precision_of(self.dtype):
            for chain, x in zip(self.chains, self.points, strict=True):
                loss = chain.begin(x)
                if not np.isfinite(loss):
                    raise ValueError(
                        f"the loss at the starting point is {loss}, and a chain cannot begin there: try a smaller "
                        "initial scale, look for NaN in the data, or bound what overflows in the loss"
                    )
        self.work.compile_seconds.append(time.perf_counter() - began)
        self.accepted = [0] * len(self.chains)

    def go_on(self, states: list[Any], t: int) -> None:
        """Stand at step t with the states of another session, on the data of this one; instead of `begin`."""
        with precision_of(self.dtype):
            for chain, state in zip(self.chains, states, strict=True):
                chain.go_on(jax.tree.map(jax.numpy.asarray, state), t)
        self.t, self.accepted = t, [0] * len(self.chains)

    def go(self) -> None:
        """Run to the end; whatever ends it, the listeners are told when all chains are at rest."""
        self._clock = time.perf_counter() - self.compile_seconds
        try:
            check_in_step(self.t)
            with ThreadPoolExecutor(num_workers(len(self.chains))) as pool:
                self._announce(self._collect(0.0, 0.0, 0), self._no_flags())
                while (until := self._agreed_end()) is not None:
                    self._round(pool, until)
        except KeyboardInterrupt:
            self.stopped_by = "interrupt"
            raise
        finally:
            self.stopped_by = self.stopped_by or "error"
            for listener in self.listeners:
                listener.finished(self)

    def _agreed_end(self) -> int | None:
        """Return the step at which the next round ends; None, with `stopped_by`, if there is none to come."""
        until = min(self.steps, self.t + self._chunk, self._last_step_of_a_chunk())
        if self.selection:
            until = min(until, self.selection.next_step(self.t))
        wishes = [until, *(chain.pace.wish for chain in self.chains)]
        (until, *ahead), reason = agree(wishes, self._reason_to_stop() or "")
        for chain, number in zip(self.chains, ahead, strict=True):
            chain.pace.ahead = number
        self.stopped_by = reason or None
        return None if reason else until

    def _round(self, pool: ThreadPoolExecutor, until: int) -> None:
        """Take every chain to the next common step."""
        for listener in self.listeners:
            listener.steps_begin()
        compiled, began = self.compile_seconds, time.perf_counter()
        going = [chain for chain in self.chains if chain.status == GOING]
        flags = self._all_advance(pool, going, until)
        elapsed = max(time.perf_counter() - began - (self.compile_seconds - compiled), 1e-6)

        before, self.t = self.t, max(chain.t for chain in going)
        accepted = self._no_flags(self.t - before)  # a chain that has ended accepts nothing
        for place, chain in enumerate(self.chains):
            if chain.index in flags:
                accepted[place, : len(flags[chain.index])] = flags[chain.index]
                self.accepted[place] += int(flags[chain.index].sum())
        if self.selection and self.t == self.selection.next_step(before):
            with precision_of(self.dtype):
                self.selection.apply(self.chains, self.t)
        rows = self._collect(self.seconds, self.seconds + elapsed, before)
        self.seconds += elapsed
        self._announce(rows, accepted)
        # Aim at the round's time, but grow carefully: the first rounds are mostly overhead.
        ideal = (self.t - before) * ROUND_SECONDS / elapsed
        self._chunk = max(1, min(int(ideal), 4 * self._chunk, MAX_STEPS))

    def _all_advance(self, pool: ThreadPoolExecutor, going: list[Chain], until: int) -> dict[int, np.ndarray]:
        """Advance chains, as many at a time as there are cores; those that share devices one after the other."""
        advance = self._advance(until)
        groups: dict[Any, list[Chain]] = {}
        for chain in going:
            layout = chain.work.program.layout
            groups.setdefault(chain.index if layout is None else layout, []).append(chain)

        def in_turn(chains: list[Chain]) -> list[np.ndarray]:
            return [advance(chain) for chain in chains]

        # One group stays in the caller's thread, with whatever modes of JAX are set there.
        found = map(in_turn, groups.values()) if len(groups) == 1 else pool.map(in_turn, groups.values())
        flags: dict[int, np.ndarray] = {}
        for chains, flags_of in zip(groups.values(), found, strict=True):
            flags |= {chain.index: one for chain, one in zip(chains, flags_of, strict=True)}
        return flags

    def _no_flags(self, steps: int = 0) -> np.ndarray:
        return np.zeros((len(self.chains), steps), bool)

    def advance_to(self, step: int) -> None:
        """Take every chain to `step` and nothing else: no records are passed on; for benchmarks."""
        with ThreadPoolExecutor(num_workers(len(self.chains))) as pool:
            while self.t < step and any(chain.status == GOING for chain in self.chains):
                self.t = min(step, self.t + MAX_STEPS, self._last_step_of_a_chunk())
                list(pool.map(self._advance(self.t), self.chains))

    def _advance(self, until: int) -> Callable[[Chain], np.ndarray]:
        def advance(chain: Chain) -> np.ndarray:
            with jax.enable_x64(self.is_double), precision_of(self.dtype):  # the mode belongs to a thread
                return chain.advance(until)

        return advance

    def _last_step_of_a_chunk(self) -> int:
        """Return the step by which the chunk's space for records may be full."""
        every = self.work.record_every
        return (self.t // every + MAX_RECORDS - 32) * every  # 32 early records at powers of two

    def _collect(self, seconds: float, seconds_now: float, before: int) -> list[dict[str, Any]]:
        """Merge the chains' new records by step; time is interpolated within the round."""
        by_step: dict[int, dict[int, dict[str, Any]]] = {}
        for chain in self.chains:
            for row in chain.rows:
                by_step.setdefault(row["step"], {})[chain.index] = row
            chain.rows = []
        merged = []
        for step in sorted(by_step):
            share = (step - before) / (self.t - before) if self.t > before else 0.0
            clock = self.seconds_before + seconds + share * (seconds_now - seconds)
            merged.append(_merge(step, clock, [by_step[step].get(chain.index) for chain in self.chains]))
        return merged

    def _count_time(self) -> None:
        now = time.perf_counter()
        self.spent, self._clock = self.spent + now - self._clock, now

    def _announce(self, rows: list[dict[str, Any]], flags: np.ndarray) -> None:
        self.rows += rows
        self._count_time()
        for listener in self.listeners:
            listener.chunk_done(self, rows, flags)
        if not self.is_frozen_told and any(np.any(row["is_frozen"]) for row in rows):
            self.is_frozen_told = True
            has_gradient = self.chains[0].algorithm.needs_gradient
            self.report(VANISHED_WORDS if has_gradient else frozen_words(str(self.dtype)))

    def last_record(self, place: int) -> dict[str, Any]:
        """Return the last record of the chain at that place, its own numbers alone; nothing before the first."""
        for row in reversed(self.rows):
            if not np.isnan(np.ravel(row["epoch"])[place]):  # else it had ended by then, and others had not
                return {name: np.ravel(value)[place if np.ndim(value) else 0] for name, value in row.items()}
        return {}

    def _reason_to_stop(self) -> str | None:
        ended = [chain.status for chain in self.chains if chain.status != GOING]
        if len(ended) == len(self.chains):
            return STATUS_WORDS[max(set(ended), key=ended.count)]
        if self.t >= self.steps:
            return "steps"
        if self.stop_requested:
            return self.stop_requested
        self._count_time()
        return "time" if self.spent >= self.time_budget else None

    def result(self) -> Result:
        """Return what has been reached."""
        flattening = self.work.program.objective.flattening
        states = [chain.carry.state for chain in self.chains if chain.carry is not None]
        if self.work.program.layout is not None:  # chains may be on different devices
            states = jax.tree.map(np.asarray, states)
        one = len(self.chains) == 1
        with precision_of(self.dtype):
            stacked = states[0] if one else jax.tree.map(lambda *leaves: jax.numpy.stack(leaves), *states)
            params = flattening.unflatten(stacked.x)
        if np.dtype(self.dtype) == np.float64 and not self.is_double:
            # Outside of its float64 mode JAX would cut these down to float32; NumPy keeps them whole.
            params, stacked = jax.tree.map(
                lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) and not are_keys(leaf) else leaf,
                (params, stacked),
            )
        # What the caller gets is the caller's to change.
        params = jax.tree.map(lambda leaf: np.array(leaf) if isinstance(leaf, np.ndarray) else leaf, params)
        loss, sigma = np.asarray(stacked.loss), np.asarray(getattr(stacked, "sigma", np.nan))
        taken = np.asarray([chain.t for chain in self.chains])
        acceptance = np.asarray(self.accepted) / np.maximum(taken, 1)
        costs = [chain.cost(chain.t) for chain in self.chains]
        return Result(
            params=params,
            loss=loss.item() if one else loss,
            trace=Trace.of_rows(self.rows),
            metrics=self._metrics(),
            steps=self.t,
            acceptance=acceptance.item() if one else acceptance,
            sigma=sigma.item() if one else sigma,
            evaluations=sum(cost.evaluations for cost in costs),
            samples=sum(cost.samples for cost in costs),
            nonfinite=sum(chain.nonfinite + int(chain.carry.nonfinite) for chain in self.chains if chain.carry),
            seconds=self.seconds_before + self.seconds,
            compile_seconds=self.compile_seconds,
            stopped_by=self.stopped_by or "going",
            advice=advice(self),
            state=stacked,
            algorithm=self.chains[0].algorithm.name,
        )

    def _metrics(self) -> dict[str, Any]:
        if self.work.program.metrics.held is None:
            return {}
        with precision_of(self.dtype):
            values = [
                loop.evaluate_metrics(chain.work.program, chain.carry.state.x, chain.work.test)
                for chain in self.chains
                if chain.carry is not None
            ]
        if len(values) == 1:
            return {name: float(value) for name, value in values[0].items()}
        return {name: np.asarray([float(value[name]) for value in values]) for name in values[0]}


def _merge(step: int, seconds: float, rows: list[dict[str, Any] | None]) -> dict[str, Any]:
    """Return one row for all chains; a chain that has ended earlier shows NaN."""
    common: dict[str, Any] = {"step": step, "seconds": seconds}
    known = next(row for row in rows if row is not None)
    if len(rows) == 1:
        return common | known
    ended = dict.fromkeys(known, float("nan")) | {"is_frozen": False}
    return common | {name: [(row or ended)[name] for row in rows] for name in known if name != "step"}
