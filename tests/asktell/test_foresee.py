"""The reject branch equals the steps that a chain makes while everything is rejected."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.asktell.foresee import draw_steps, foresee
from gradless.types import Evaluation

ALGORITHMS = [
    gl.metropolis(sigma=0.1),
    gl.amc(sigma=0.1, epsilon=0.1, n_s=3),
    gl.amc(sigma=0.1, epsilon=-0.1, n_s=4, temperature=0.1),
]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda one: f"{one.name} {one.temperature}")
def test_foreseen_steps_are_those_of_a_chain_that_rejects_everything(algorithm):
    x, key = jnp.linspace(-1, 1, 5), jax.random.key(3)
    state = algorithm.init(x, Evaluation(jnp.float32(1.0)))
    if algorithm.name == "amc":
        state = state._replace(mu=jnp.full(5, 0.01), n_cr=jnp.int32(1))
    noise = draw_steps(algorithm, key, jnp.arange(8, dtype=jnp.int32), x)
    foreseen, after = jax.jit(foresee)(algorithm, noise, state)

    proposals = []

    def evaluate(x_new):
        proposals.append(np.asarray(x_new))
        return Evaluation(jnp.float32(jnp.nan))

    for t in range(8):
        same = jax.tree.map(lambda stacked, one, t=t: np.array_equal(stacked[t], one), foreseen.state, state)
        assert all(same)
        state, info = algorithm.step(algorithm.draw(jax.random.fold_in(key, t), x), state, evaluate, False)
        assert not info.is_accepted
    np.testing.assert_array_equal(foreseen.proposal.x, np.stack(proposals))
    assert all(jax.tree.map(np.array_equal, after, state))
    if algorithm.name == "amc":  # sigma shrank and mu began again within the branch
        assert after.sigma < foreseen.state.sigma[0]
        assert not after.mu.any()
