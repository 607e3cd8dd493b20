"""Plain Metropolis Monte Carlo: Eq. (1) of the paper and the Metropolis rule, nothing adaptive."""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from gradless.acceptance import accept
from gradless.kernels.select import refresh, select
from gradless.proposals import Noise, Proposal, draw, move, rounded, working_dtype
from gradless.settings import NOT_NEGATIVE, POSITIVE, Number, check_settings, is_off, setting, settings
from gradless.types import Evaluate, Evaluation, Info, Key


class MetropolisState(NamedTuple):
    """What the next step needs; sigma never changes."""

    x: jax.Array
    loss: jax.Array
    sigma: jax.Array
    n: jax.Array


@settings
class Metropolis:
    """Metropolis Monte Carlo, at zero temperature by default. Paper: Sec. II A."""

    name: ClassVar[str] = "mc"
    needs_gradient: ClassVar[bool] = False

    sigma: Number = setting(default=1e-3, doc="move scale sigma", rule=POSITIVE)
    temperature: Number | Callable[[jax.Array], jax.Array] = setting(
        default=0.0,
        doc="temperature T, a number or a function of the step; below 0, or NaN, it counts as 0",
        rule=NOT_NEGATIVE,
        off=0.0,
        may_be_function=True,
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def init(self, x: jax.Array, evaluation: Evaluation) -> MetropolisState:
        """Start at x."""
        sigma = self.sigma * jnp.ones((), working_dtype(x))
        return MetropolisState(x, evaluation.loss, sigma, n=jnp.zeros((), jnp.int32))

    def draw(self, key: Key, x: jax.Array) -> Noise:
        """Draw a normal number per parameter, and xi for the decision when the temperature is not 0."""
        return draw(key, x, with_xi=not is_off(self.temperature))

    def step(
        self, noise: Noise, state: MetropolisState, evaluate: Evaluate, is_new_batch: bool | jax.Array
    ) -> tuple[MetropolisState, Info]:
        """Make one move, accepted or not."""
        state = refresh(state, evaluate, is_new_batch)
        proposal = self.propose(noise, state)
        return self.decide(noise, state, proposal, evaluate(proposal.x))

    def propose(self, noise: Noise, state: MetropolisState) -> Proposal:
        """Propose x' = x + eps with eps_i ~ N(0, sigma^2). Paper: Eq. (1)."""
        return move(state.x, rounded(state.sigma * noise.normal))

    def decide(
        self, noise: Noise, state: MetropolisState, proposal: Proposal, evaluation: Evaluation
    ) -> tuple[MetropolisState, Info]:
        """Accept x' by the Metropolis rule, or stay."""
        temperature = self.temperature(state.n) if callable(self.temperature) else self.temperature
        is_accepted = accept(state.loss, evaluation.loss, temperature, noise.xi)
        moved = state._replace(x=proposal.x, loss=evaluation.loss)
        state = select(is_accepted, moved, state)._replace(n=state.n + 1)
        return state, Info(is_accepted, jnp.isfinite(evaluation.loss))

    def reset(self, state: MetropolisState) -> MetropolisState:
        """Return the state: nothing of it adapts."""
        return state

    def evaluations(self, is_new_batch: bool) -> int:
        """One loss on a fixed batch, two on a new one."""
        return 2 if is_new_batch else 1
