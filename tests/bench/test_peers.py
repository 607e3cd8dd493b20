"""Every peer minimises, makes exactly the evaluations asked for, and sees the task's own data and precision."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradless.bench.peers import PEERS, cma, evosax, evotorch, scipy
from gradless.bench.peers.peer import Peer
from gradless.bench.peers.search import Called
from gradless.bench.peers.task import Task
from gradless.problem import Problem

START = {"a": np.zeros(3), "b": np.zeros((2, 2))}  # N = 7, U = 7 at the start
DATA = np.linspace(-1, 1, 11)  # of mean 0
POPULATIONS = [
    evosax.open_es(16, 4, 0.1, 0.1, 100),
    evotorch.snes(4, popsize=16, stdev_init=0.1),
    cma.cma_es(0.3, True),
]


class Counted:
    """A bowl with its minimum, 0, at a = 1 and b = -1, that counts how often it is computed."""

    def __init__(self):
        self.calls = 0
        self.kinds = set()  # dtypes of the parameters and shapes of the data

    def __call__(self, params, batch):
        self.kinds.add((str(params["a"].dtype), batch.shape))
        jax.debug.callback(self._count, params["a"][0])  # with an argument: called for each member
        return jnp.sum((params["a"] - 1) ** 2) + jnp.sum((params["b"] + 1) ** 2) + 0 * jnp.sum(batch)

    def _count(self, _):
        self.calls += 1

    def problem(self):
        return Problem(lambda key: START, self, DATA, algorithms={"amc": {"sigma": 0.3}}, precision="float64")


def need(peer):
    if peer.missing():
        pytest.skip(f"{peer.package} is not installed: {peer.missing()}")


def distance(params):
    return float(np.sum((np.asarray(params["a"]) - 1) ** 2) + np.sum((np.asarray(params["b"]) + 1) ** 2))


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_peer_minimises_with_exactly_the_evaluations_asked_for(peer):
    need(peer)
    bowl = Counted()
    search = peer.begin(Task(bowl.problem(), "float64"))
    jax.effects_barrier()
    before = bowl.calls
    for evaluations in (1, 7, 1492):
        search.advance(evaluations)
    jax.effects_barrier()
    assert (search.evaluations, search.samples) == (1500, 1500 * 11)
    assert bowl.calls - before == 1500
    # Half of U at the start: within reach of the slowest, annealing at a temperature of 0.5, whose best point counts.
    assert distance(search.params()) < 3.5
    assert bowl.kinds == {("float64", (11,))}


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_workload_is_prepared_in_its_own_precision_and_batch(peer):
    need(peer)
    bowl = Counted()
    run = peer.prepare(SimpleNamespace(problem=bowl.problem(), precision="float32", batch=4))
    jax.effects_barrier()
    before = bowl.calls
    run(5)
    jax.effects_barrier()
    assert bowl.calls - before == 5
    assert bowl.kinds == {("float32", (4,))}


@pytest.mark.parametrize("search", POPULATIONS, ids=["evosax OpenES", "EvoTorch SNES", "pycma"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_population_minimises_and_is_counted_member_by_member(search, precision):
    need(dict(zip(POPULATIONS, (evosax.OPEN_ES, evotorch.MNIST, cma.POPULATION), strict=True))[search])
    bowl = Counted()
    going = search(Task(bowl.problem(), precision))
    jax.effects_barrier()
    before = bowl.calls
    going.advance(1600)
    jax.effects_barrier()
    assert 1600 <= going.evaluations < 1600 + 16  # a population is finished
    assert bowl.calls - before == going.evaluations
    assert going.samples == going.evaluations * (11 if search is POPULATIONS[2] else 4)
    assert distance(going.params()) < 0.7  # a tenth of the start
    assert {dtype for dtype, _ in bowl.kinds} == {precision}


def test_without_a_library_one_is_told_what_to_install():
    assert Peer("x", "no_such_library", "no-such-library", "", Called).missing() == "pip install no-such-library"
    assert scipy.POWELL.missing() is None


def test_a_task_beyond_a_peer_is_refused():
    large = Problem(np.zeros(1001), lambda x: jnp.sum(x**2))
    with pytest.raises(NotImplementedError, match="SciPy Powell is for at most 1000 parameters, got 1001"):
        scipy.POWELL.begin(Task(large, "float32"))


def test_a_loop_that_ends_begins_again_from_its_best_point():
    starts = []

    def minimise(loss, x0):
        starts.append(x0.tolist())
        loss(x0 + 1)
        loss(x0 - 3)

    problem = Problem(np.zeros(2), lambda x: jnp.sum((x - 2.6) ** 2))
    search = Called(Task(problem, "float64"), minimise)
    search.advance(5)
    assert starts == [[0, 0], [1, 1], [2, 2]]
    assert search.evaluations == 5
    assert search.params().tolist() == [3, 3]


def test_an_error_in_a_library_comes_out():
    def minimise(loss, x0):
        loss(x0)
        raise RuntimeError("the library gave up")

    search = Called(Task(Problem(np.zeros(2), lambda x: jnp.sum(x**2)), "float32"), minimise)
    with pytest.raises(RuntimeError, match="the library gave up"):
        search.advance(2)
