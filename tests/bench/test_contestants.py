"""The contestants run the same algorithm on the same loss: what is compared is the time alone."""

from dataclasses import replace
from itertools import pairwise

import jax
import numpy as np
import pytest
import torch

from gradless.bench import torch_eager
from gradless.bench.contestants import CONTESTANTS, SessionChain, TorchEager, started
from gradless.bench.jax_scan import ScannedChain
from gradless.bench.torch_eager import EagerChain, as_module
from gradless.bench.workloads import WORKLOADS, tiny

NAMES = list(WORKLOADS)
CHAINS = {
    "gradless": lambda workload: SessionChain(started(workload)),
    "jax-scan": ScannedChain,
    "torch-eager": EagerChain,
}


def loss_at_start(workload):
    """U at the start, on all of the data."""
    params, data = workload.start(), workload.data
    loss = workload.problem.loss
    return float(loss(params) if data is None else loss(params, data))


def test_the_names_are_those_of_the_chains():
    assert [contestant.name for contestant in CONTESTANTS] == list(CHAINS)
    assert all(contestant.missing() is None for contestant in CONTESTANTS)


@pytest.mark.parametrize("name", ["W1", "W2", "W3", "W6"])
@pytest.mark.parametrize("who", CHAINS)
def test_on_a_fixed_batch_all_start_at_one_loss_and_never_rise(name, who):
    workload = tiny(name)
    chain = CHAINS[who](workload)
    # Three ways to sum a few hundred terms of order one.
    np.testing.assert_allclose(chain.loss, loss_at_start(workload), rtol=1e-5)
    losses = [chain.loss]
    for _ in range(8):
        chain(5)
        losses.append(chain.loss)
    assert all(after <= before for before, after in pairwise(losses))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", ["W1", "W2", "W4", "W5", "W6"])
def test_the_module_has_the_loss_of_the_workload(name):
    workload = tiny(name)
    module = as_module(workload)
    batch = [torch.from_numpy(array) for array in workload.data]
    batch = [array.long() if array.dtype == torch.int32 else array for array in batch]
    np.testing.assert_allclose(module(*batch).item(), loss_at_start(workload), rtol=1e-5)
    assert sum(p.numel() for p in module.parameters()) == workload.num_parameters


@pytest.mark.parametrize("name", ["W1", "W2", "W6"])
def test_lambda_is_that_of_gradless(name):
    """Signal norm written out twice by hand, and once by the tracer."""
    workload = tiny(name)
    ours = jax.tree.leaves(started(workload).chains[0].carry.state.lam)[0]
    np.testing.assert_allclose(ScannedChain(workload).carry.lam, ours, rtol=1e-5)
    by_torch = [float(lam) for lam in EagerChain(workload).lam]
    start = workload.start()["layers"]
    # A torch module holds a layer's weight, then its bias; our pytree the bias first.
    pairs = zip(by_torch[::2], by_torch[1::2], strict=True)
    spread = [
        np.full(layer[leaf].size, lam)
        for layer, (of_weight, of_bias) in zip(start, pairs, strict=True)
        for leaf, lam in (("bias", of_bias), ("weight", of_weight))
    ]
    np.testing.assert_allclose(np.concatenate(spread), ours, rtol=1e-5)


@pytest.mark.parametrize("who", ["jax-scan", "torch-eager"])
def test_sigma_shrinks_and_mu_is_dropped_after_n_s_rejections(who):
    """At the minimum of Rosenbrock every move is rejected: after n_s of them sigma is 0.95 of what it was."""
    workload = _from([1.0, 1.0], {"sigma": 0.5, "epsilon": 0.1, "n_s": 3})
    chain = CHAINS[who](workload)
    sigmas = []
    for _ in range(4):
        sigmas.append(float(chain.carry.sigma if who == "jax-scan" else chain.sigma))
        chain(1)
    np.testing.assert_allclose(sigmas, [0.5, 0.5, 0.5, 0.475], rtol=1e-6)
    assert chain.loss == 0.0
    x = chain.carry.x if who == "jax-scan" else chain.params[0].detach()
    np.testing.assert_array_equal(np.asarray(x), [1.0, 1.0])


@pytest.mark.parametrize("who", ["jax-scan", "torch-eager"])
def test_mu_follows_accepted_moves(who):
    """After the first accepted move mu is epsilon times that move."""
    workload = _from([-2.0, 2.0], {"sigma": 1e-3, "epsilon": 0.25, "n_s": 10**6})
    chain = CHAINS[who](workload)
    before = chain.loss
    while chain.loss == before:
        chain(1)
    x = np.asarray(chain.carry.x if who == "jax-scan" else chain.params[0].detach())
    mu = np.asarray(chain.carry.mu if who == "jax-scan" else chain.mu[0])
    # x + eps is rounded to float32 at 2: half a unit there is 1.2e-7, of a move of 1e-3.
    np.testing.assert_allclose(mu, 0.25 * (x - np.float32([-2.0, 2.0])), atol=1.2e-7)


@pytest.mark.parametrize(
    ("one", "both", "chosen"), [(1.0, 100.0, 1), (1.0, 0.95, 1), (1.0, 0.6, 2)], ids=["worse", "no better", "better"]
)
def test_torch_has_the_threads_that_serve_it_best(monkeypatch, one, both, chosen):
    """Whatever two threads cost here: on a busy machine a hundred times one, at which nobody would leave it."""
    clock = [0.0]

    def step(chain, closure):
        clock[0] += {1: one, 2: both}[torch.get_num_threads()]

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        monkeypatch.setattr(torch_eager.time, "perf_counter", lambda: clock[0])
        monkeypatch.setattr(EagerChain, "step", step)
        chain = TorchEager().prepare(tiny("W3"))
        assert chain.threads == chosen
        assert torch.get_num_threads() == 2
        clock[0] = 0.0
        chain(7)
        assert clock[0] == pytest.approx(7 * {1: one, 2: both}[chosen])
    finally:
        torch.set_num_threads(before)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["W4", "W5"])
@pytest.mark.parametrize("who", CHAINS)
def test_minibatches_run(name, who):
    chain = CHAINS[who](tiny(name))
    chain(4)
    assert np.isfinite(chain.loss)


def _from(position, settings):
    """Rosenbrock from another start."""
    workload = tiny("W3")
    problem = replace(workload.problem, init=np.asarray(position, np.float32))
    return replace(workload, problem=problem, settings=settings)
