"""Selection among chains: the best are copied over the worst, and that is noted."""

from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.engine.chains import Chain
from gradless.engine.plan import Plan
from gradless.engine.program import AT_TARGET
from gradless.engine.selection import Selection
from gradless.engine.train import prepare

MC = gl.metropolis(sigma=0.01)
DATA = 100.0 * np.arange(4, dtype=np.float32)


class State(NamedTuple):
    x: jax.Array
    loss: jax.Array


class Carry(NamedTuple):
    t: int
    state: State
    accepted: int


def chains_with(losses):
    """Return chains on the full batch numbered from 10, chain i at x = i."""
    work = SimpleNamespace(batches=gl.full_batch(), program=SimpleNamespace(layout=None))
    return [
        Chain(10 + i, None, MC, work, carry=Carry(i, State(jnp.full(2, float(i)), jnp.float32(value)), i))
        for i, value in enumerate(losses)
    ]


def test_the_best_are_copied_over_the_worst_with_their_losses():
    chains = chains_with([3.0, 1.0, 4.0, 0.5, 5.0, 2.0, 6.0, 7.0])
    selection = Selection(every=10, fraction=0.25)
    selection.apply(chains, 20)
    assert [float(chain.carry.state.loss) for chain in chains] == [3.0, 1.0, 4.0, 0.5, 5.0, 2.0, 1.0, 0.5]
    assert [float(chain.carry.state.x[0]) for chain in chains] == [0, 1, 2, 3, 4, 5, 1, 3]
    assert selection.copies == [(20, 13, 17), (20, 11, 16)]
    assert [chain.carry.t for chain in chains] == list(range(8))  # counts stay with their chains
    assert [chain.carry.accepted for chain in chains] == list(range(8))


def test_a_copy_has_memory_of_its_own():
    """The loop takes over the buffers it is given, so two chains must not share one."""
    chains = chains_with([0.0, 1.0])
    Selection(every=1, fraction=0.5).apply(chains, 1)
    one, other = (chain.carry.state.x for chain in chains)
    assert one.unsafe_buffer_pointer() != other.unsafe_buffer_pointer()


@pytest.mark.parametrize("losses", [[2.0, 2.0, 2.0], [1.0], [1.0, float("nan")]])
def test_nothing_is_copied_where_nothing_is_better(losses):
    chains = chains_with(losses)
    selection = Selection(every=1, fraction=0.5)
    selection.apply(chains, 1)
    assert [float(chain.carry.state.x[0]) for chain in chains] == list(range(len(losses)))
    assert selection.copies == []


def test_a_chain_that_has_ended_takes_no_part():
    chains = chains_with([1.0, 2.0, 3.0, 0.0])
    chains[3].status = AT_TARGET
    Selection(every=1, fraction=0.5).apply(chains, 1)
    assert [float(chain.carry.state.x[0]) for chain in chains] == [0, 1, 0, 3]


def test_selections_come_at_multiples():
    assert [Selection(every=5).next_step(t) for t in (0, 4, 5, 6)] == [5, 5, 10, 10]


def loss(params):
    return jnp.sum(jnp.abs(params))


def far_apart(key):
    return jnp.array([1.0, 10.0]) * jax.random.uniform(key, (2,))


def test_chains_that_were_copied_part_again():
    plain = gl.train(MC, loss, far_apart, steps=19, chains=4, record_every=10)
    result = gl.train(MC, loss, far_apart, steps=19, chains=4, record_every=10, select_every=10)
    at_10 = list(plain.trace.step).index(10)
    best, worst = np.argmin(plain.trace.loss[:, at_10]), np.argmax(plain.trace.loss[:, at_10])
    # The moves are a hundredth of what the chains are apart: the copied chain is near the best, not equal to it.
    assert plain.loss[worst] - plain.loss[best] > 1
    assert abs(result.loss[worst] - result.loss[best]) < 0.5
    assert result.loss[worst] != result.loss[best]
    others = np.flatnonzero(np.arange(4) != worst)
    np.testing.assert_array_equal(result.params[others], plain.params[others])


def test_selection_is_off_by_default():
    assert prepare(MC, loss, far_apart, Plan(steps=1)).selection is None


def shifted(params, batch):
    """Minibatches whose losses lie far apart."""
    return jnp.abs(params[0]) + jnp.mean(batch)


def test_a_copied_chain_is_not_judged_against_the_loss_of_the_other_chain_s_batch():
    """Four chains at the minimum of every batch never move, so that a copy in the middle of a hold changes nothing.

    A loss copied along with x would be that of the other chain's batch.
    """
    plain, selected = (
        gl.train(
            gl.metropolis(sigma=1.0),
            shifted,
            jnp.zeros(1),
            data=DATA,
            batches=gl.minibatch(1, hold=10),
            steps=40,
            record_every=1,
            chains=4,
            select_every=select_every,
        )
        for select_every in (None, 5)
    )
    np.testing.assert_array_equal(selected.params, np.zeros((4, 1)))
    np.testing.assert_array_equal(selected.trace.loss, plain.trace.loss)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"select_every": 0}, "select_every must be a whole number from 1 to"),
        ({"select_every": 2.0}, "select_every must be a whole number from 1 to .* got 2.0"),
        ({"select_every": "5"}, "select_every must be a whole number from 1 to .* got '5'"),
        ({"select_every": 5, "select_fraction": 0.0}, "select_fraction must be above 0 and at most 0.5, got 0.0"),
        ({"select_every": 5, "select_fraction": 0.6}, "select_fraction must be above 0 and at most 0.5, got 0.6"),
        ({"select_every": 5, "select_fraction": None}, "select_fraction must be above 0 and at most 0.5, got None"),
    ],
)
def test_a_wrong_selection_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Plan(steps=10, chains=(0, 1), **values)


@pytest.mark.parametrize(
    "batches", [gl.minibatch(2, hold=3), gl.progressive(2, lambda params, batch: shifted(params, batch))]
)
def test_chains_in_float64_are_copied_whatever_the_mode_of_jax(batches):
    data = np.linspace(0, 1, 6)
    algorithm = gl.metropolis(sigma=1.0)
    result = gl.train(algorithm, shifted, np.ones(1), data=data, batches=batches, steps=20, chains=3, select_every=4)
    assert result.params.dtype == np.float64
