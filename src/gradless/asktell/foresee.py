"""The reject branch: the coming proposals of a chain, known before any of their losses is.

Most moves are rejected, and what a rejection does to sigma, mu and n_cr depends on no loss. So the proposals of steps
t, t + 1, ... can be foreseen on the assumption that each is rejected, evaluated at the same time, and used in their
order up to the first that is accepted: the chain is the same as that of one evaluation after the other.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from gradless.engine.loop import is_frozen
from gradless.engine.precision import precision_of
from gradless.engine.program import key_steps
from gradless.engine.stepping import block_length
from gradless.kernels.select import rejected
from gradless.proposals import Proposal
from gradless.threefry import fold_in
from gradless.types import Evaluation, Key, State

HORIZON = 16  # steps foreseen in one call, at most: more would be thrown away at the next acceptance


class Foreseen(NamedTuple):
    """Steps of the reject branch, stacked along the leading axis."""

    state: State  # before the step, if every step before it was rejected
    noise: Any
    proposal: Proposal


def draw_steps(algorithm: Any, key_steps: Key, steps: jax.Array, x: jax.Array) -> Any:
    """Return the noise of several steps at once, the same numbers as in the loop."""
    return jax.vmap(lambda t: algorithm.draw(fold_in(key_steps, t), x))(steps)


def foresee(algorithm: Any, noise: Any, state: State) -> tuple[Foreseen, State]:
    """Return as many steps of the reject branch from `state` as there is noise for, and the state after them."""

    def step(state: State, noise: Any) -> tuple[State, Foreseen]:
        return rejected(algorithm, state), Foreseen(state, noise, algorithm.propose(noise, state))

    state, foreseen = lax.scan(step, state, noise)
    return foreseen, state


@partial(jax.jit, static_argnames=("block",))
def _draw_block(algorithm: Any, key_steps: Key, begin: jax.Array, x: jax.Array, block: int) -> Any:
    return draw_steps(algorithm, key_steps, begin + jnp.arange(block, dtype=jnp.int32), x)


@partial(jax.jit, static_argnames=("num",))
def _foresee(algorithm: Any, noise: Any, first: jax.Array, state: State, num: int) -> tuple[Foreseen, State]:
    here = jnp.minimum(first + jnp.arange(num), len(jax.tree.leaves(noise)[0]) - 1)
    return foresee(algorithm, jax.tree.map(lambda drawn: drawn[here], noise), state)


# `traced` is what a temperature that is a function does, not which function it is: one that a user has changed since,
# or that reads a value which has changed, is compiled again.
@partial(jax.jit, static_argnames=("traced",))
def _decide(
    algorithm: Any, foreseen: Foreseen, row: jax.Array, loss: jax.Array, loss_new: jax.Array, traced: str
) -> tuple[State, jax.Array]:
    here = jax.tree.map(lambda stacked: stacked[row], foreseen)
    state, info = algorithm.decide(here.noise, here.state._replace(loss=loss), here.proposal, Evaluation(loss_new))
    return state, info.is_accepted


_init = jax.jit(lambda algorithm, x, loss: algorithm.init(x, Evaluation(loss)))
_row = jax.jit(lambda foreseen, row: jax.tree.map(lambda stacked: stacked[row], foreseen.state))
_is_frozen = jax.jit(is_frozen)


class _Segment(NamedTuple):
    begin: int
    end: int
    foreseen: Foreseen
    after: State  # the state after the last of its steps
    points: np.ndarray  # the proposals' x, on the host
    sigmas: np.ndarray


class Branch:
    """A chain whose losses come from outside: its proposals ahead, and its decisions one by one.

    Everything is computed in JAX's float64 mode, so that a loss keeps all its digits whatever the precision of x.

    traced: the fingerprint of the algorithm's temperature, if that is a function.
    """

    def __init__(self, algorithm: Any, key: Key, x: np.ndarray, traced: str = ""):
        self.traced = traced
        with precision_of(np.float64):
            working = jnp.promote_types(x.dtype, jnp.float32)
            self.algorithm = jax.tree.map(lambda leaf: jnp.asarray(leaf, working), algorithm)
            self.key_steps = key_steps(key)
            self.block = block_length(jnp.asarray(x))
            self.horizon = min(HORIZON, self.block)
            self.t = 0
            self.root: State = _init(self.algorithm, jnp.asarray(x), np.float64(0))
        self._segments: list[_Segment] = []
        self._noise: dict[int, Any] = {}

    def stand_at(self, state: State) -> None:
        """Put the chain into a state, that of an earlier sitting."""
        self.root, self.t, self._segments = state, int(state.n), []

    def proposal(self, step: int) -> np.ndarray:
        """Return the point that step `step` proposes if every step from the present one up to it is rejected."""
        segment = self._segment(step)
        return segment.points[step - segment.begin]

    def decide(self, loss: float, loss_new: float) -> bool:
        """Make the present step, from U(x) = `loss` to U(x') = `loss_new`; return whether it was accepted."""
        segment = self._segment(self.t)
        with precision_of(np.float64):
            row, losses = self.t - segment.begin, (np.float64(loss), np.float64(loss_new))
            state, decision = _decide(self.algorithm, segment.foreseen, row, *losses, self.traced)
        is_accepted = bool(decision)
        self.t += 1
        if is_accepted:
            self.root, self._segments = state, []
        elif len(self._segments) > 1 and segment.end <= self.t:
            del self._segments[0]
        return is_accepted

    @property
    def state(self) -> State:
        """The present state; its loss may be older than the caller's."""
        if not self._segments:
            return self.root
        segment = self._segment(self.t)
        with precision_of(np.float64):
            return _row(segment.foreseen, self.t - segment.begin)

    @property
    def sigma(self) -> float:
        """The present move scale."""
        segment = self._segment(self.t)
        return float(segment.sigmas[self.t - segment.begin])

    @property
    def is_frozen(self) -> bool:
        """Whether moves have fallen below what floating point can resolve."""
        with precision_of(np.float64):
            return bool(_is_frozen(self.state))

    def _segment(self, step: int) -> _Segment:
        while not self._segments or self._segments[-1].end <= step:
            self._extend()
        return next(segment for segment in self._segments if segment.begin <= step < segment.end)

    def _extend(self) -> None:
        state = self._segments[-1].after if self._segments else self.root
        begin = self._segments[-1].end if self._segments else self.t
        first = begin % self.block
        end = begin + min(self.horizon, self.block - first)  # rows beyond the block's noise are not used
        with precision_of(np.float64):
            foreseen, after = _foresee(self.algorithm, self._noise_of(begin - first), first, state, self.horizon)
            if end - begin < self.horizon:
                after = _row(foreseen, end - begin)
            points, sigmas = np.asarray(foreseen.proposal.x), np.asarray(foreseen.state.sigma)
        self._segments.append(_Segment(begin, end, foreseen, after, points, sigmas))

    def _noise_of(self, begin: int) -> Any:
        if begin not in self._noise:
            self._noise = {start: noise for start, noise in self._noise.items() if start + self.block > self.t}
            self._noise[begin] = _draw_block(self.algorithm, self.key_steps, np.int32(begin), self.root.x, self.block)
        return self._noise[begin]
