"""The Metropolis rule against numbers worked by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradless.acceptance import accept
from gradless.pytorch.acceptance import accept as plain_accept

INF, NAN = math.inf, math.nan
CASES = [  # U, U', accepted at T = 0
    (1.0, 0.5, True),
    (1.0, 1.0, True),  # a tie
    (0.0, -0.0, True),
    (1.0, float(np.nextafter(np.float32(1), np.float32(2))), False),  # one rounding above
    (1.0, float(np.nextafter(np.float32(1), np.float32(0))), True),
    (1.0, NAN, False),
    (1.0, INF, False),
    (1.0, -INF, False),
    (-3.0, -4.0, True),
    (-3.0, -2.0, False),
]


@pytest.mark.parametrize(("loss", "loss_new", "expected"), CASES)
def test_at_zero_temperature_a_move_is_accepted_unless_the_loss_rises(loss, loss_new, expected):
    loss, loss_new = jnp.float32(loss), jnp.float32(loss_new)
    assert bool(accept(loss, loss_new, 0.0, None)) is expected
    assert bool(jax.jit(accept)(loss, loss_new, 0.0, None)) is expected


@pytest.mark.parametrize(("loss", "loss_new", "expected"), CASES)
@pytest.mark.parametrize("xi", [1e-30, 0.3, 1.0])
def test_a_temperature_of_zero_is_the_limit_whatever_xi(loss, loss_new, expected, xi):
    assert bool(accept(jnp.float32(loss), jnp.float32(loss_new), jnp.float32(0), jnp.float32(xi))) is expected


def test_a_schedule_that_passes_below_zero_stays_there():
    for temperature in (0.0, -1.0, NAN):
        assert accept(jnp.float32(1), jnp.float32(1), jnp.float32(temperature), jnp.float32(0.3))
        assert not accept(jnp.float32(1), jnp.float32(1.1), jnp.float32(temperature), jnp.float32(0.3))
        assert plain_accept(1.0, 1.0, temperature, 0.3)
        assert not plain_accept(1.0, 1.1, temperature, 0.3)


def test_a_finite_temperature_accepts_if_xi_is_below_the_boltzmann_factor():
    """T = 2, U' - U = 1: the factor is exp(-1/2) = 0.606531."""
    loss, loss_new, temperature = jnp.float32(3), jnp.float32(4), 2.0
    xi = jnp.array([1e-6, 0.3, 0.60652, 0.60654, 0.9, 1.0], jnp.float32)
    expected = [True, True, True, False, False, False]
    np.testing.assert_array_equal(accept(loss, loss_new, temperature, xi), expected)


def test_a_finite_temperature_accepts_every_move_downhill():
    assert bool(accept(jnp.float32(1), jnp.float32(0.999), 0.5, jnp.float32(1.0)))


@pytest.mark.parametrize("loss_new", [NAN, INF, -INF])
def test_no_temperature_accepts_a_loss_that_is_not_finite(loss_new):
    assert not accept(jnp.float32(1), jnp.float32(loss_new), 1e30, jnp.float32(1e-30))


def test_a_current_loss_that_is_not_a_number_accepts_nothing():
    assert not accept(jnp.float32(NAN), jnp.float32(0), 0.0, None)
