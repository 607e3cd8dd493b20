"""Walls: hand-worked reflections, and the law that reflected proposals are symmetric."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.kernels.bounded import Bounded, reflect
from gradless.proposals import Noise
from gradless.types import Evaluation

INF = np.inf


@pytest.mark.parametrize(
    ("x", "low", "high", "expected"),
    [
        (1.25, 0.0, 1.0, 0.75),
        (-0.25, 0.0, 1.0, 0.25),
        (2.25, 0.0, 1.0, 0.25),  # twice
        (-3.25, 0.0, 1.0, 0.75),  # four times
        (-0.25, 0.0, INF, 0.25),
        (1.25, -INF, 1.0, 0.75),
        (9.0, 2.0, 2.0, 2.0),  # a fixed number
        (1.0, 0.0, 1.0, 1.0),
    ],
)
def test_reflection_by_hand(x, low, high, expected):
    assert float(reflect(jnp.float32(x), jnp.float32(low), jnp.float32(high))) == expected


def test_a_move_inside_is_untouched_and_mu_follows_the_reflected_displacement():
    free = gl.amc(sigma=1.0, epsilon=0.5, n_s=10)
    walled = Bounded(free, jnp.array([-10.0, 0.0]), jnp.array([10.0, 1.0]))
    state = free.init(jnp.array([0.3, 0.75]), Evaluation(jnp.float32(1)))
    noise = Noise(jnp.array([0.1, 0.5]), None)
    proposal, plain = walled.propose(noise, state), free.propose(noise, state)
    assert proposal.x[0] == plain.x[0]
    assert proposal.eps[0] == plain.eps[0]
    np.testing.assert_array_equal(proposal.x[1], 0.75)  # 1.25 reflected at 1: back to where it was
    np.testing.assert_array_equal(proposal.eps[1], 0.0)
    moved, _ = walled.decide(noise, state, proposal, Evaluation(jnp.float32(0)))
    np.testing.assert_allclose(moved.mu, [0.05, 0.0], rtol=1e-6)


def test_a_flat_loss_is_sampled_uniformly():
    """Where every move is accepted a symmetric proposal leaves the uniform law alone, also beside the walls.

    64 chains of 4000 steps with sigma = 0.7 of the width: successive points are nearly independent (the slowest mode
    of the reflected Gaussian decays by exp(-(0.7 pi)^2 / 2) = 0.09 a step, which widens errors by at most
    sqrt((1 + 0.09) / (1 - 0.09)) = 1.1). A bin's share of 256,000 points has error 1.1 sqrt(0.09 / 256000) = 6.5e-4.
    """
    kernel = Bounded(gl.metropolis(sigma=1.4), jnp.array([-1.0]), jnp.array([1.0]))

    def chain(key):
        def step(state, t):
            noise = kernel.draw(jax.random.fold_in(key, t), state.x)
            state, _ = kernel.decide(noise, state, kernel.propose(noise, state), Evaluation(jnp.float32(0)))
            return state, state.x[0]

        return jax.lax.scan(step, kernel.init(jnp.array([0.9]), Evaluation(jnp.float32(0))), jnp.arange(4010))[1][10:]

    points = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), 64))
    shares = np.histogram(points, bins=10, range=(-1, 1))[0] / points.size
    assert np.abs(shares - 0.1).max() < 4.5 * 6.5e-4
