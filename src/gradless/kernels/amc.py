"""aMC, the adaptive Monte Carlo algorithm: Sec. III A of the paper, steps 1 to 4 in order."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from gradless.acceptance import accept
from gradless.kernels.select import refresh, select
from gradless.proposals import Noise, Proposal, draw, move, rounded, working_dtype
from gradless.settings import (
    COUNT,
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    WITHIN_ONE,
    Number,
    check_settings,
    checked_by_path,
    is_off,
    setting,
    settings,
)
from gradless.types import Evaluate, Evaluation, Info, Key


class AMCState(NamedTuple):
    """What the next step needs."""

    x: jax.Array  # all weights and biases, one flat vector
    loss: jax.Array  # U(x)
    lam: jax.Array  # lambda_i; a single 1 with signal norm off
    mu: jax.Array  # mu_i, the centres of the proposal; a single 0 when epsilon is 0
    sigma: jax.Array  # the move scale
    n_cr: jax.Array  # rejections in a row
    n: jax.Array  # steps made


@settings
class AMC:
    """Adaptive Monte Carlo. Paper: Sec. III A."""

    name: ClassVar[str] = "amc"
    needs_gradient: ClassVar[bool] = False

    sigma: Number = setting(default=1e-2, doc="initial move scale sigma_0", rule=POSITIVE)
    epsilon: Number = setting(default=0.0, doc="rate at which mu follows accepted moves", rule=WITHIN_ONE, off=0.0)
    n_s: Number = setting(default=100, doc="rejections in a row before sigma shrinks", rule=COUNT, off=float("inf"))
    signal_norm: bool | Mapping[str, Any] = setting(
        default=False, doc="scale moves by the neurons' inputs", is_static=True
    )
    temperature: Number | Callable[[jax.Array], jax.Array] = setting(
        default=0.0,
        doc="temperature T, a number or a function of the step; below 0, or NaN, it counts as 0",
        rule=NOT_NEGATIVE,
        off=0.0,
        may_be_function=True,
    )
    sigma_decay: Number = setting(default=0.95, doc="factor on sigma after n_s rejections", rule=FRACTION)

    def __post_init__(self) -> None:
        check_settings(self)
        object.__setattr__(self, "signal_norm", checked_by_path("signal_norm", self.signal_norm))

    def init(self, x: jax.Array, evaluation: Evaluation) -> AMCState:
        """Start at x with mu = 0 and sigma = sigma_0."""
        one, zero = jnp.ones((), working_dtype(x)), jnp.zeros((), jnp.int32)
        lam = one if evaluation.lam is None else evaluation.lam
        mu = jnp.zeros(() if is_off(self.epsilon) else x.shape, one.dtype)
        return AMCState(x, evaluation.loss, lam, mu, self.sigma * one, n_cr=zero, n=zero)

    def draw(self, key: Key, x: jax.Array) -> Noise:
        """Draw a normal number per parameter, and xi for the decision when the temperature is not 0."""
        return draw(key, x, with_xi=not is_off(self.temperature))

    def step(
        self, noise: Noise, state: AMCState, evaluate: Evaluate, is_new_batch: bool | jax.Array
    ) -> tuple[AMCState, Info]:
        """Make one move, accepted or not."""
        # Step 1. Current state: U(x) and lambda on the data, known from the previous step unless the data are new.
        state = refresh(state, evaluate, is_new_batch)
        # Steps 2 to 4.
        proposal = self.propose(noise, state)
        return self.decide(noise, state, proposal, evaluate(proposal.x))

    def propose(self, noise: Noise, state: AMCState) -> Proposal:
        """Propose x' = x + eps. Paper: step 2, Eq. (9)."""
        # Step 2. Proposed move: eps_i ~ N(mu_i, (lambda_i sigma)^2) for all parameters at once.
        eps = state.mu + rounded(rounded(state.lam * state.sigma) * noise.normal)
        return move(state.x, eps)

    def decide(
        self, noise: Noise, state: AMCState, proposal: Proposal, evaluation: Evaluation
    ) -> tuple[AMCState, Info]:
        """Accept or reject x', given U(x') and lambda there. Paper: the end of step 2, steps 3 and 4."""
        temperature = self.temperature(state.n) if callable(self.temperature) else self.temperature
        is_accepted = accept(state.loss, evaluation.loss, temperature, noise.xi)

        # Step 3. Accept move: x' becomes x, and mu moves towards the displacement that succeeded, Eq. (10).
        moved = state._replace(
            x=proposal.x,
            loss=evaluation.loss,
            lam=state.lam if evaluation.lam is None else evaluation.lam,
            mu=state.mu if is_off(self.epsilon) else state.mu + rounded(self.epsilon * (proposal.eps - state.mu)),
            n_cr=jnp.zeros_like(state.n_cr),
        )

        # Step 4. Reject move: x is retained; after n_s rejections in a row sigma shrinks and mu starts again from 0.
        n_cr = state.n_cr + 1
        is_stuck = n_cr >= self.n_s  # not ==: a run may go on with a smaller n_s
        stayed = state._replace(
            mu=jnp.where(is_stuck, 0, state.mu),
            sigma=jnp.where(is_stuck, self.sigma_decay * state.sigma, state.sigma),
            n_cr=jnp.where(is_stuck, 0, n_cr),
        )

        state = select(is_accepted, moved, stayed)._replace(n=state.n + 1)
        return state, Info(is_accepted, jnp.isfinite(evaluation.loss))

    def reset(self, state: AMCState) -> AMCState:
        """Return to sigma = sigma_0 and mu = 0 with x where it is. Paper: Sec. II F, progressive batching."""
        return state._replace(
            mu=jnp.zeros_like(state.mu),
            sigma=jnp.full_like(state.sigma, self.sigma),
            n_cr=jnp.zeros_like(state.n_cr),
        )

    def evaluations(self, is_new_batch: bool) -> int:
        """One loss on a fixed batch, two on a new one. Paper: Sec. III A, last paragraph."""
        return 2 if is_new_batch else 1
