"""The net at any step, rebuilt from the seed and the log of accepted steps.

Noise comes from the seed, decisions from the log, and mu and sigma follow from both, so no loss has to be evaluated.
Only signal norm needs passes through the data, for lambda: at accepted steps on a fixed batch, at each new minibatch.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from gradless.engine import run as loop
from gradless.engine.batches import num_samples
from gradless.engine.chains import Chain
from gradless.engine.session import Session, precision_of
from gradless.types import Algorithm, Evaluation, Key, State


class Replay:
    """All chains of a stored run, retraced step by step."""

    def __init__(
        self, session: Session, accepted: list[np.ndarray], growths: list[list[int]], selections: list[dict[str, Any]]
    ):
        if not hasattr(session.chains[0].algorithm, "decide"):
            raise ValueError(f"algorithm {session.chains[0].algorithm.name} has no accepted steps to replay")
        self.session, self.accepted, self.t = session, accepted, 0
        self.growths, self.selections = growths, selections
        with precision_of(session.dtype):
            self.states = [_first_state(chain, x) for chain, x in zip(session.chains, session.points, strict=True)]

    def go_to(self, step: int) -> list[State]:
        """Retrace the chains up to `step`, not before where they stand, and return their states."""
        with precision_of(self.session.dtype):
            for stop in sorted({*self._events_up_to(step), step}):
                for place in range(len(self.states)):
                    self._retrace(place, stop)
                self.t = stop
                for place, growths in enumerate(self.growths):
                    if stop in growths:
                        self._grow(place)
                for event in self.selections:
                    if event["step"] == stop:
                        self._select(event["copied"])
        return self.states

    def _events_up_to(self, step: int) -> Iterable[int]:
        everything = [*(event["step"] for event in self.selections), *(t for ts in self.growths for t in ts)]
        return (t for t in everything if self.t < t <= step)

    def _retrace(self, place: int, stop: int) -> None:
        chain = self.session.chains[place]
        program, data = chain.work.stage(chain.stage)
        mine = self.accepted[place]
        while self.t < stop and (begin := int(self.states[place].n)) < stop:
            end = min(stop, begin + loop.MAX_STEPS)
            flags = np.zeros(loop.MAX_STEPS, bool)
            flags[mine[(mine >= begin) & (mine < end)] - begin] = True
            self.states[place] = retrace(
                program, chain.algorithm, chain.key, self.states[place], data, jnp.asarray(flags), jnp.int32(end)
            )

    def _grow(self, place: int) -> None:
        chain = self.session.chains[place]
        chain.stage += 1
        program, data = chain.work.stage(chain.stage)
        state = chain.algorithm.reset(self.states[place])
        self.states[place] = state if not program.objective.signal_norm else look_again(program, state, data)

    def _select(self, copied: list[list[int]]) -> None:
        places = {chain.index: place for place, chain in enumerate(self.session.chains)}
        before = list(self.states)
        for best, worst in copied:
            self.states[places[worst]] = before[places[best]]


def _first_state(chain: Chain, x: jax.Array) -> State:
    program, data = chain.work.stage(0)
    if program.objective.signal_norm:
        return loop.start(program, chain.algorithm, chain.key, x, data, chain.work.test)[0].state
    return chain.algorithm.init(x, Evaluation(jnp.zeros((), x.dtype)))


@partial(jax.jit, static_argnames=("program",))
def look_again(program: loop.Program, state: State, data: Any) -> State:
    """Return the state with lambda on a batch that has grown."""
    return state._replace(lam=program.objective.on(data)(state.x).lam)


@partial(jax.jit, static_argnames=("program",))
def retrace(
    program: loop.Program, algorithm: Algorithm, key: Key, state: State, data: Any, flags: jax.Array, until: jax.Array
) -> State:
    """Make the steps from state.n to `until` again, with the decisions given by `flags`."""
    first, batches = state.n, program.batches
    key_steps, key_batches = loop.key_steps(key), loop.key_batches(key)
    has_lambda = bool(program.objective.signal_norm)
    fixed = program.objective.on(data) if has_lambda and batches.is_fixed else None
    like = state.loss

    def evaluation(x: jax.Array, evaluate: Any, is_accepted: bool) -> Evaluation:
        # The decision is the log's: against a loss of infinity 0 is always accepted, and NaN never is.
        lam = evaluate(x).lam if has_lambda and is_accepted else None
        return Evaluation(jnp.full_like(like, 0 if is_accepted else jnp.nan), lam)

    def step(state: State, evaluate: Any, is_new: Any) -> State:
        if has_lambda and is_new is not False:
            state = state._replace(lam=_refreshed(state, evaluate, is_new))
        state = state._replace(loss=jnp.full_like(like, jnp.inf))

        def make(is_accepted: bool) -> State:
            noise = algorithm.draw(jax.random.fold_in(key_steps, state.n), state.x)
            proposal = algorithm.propose(noise, state)  # type: ignore[attr-defined]
            return algorithm.decide(noise, state, proposal, evaluation(proposal.x, evaluate, is_accepted))[0]  # type: ignore[attr-defined]

        return lax.cond(flags[state.n - first], lambda: make(True), lambda: make(False))

    def body(carry: tuple[State, Any]) -> tuple[State, Any]:
        state, cursor = carry
        if fixed is not None or not has_lambda:
            return step(state, fixed, False), cursor
        cursor, state = batches.visit(
            cursor, key_batches, state.n, data, lambda batch, is_new: step(state, program.objective.on(batch), is_new)
        )
        return state, cursor

    cursor = batches.open(key_batches, state.n, num_samples(data)) if has_lambda else ()
    return lax.while_loop(lambda carry: carry[0].n < until, body, (state, cursor))[0]


def _refreshed(state: State, evaluate: Any, is_new: Any) -> jax.Array:
    if is_new is True:
        return evaluate(state.x).lam
    return lax.cond(is_new, lambda: evaluate(state.x).lam, lambda: state.lam)
