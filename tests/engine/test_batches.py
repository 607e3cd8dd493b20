"""Which data each step sees, what that costs, and that no loss is ever stale.

Sample i of the data is the number 2^i, and the loss is the sum of the batch plus a part below 1 that depends on the
parameters: the whole part of a recorded loss names the samples of its batch, bit by bit.
"""

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.engine import session
from gradless.engine.batches import num_samples, rows
from gradless.engine.selection import Selection

NUM = 10
DATA = 2.0 ** np.arange(NUM)
START = np.zeros(2)  # float64, so that sums up to 1023 leave room for the part of the parameters
AMC = gl.amc(sigma=0.3, epsilon=0.1, n_s=3)
calls, traces = [], []  # sizes of the batches of which the loss was really evaluated, and traced


def distance(params):
    return jnp.abs(params[0] - 1) + jnp.abs(params[1] + 1)  # 2 at the start


def loss(params, batch):
    traces.append(batch.shape[0])
    jax.debug.callback(partial(calls.append, batch.shape[0]))
    return jnp.sum(batch) + jnp.minimum(distance(params), 3.5) / 4


def error(params, batch):
    return distance(params) / 4


BATCHES = {
    "full": gl.full_batch(),
    "shuffle": gl.minibatch(3),
    "hold": gl.minibatch(4, hold=3),
    "iid": gl.minibatch(4, sampling="iid"),
    "progressive": gl.progressive(2, error, threshold=0.2, check_every=5),
    "redraw": gl.progressive(3, error, threshold=0.45, redraw=True, check_every=5),
}
STEPS = 100


def train(batches, algorithm=AMC, **settings):
    return gl.train(
        algorithm, loss, START, data=DATA, batches=batches, **({"steps": STEPS, "record_every": 1} | settings)
    )


@lru_cache
def trained(name):
    """Train once with each kind of batches; return the result and the sizes of all batches evaluated."""
    jax.effects_barrier()
    calls.clear()
    result = train(BATCHES[name])
    jax.effects_barrier()
    return result, list(calls)


def samples_of(result):
    """Return which samples each record saw (a matrix of records by samples), and the parameters' part of the loss."""
    whole = np.floor(result.trace.loss).astype(int)
    return (whole[:, None] >> np.arange(NUM)) & 1, result.trace.loss - whole


@pytest.mark.parametrize("name", BATCHES)
def test_evaluations_and_samples_are_those_really_made(name):
    result, sizes = trained(name)
    assert result.evaluations == len(sizes)
    assert result.samples == sum(sizes)
    assert result.trace.evaluations[-1] == result.evaluations
    assert result.trace.samples[-1] == result.samples


# The start costs one evaluation of its batch. Minibatches of 3 of 10 samples have sizes 3, 3, 3, 1.
@pytest.mark.parametrize(
    ("name", "step", "epoch", "evaluations", "samples"),
    [
        ("full", 0, 0, 1, 10),
        ("full", 100, 100, 101, 1010),
        ("shuffle", 0, 0, 1, 3),
        ("shuffle", 3, 0.9, 7, 3 + 2 * 9),
        ("shuffle", 4, 1.0, 9, 3 + 2 * 10),
        ("shuffle", 10, 2.6, 21, 3 + 2 * 26),
        ("shuffle", 100, 25, 201, 3 + 2 * 250),
        ("hold", 3, 1.2, 1 + 3 + 1, 4 + 12 + 4),  # three steps on 4 samples, with one look again
        ("hold", 8, 2.8, 1 + 8 + 3, 4 + 12 + 12 + 4 + 4 + 4 + 2),  # 3 steps on 4, 3 on 4, 2 on 2
        ("iid", 10, 4.0, 21, 4 + 2 * 40),
    ],
)
def test_the_cost_up_to_a_step_is_the_one_worked_by_hand(name, step, epoch, evaluations, samples):
    trace = trained(name)[0].trace
    # Epochs are quotients of whole numbers in float64.
    assert abs(trace.epoch[step] - epoch) < 1e-12
    assert trace.evaluations[step] == evaluations
    assert trace.samples[step] == samples


def test_a_shuffled_epoch_sees_every_sample_exactly_once_and_keeps_the_short_last_batch():
    seen, _ = samples_of(trained("shuffle")[0])
    epochs = seen[1:].reshape(25, 4, NUM)
    np.testing.assert_array_equal(epochs.sum(1), np.ones((25, NUM)))
    np.testing.assert_array_equal(epochs.sum(2), np.tile([3, 3, 3, 1], (25, 1)))
    # Every epoch has an order of its own: of the 10!/(3! 3! 3!) = 16,800 divisions no two of 25 are likely the same.
    assert len({epoch.tobytes() for epoch in epochs}) == 25


@pytest.mark.parametrize(("size", "lengths"), [(5, [5, 5]), (10, [10]), (4, [4, 4, 2]), (1, [1] * 10)])
def test_a_visit_sees_the_next_part_of_the_epoch_s_order(size, lengths):
    batches, key = gl.minibatch(size), jax.random.key(1)

    def visit(cursor, t):
        return batches.visit(cursor, key, t, jnp.arange(NUM), lambda batch, _: jnp.zeros(NUM, int).at[batch].add(1))

    _, seen = jax.lax.scan(visit, batches.open(NUM), jnp.arange(3 * len(lengths)))
    np.testing.assert_array_equal(seen.sum(1), lengths * 3)
    np.testing.assert_array_equal(seen.reshape(3, -1, NUM).sum(1), np.ones((3, NUM)))


def test_a_held_minibatch_is_seen_for_that_many_steps():
    seen, _ = samples_of(trained("hold")[0])
    drawings = seen[1:100].reshape(33, 3, NUM)
    np.testing.assert_array_equal(drawings, np.repeat(drawings[:, :1], 3, axis=1))
    np.testing.assert_array_equal(drawings[:, 0].reshape(11, 3, NUM).sum(1), np.ones((11, NUM)))


def test_independent_drawings_have_the_law_of_drawing_with_replacement():
    # 100 drawings of 4 of 10 with replacement; the sum of each is a mean of 4 * 102.3 with sd 2 * sd(DATA).
    whole = np.floor(trained("iid")[0].trace.loss[1:])
    assert abs(whole.mean() - 4 * DATA.mean()) < 4 * 2 * DATA.std() / np.sqrt(STEPS)
    assert len(set(whole)) > 80  # 715 multisets of 4 of 10, all likely enough
    # All different with probability 10 * 9 * 8 * 7/10^4 = 0.504: the number of set bits is then 4.
    with jax.enable_x64(True):
        np.testing.assert_array_equal(np.floor(trained("iid")[0].trace.loss[1:]), whole)
    different = np.mean([bin(int(value)).count("1") == 4 for value in whole])
    assert 0.2 < different < 0.9


@pytest.mark.parametrize("name", ["shuffle", "hold", "iid"])
def test_a_move_is_never_judged_against_the_loss_of_another_batch(name):
    """At zero temperature the parameters' part of the loss never rises, though the sums of the batches jump about.

    Against a stale loss, a batch with a smaller sum would accept anything and one with a larger sum nothing.
    """
    result, _ = trained(name)
    part = samples_of(result)[1]
    # Sums up to 4 * 512 have a rounding of 2^-42 in float64.
    assert np.all(np.diff(part) <= 2.0**-41)
    whole = np.floor(result.trace.loss)
    rises = whole[1:] > whole[:-1]
    accepted = result.trace.acceptance[1:] == 1
    assert accepted[rises].any()
    assert not accepted[~rises].all()


@pytest.mark.parametrize("name", BATCHES)
def test_where_chunks_begin_and_end_changes_nothing(monkeypatch, name):
    expected, _ = trained(name)
    monkeypatch.setattr(session, "ROUND_SECONDS", 1e-12)  # chunks of one step
    found = train(BATCHES[name])
    for one, other in zip(jax.tree.leaves(found.state), jax.tree.leaves(expected.state), strict=True):
        np.testing.assert_array_equal(one, other)
    for column in set(expected.trace) - {"seconds"}:
        np.testing.assert_array_equal(found.trace[column], expected.trace[column])


def test_another_seed_has_another_order_and_the_same_seed_the_same():
    one, again, other = (samples_of(train(BATCHES["shuffle"], seed=seed, steps=20))[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_a_batch_grows_just_when_its_error_is_below_the_threshold_and_contains_the_former_one():
    result, _ = trained("progressive")
    seen, part = samples_of(result)
    sizes = seen.sum(1)
    size, expected = 2, [2]
    for t in range(STEPS):  # the record of step t + 1 is taken on the batch chosen after step t
        if t > 0 and t % 5 == 0 and part[t] < 0.2:  # the parameters' part is the error
            size = min(2 * size, NUM)
        expected.append(size)
    np.testing.assert_array_equal(sizes, expected)
    assert sorted(set(sizes)) == [2, 4, 8, 10]
    assert np.all(seen[1:] >= seen[:-1])
    assert list(sizes[:6]) == [2] * 6  # the start has an error of 1/2


def test_at_each_growth_sigma_is_back_at_sigma_0():
    result, _ = trained("progressive")
    sizes, sigma = samples_of(result)[0].sum(1), result.trace.sigma
    for t in np.flatnonzero(np.diff(sizes)):
        assert sigma[t + 1] == 0.3  # one step later; it takes three rejections to shrink
    assert np.any(sigma[np.flatnonzero(np.diff(sizes))] < 0.3)  # there was something to reset


def test_a_growth_keeps_x_and_starts_all_else_again():
    """With a threshold of 1 the batch grows after step 32, with 0.01 it does not; all before that is the same."""
    held, grown = (
        train(gl.progressive(2, error, threshold=threshold, check_every=32), steps=32) for threshold in (0.01, 1.0)
    )
    np.testing.assert_array_equal(grown.params, held.params)
    assert held.sigma < 0.3
    assert np.any(np.asarray(held.state.mu) != 0)
    assert int(held.state.n_cr) > 0
    assert grown.sigma == 0.3
    assert np.all(np.asarray(grown.state.mu) == 0)
    assert int(grown.state.n_cr) == 0
    # U(x) is that of the grown batch: two samples more.
    assert bin(int(np.floor(held.loss))).count("1") == 2
    assert bin(int(np.floor(grown.loss))).count("1") == 4
    assert (grown.evaluations, grown.samples) == (held.evaluations + 1, held.samples + 4)


def test_the_loss_is_compiled_once_per_size_of_a_growing_batch():
    trained("progressive")
    traces.clear()
    train(BATCHES["progressive"], gl.amc(sigma=0.2, epsilon=0.2, n_s=4), seed=3)
    # Each call checks its loss once on all the data, before anything is compiled.
    assert traces == [NUM]


def test_gradients_go_through_minibatches_with_one_pass_a_step():
    jax.effects_barrier()
    calls.clear()
    result = train(BATCHES["shuffle"], gl.gradient_descent(0.01), steps=10)
    jax.effects_barrier()
    assert result.evaluations == len(calls) == 11
    assert result.samples == sum(calls) == 3 + 26


def pairs_loss(params, batch):
    return jnp.mean((batch["x"] @ params - batch["y"][0]) ** 2)


def test_data_may_be_any_tree_of_arrays():
    data = {"x": np.eye(6, 2, dtype=np.float32), "y": [np.ones(6, np.float32), np.arange(6)]}
    assert num_samples(data) == 6
    taken = rows(data, jnp.array([1, 0]))
    np.testing.assert_array_equal(taken["x"], [[0, 1], [1, 0]])
    np.testing.assert_array_equal(taken["y"][1], [1, 0])
    start = jnp.zeros(2)
    result = gl.train(AMC, pairs_loss, start, data=data, steps=50)
    assert result.loss < pairs_loss(start, data)


def test_without_data_there_are_no_samples_to_speak_of():
    assert num_samples(None) == 0


ERROR = "error must be a function error\\(params, batch\\), got "


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gl.minibatch(0), "size of a minibatch must be a whole number of at least 1, got 0"),
        (lambda: gl.minibatch(2.5), "size of a minibatch must be a whole number of at least 1, got 2.5"),
        (lambda: gl.minibatch(True), "size of a minibatch must be a whole number of at least 1, got True"),
        (lambda: gl.minibatch(2, hold=0), "hold of a minibatch must be a whole number of at least 1, got 0"),
        (lambda: gl.minibatch(2, "random"), 'sampling must be "shuffle" or "iid", got \'random\''),
        (lambda: gl.progressive(2, None), ERROR + "None"),
        (lambda: gl.progressive(2, 0.1), ERROR + "0.1"),
        (lambda: gl.progressive(0, error), "start must be a whole number of at least 1, got 0"),
        (lambda: gl.progressive(2, error, factor=1), "factor must be a whole number of at least 2, got 1"),
        (lambda: gl.progressive(2, error, check_every=0), "check_every must be a whole number of at least 1, got 0"),
        (lambda: gl.progressive(2, error, threshold=0.0), "threshold must be above 0 and at most 1, got 0.0"),
        (lambda: gl.progressive(2, error, threshold="low"), "threshold must be above 0 and at most 1, got 'low'"),
        (lambda: gl.progressive(2, error, threshold=1.5), "threshold must be above 0 and at most 1, got 1.5"),
    ],
)
def test_wrong_batches_are_refused_where_they_are_made(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_whole_numbers_of_numpy_are_whole_numbers():
    assert gl.minibatch(np.int64(3), hold=np.int32(2)) == gl.minibatch(3, hold=2)
    assert type(gl.minibatch(np.int64(3)).size) is int
    given = {name: np.int64(value) for name, value in {"start": 2, "factor": 3, "check_every": 4}.items()}
    assert gl.progressive(error=error, **given) == gl.progressive(2, error, factor=3, check_every=4)
    assert Selection(np.int64(5)).next_step(7) == 10


@pytest.mark.parametrize(
    ("batches", "data", "message"),
    [
        (gl.minibatch(11), DATA, "size of a minibatch must be at most the 10 samples there are, got 11"),
        (gl.minibatch(2), None, "minibatches need data, got none"),
        (gl.progressive(11, error), DATA, "start must be at most the 10 samples there are, got 11"),
        (gl.progressive(2, error), None, "progressive batches need data, got none"),
    ],
)
def test_batches_that_do_not_fit_the_data_are_refused(batches, data, message):
    with pytest.raises(ValueError, match=message):
        gl.train(AMC, loss, START, data=data, batches=batches, steps=1)


@pytest.mark.parametrize("is_double", [False, True])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_batch_whose_error_is_just_at_the_threshold_does_not_grow(is_double, precision):
    def one_in_ten(params, batch):
        return jnp.mean((jnp.arange(len(batch)) < 1).astype(params.dtype)) + 0 * params[0]

    with jax.enable_x64(is_double):
        result = gl.train(
            gl.metropolis(sigma=0.1),
            lambda params, batch: jnp.mean((batch - params[0]) ** 2),
            np.zeros(1),
            data=np.arange(20.0),
            batches=gl.progressive(10, one_in_ten, threshold=0.1, check_every=1),
            steps=10,
            precision=precision,
        )
    assert result.samples == 10 * 11  # ten samples at the start and at each step
