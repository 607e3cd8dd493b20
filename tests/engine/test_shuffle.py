"""The order of the data: every sample once, and no order preferred as far as pairs and minibatches can tell."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from gradless.engine import shuffle
from gradless.engine.shuffle import draw_order, in_order

KEYS = 20_000


def order_of(key: jax.Array, num_data: int) -> jax.Array:
    return in_order(draw_order(key, num_data), jnp.arange(num_data, dtype=jnp.int32), num_data)


def orders(num_data: int) -> np.ndarray:
    """Return many orders of so many samples, one per row."""
    keys = jax.random.split(jax.random.key(5), KEYS)
    return np.asarray(jax.jit(jax.vmap(lambda key: order_of(key, num_data)))(keys))


@pytest.mark.parametrize("num_data", [1, 9, 256, 257, 289, 290, 60_000, 65_537])
def test_every_sample_stands_at_one_place(num_data):
    found = np.asarray(jax.jit(order_of, static_argnums=1)(jax.random.key(1), num_data))
    np.testing.assert_array_equal(np.sort(found), np.arange(num_data))


def test_some_places_alone_hold_what_they_hold_in_the_whole_order():
    order = draw_order(jax.random.key(2), 1000)
    whole = in_order(order, jnp.arange(1000, dtype=jnp.int32), 1000)
    np.testing.assert_array_equal(in_order(order, jnp.arange(300, 400, dtype=jnp.int32), 1000), whole[300:400])


@pytest.mark.parametrize("is_sorted", [True, False])
def test_pairs_of_places_hold_all_pairs_of_samples_alike(monkeypatch, is_sorted):
    # Few samples are sorted; by digits they are shuffled here all the same, where flaws show soonest.
    monkeypatch.setattr(shuffle, "MAX_SORTED", 20 if is_sorted else 0)
    found = orders(20)
    for first, second in ((0, 1), (0, 19), (3, 8)):
        counts = np.zeros((20, 20))
        np.add.at(counts, (found[:, first], found[:, second]), 1)
        assert stats.chisquare(counts[~np.eye(20, dtype=bool)]).pvalue > 1e-3


def test_neighbours_fall_into_the_same_minibatch_as_often_as_others():
    # Of 300 samples in ten minibatches, two are together with probability 29/299.
    minibatch = np.argsort(orders(300), axis=1) // 30
    for one, other in ((0, 1), (0, 17), (0, 18), (0, 299), (7, 133)):  # 18 is the side of the square
        together = int(np.sum(minibatch[:, one] == minibatch[:, other]))
        assert stats.binomtest(together, KEYS, 29 / 299).pvalue > 1e-3


def test_orders_of_two_epochs_have_nothing_in_common():
    one, other = (np.asarray(order_of(jax.random.fold_in(jax.random.key(0), epoch), 5000)) for epoch in (0, 1))
    assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(5000)
    assert np.sum(one == other) < 10  # one is expected
    assert abs(np.corrcoef(one[:-1], one[1:])[0, 1]) < 4 / np.sqrt(5000)
