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

from gradless.engine import loop
from gradless.engine.batches import num_samples
from gradless.engine.chains import Chain
from gradless.engine.compiling import Compiled
from gradless.engine.precision import precision_of
from gradless.engine.program import Program, key_batches, key_steps
from gradless.engine.session import Session
from gradless.kernels.select import refresh, rejected, select
from gradless.threefry import fold_in
from gradless.types import Algorithm, Evaluate, Evaluation, Key, State

MAX_ACCEPTED = 1 << 14  # accepted steps handed to one compiled call


class Replay:
    """All chains of a stored run, retraced step by step."""

    def __init__(
        self,
        session: Session,
        accepted: list[np.ndarray],
        ends: list[int],
        growths: list[list[int]],
        copies: list[tuple[int, int, int]],
    ):
        if not hasattr(session.chains[0].algorithm, "decide"):
            raise ValueError(f"algorithm {session.chains[0].algorithm.name} has no accepted steps to replay")
        self.session, self.accepted, self.t = session, accepted, 0
        self.ends = ends  # a chain that has reached its target stands still while others go on
        self.growths = growths
        self.selections: dict[int, list[tuple[int, int]]] = {}  # by step: which chains were copied over which
        for at, best, worst in copies:
            self.selections.setdefault(at, []).append((best, worst))
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
                self._select(self.selections.get(stop, []))
        return self.states

    def _events_up_to(self, step: int) -> Iterable[int]:
        everything = [*self.selections, *(t for ts in self.growths for t in ts)]
        return (t for t in everything if self.t < t <= step)

    def _retrace(self, place: int, stop: int) -> None:
        chain = self.session.chains[place]
        program, data = chain.work.stage(chain.stage)
        is_by_step = program.objective.signal_norm and not program.batches.is_fixed
        advance = retrace_minibatches if is_by_step else retrace
        mine, stop = self.accepted[place], min(stop, self.ends[place])
        while (begin := int(self.states[place].n)) < stop:
            steps = np.full(MAX_ACCEPTED + 1, np.iinfo(np.int32).max, np.int32)
            found = mine[(mine >= begin) & (mine < stop)][:MAX_ACCEPTED]
            steps[: len(found)] = found
            end = stop if len(found) < MAX_ACCEPTED else int(found[-1]) + 1
            self.states[place] = advance(
                program, chain.algorithm, chain.key, self.states[place], data, jnp.asarray(steps), jnp.int32(end)
            )

    def _grow(self, place: int) -> None:
        self.session.chains[place].stage += 1
        self.states[place] = self._seen_anew(place, self.session.chains[place].algorithm.reset(self.states[place]))

    def _select(self, copied: list[tuple[int, int]]) -> None:
        places = {chain.index: place for place, chain in enumerate(self.session.chains)}
        before = list(self.states)
        for best, worst in copied:
            place, state = places[worst], before[places[best]]
            chain = self.session.chains[place]
            chain.t = self.t
            self.states[place] = self._seen_anew(place, state) if chain.sees_data_of_its_own else state

    def _seen_anew(self, place: int, state: State) -> State:
        """Return a state with lambda on the data that the chain sees; without signal norm nothing has to be seen."""
        chain = self.session.chains[place]
        program, data = chain.work.stage(chain.stage)
        return loop.look_again(program, chain.key, state, state.n, data) if program.objective.signal_norm else state


def _first_state(chain: Chain, x: jax.Array) -> State:
    program, data = chain.work.stage(0)
    if program.objective.signal_norm:
        return loop.start(program, chain.algorithm, chain.key, x, data, chain.work.test)[0].state
    return chain.algorithm.init(x, Evaluation(jnp.zeros((), x.dtype)))


def _accepted(algorithm: Any, key: Key, state: State, evaluate: Evaluate | None) -> State:
    """Return the state after the step that the log says was accepted: against infinity any loss is."""
    noise = algorithm.draw(fold_in(key, state.n), state.x)
    proposal = algorithm.propose(noise, state)
    evaluation = Evaluation(jnp.zeros_like(state.loss)) if evaluate is None else evaluate(proposal.x)
    return algorithm.decide(noise, state._replace(loss=jnp.full_like(state.loss, jnp.inf)), proposal, evaluation)[0]


@Compiled
def retrace(
    program: Program, algorithm: Algorithm, key: Key, state: State, data: Any, steps: jax.Array, until: jax.Array
) -> State:
    """Go from state.n to `until`, from one accepted step of the list `steps` to the next."""
    evaluate = program.objective.on(data) if program.objective.signal_norm else None
    key_of_steps = key_steps(key)

    def reject_until(stop: jax.Array, state: State) -> State:
        return lax.while_loop(lambda state: state.n < stop, partial(rejected, algorithm), state)

    def body(carry: tuple[jax.Array, State]) -> tuple[jax.Array, State]:
        place, state = carry
        state = reject_until(steps[place], state)
        return place + 1, _accepted(algorithm, key_of_steps, state, evaluate)

    _, state = lax.while_loop(lambda carry: steps[carry[0]] < until, body, (jnp.zeros((), jnp.int32), state))
    return reject_until(until, state)


@Compiled
def retrace_minibatches(
    program: Program, algorithm: Algorithm, key: Key, state: State, data: Any, steps: jax.Array, until: jax.Array
) -> State:
    """Go from state.n to `until` one step after the other, since every new minibatch has its own lambda."""
    batches, key_of_batches, key_of_steps = program.batches, key_batches(key), key_steps(key)

    def body(carry: tuple[jax.Array, State, Any]) -> tuple[jax.Array, State, Any]:
        place, state, cursor = carry
        is_accepted = steps[place] == state.n

        def step(batch: Any, is_new: bool | jax.Array) -> State:
            evaluate = program.objective.on(batch)
            seen = refresh(state, evaluate, is_new)
            moved = _accepted(algorithm, key_of_steps, seen, evaluate)
            return select(is_accepted, moved, rejected(algorithm, seen))

        cursor, state = batches.visit(cursor, key_of_batches, state.n, data, step)
        return place + is_accepted, state, cursor

    first = (jnp.zeros((), jnp.int32), state, batches.open(num_samples(data)))
    return lax.while_loop(lambda carry: carry[1].n < until, body, first)[1]
