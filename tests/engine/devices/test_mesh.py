"""Meshes of devices: chains, proposals and data apart, and the same chain on however many devices."""

import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.engine import loop
from gradless.engine.plan import Plan
from gradless.engine.train import prepare
from gradless.problems import make_problem

X = np.linspace(-1, 1, 24, dtype=np.float32)[:, None]
DATA = (X, np.sin(3 * X))
WIDTHS = np.linspace(-1, 1, 4, dtype=np.float32)
START = {"w": WIDTHS[None], "b": np.zeros(4, np.float32), "v": WIDTHS[::-1, None]}
NORM = gl.amc(sigma=0.1, epsilon=0.1, n_s=3, signal_norm=True)
CASES = {
    "mc": (gl.metropolis(sigma=0.05, temperature=1e-3), {}),
    "norm": (NORM, {}),
    "hold": (gl.amc(sigma=0.1, epsilon=0.1, n_s=3), {"batches": gl.minibatch(5, hold=3)}),
    "selection": (NORM, {"chains": 4, "select_every": 7}),
}

needs_devices = pytest.mark.skipif(len(jax.devices()) < 4, reason="JAX has begun with fewer than 4 devices")


def loss(params, batch):
    x, y = batch
    return jnp.mean((jnp.tanh(x @ params["w"] + params["b"]) @ params["v"] - y) ** 2)


def error(params, batch):
    return loss(params, batch)


def train(algorithm, loss=loss, **settings):
    return gl.train(algorithm, loss, START, data=DATA, **{"steps": 1000} | settings)


def assert_same(one, other):
    for left, right in zip(jax.tree.leaves(one.state), jax.tree.leaves(other.state), strict=True):
        np.testing.assert_array_equal(left, right)
    for name in set(one.trace) - {"seconds"}:
        np.testing.assert_array_equal(one.trace[name], other.trace[name])


@needs_devices
@pytest.mark.parametrize("dtype", [jnp.bfloat16, pytest.param(np.float64, marks=pytest.mark.soak)])
def test_numbers_of_any_width_go_from_one_device_to_another(dtype):
    def square(x):
        return jnp.sum(x**2)

    given = {"steps": 60, "speculate": 4}
    expected = gl.train(gl.amc(sigma=0.1), square, np.ones(3, dtype), **given)
    assert_same(gl.train(gl.amc(sigma=0.1), square, np.ones(3, dtype), mesh=gl.mesh(proposals=2), **given), expected)


@needs_devices
@pytest.mark.parametrize(
    "name", ["hold", *(pytest.param(name, marks=pytest.mark.soak) for name in ("mc", "norm", "selection"))]
)
def test_proposals_on_several_devices_make_the_same_chain(name):
    algorithm, settings = CASES[name]
    expected = train(algorithm, **settings)
    assert_same(train(algorithm, mesh=gl.mesh(proposals=2), speculate=5, **settings), expected)


@needs_devices
def test_four_devices_and_groups_of_two_make_the_same_chains():
    expected = train(NORM, chains=3)
    for mesh, speculate in [({"chains": 2, "proposals": 2}, 8), ({"chains": 4}, None)]:
        assert_same(train(NORM, chains=3, mesh=gl.mesh(**mesh), speculate=speculate), expected)


@needs_devices
def test_metrics_of_chains_on_different_devices_are_those_on_one():
    looked_at = {"metrics": lambda params, test: {"error": loss(params, test)}, "test": DATA, "steps": 20, "chains": 2}
    expected = train(NORM, **looked_at)
    found = train(NORM, mesh=gl.mesh(chains=2), **looked_at)
    np.testing.assert_array_equal(found.metrics["error"], expected.metrics["error"])
    np.testing.assert_array_equal(found.metrics["error"], found.trace["error"][:, -1])


@needs_devices
def test_data_on_two_devices_or_one_make_the_same_chain(tmp_path):
    batches = gl.progressive(12, error, threshold=0.3)
    whole = train(NORM, batches=batches, mesh=gl.mesh(data=2), run=tmp_path / "whole")
    both = train(NORM, batches=batches, mesh=gl.mesh(data=2, proposals=2))
    assert_same(both, whole)
    # Half of the way on two devices, the rest on one: the parts belong to the run.
    train(NORM, batches=batches, mesh=gl.mesh(data=2), steps=500, record_every=1, run=tmp_path / "half")
    given = {"loss": loss, "params": START, "data": DATA, "error": error}
    gone_on = gl.resume(tmp_path / "half", steps=1000, **given)
    for left, right in zip(jax.tree.leaves(gone_on.state), jax.tree.leaves(whole.state), strict=True):
        np.testing.assert_array_equal(left, right)


@needs_devices
def test_the_loss_and_lambda_of_parts_are_those_of_the_whole():
    plain, shared = (prepared(mesh).chains[0].carry.state for mesh in (None, gl.mesh(data=4)))
    # Sums of 24 terms in another order.
    np.testing.assert_allclose(shared.loss, plain.loss, rtol=24 * np.finfo(np.float32).eps)
    np.testing.assert_allclose(shared.lam, plain.lam, rtol=24 * np.finfo(np.float32).eps)


@needs_devices
def test_a_sum_over_samples_is_seen_to_be_one():
    def total(params, batch):
        return len(batch[0]) * loss(params, batch)

    plain, shared = (prepared(mesh, total).chains[0].carry.state.loss for mesh in (None, gl.mesh(data=2)))
    np.testing.assert_allclose(shared, plain, rtol=1e-5)


@needs_devices
def test_what_data_cannot_share_is_refused():
    def root(params, batch):
        return jnp.sqrt(loss(params, batch))

    with pytest.raises(ValueError, match="needs a loss that is a mean or a sum over samples"):
        train(NORM, root, mesh=gl.mesh(data=2))

    def masked(params, batch):
        *batch, mask = batch
        return jnp.sum(mask * jax.vmap(lambda *one: loss(params, one))(*batch)) / jnp.sum(mask)

    padded = (*DATA, np.arange(len(DATA[0])) < len(DATA[0]) - 1)
    with pytest.raises(ValueError, match="needs a loss that is a mean or a sum over samples"):
        gl.train(NORM, masked, START, data=padded, steps=1, mesh=gl.mesh(data=2))
    with pytest.raises(ValueError, match="needs the full batch or a growing one, got minibatches"):
        train(NORM, batches=gl.minibatch(6), mesh=gl.mesh(data=2))
    with pytest.raises(ValueError, match="data=2 of the mesh must divide the 9 samples"):
        train(NORM, batches=gl.progressive(9, error), mesh=gl.mesh(data=2))
    with pytest.raises(ValueError, match="a mesh with data > 1 needs data, and there are none: use proposals"):
        gl.train(gl.amc(sigma=0.1), lambda x: jnp.sum(x**2), np.ones(2), steps=1, mesh=gl.mesh(data=2))
    with pytest.raises(ValueError, match="needs an algorithm with proposals, mc or amc, got adam"):
        train(gl.adam(learning_rate=1e-3), mesh=gl.mesh(data=2))


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({"proposals": 1000}, "needs 1000 devices, there are .*jax_num_cpu_devices"),
        ({"proposals": 0}, "proposals must be a whole number from 1"),
        ({"data": 1.5}, "data must be a whole number from 1"),
    ],
)
def test_a_wrong_mesh_is_refused(axes, words):
    with pytest.raises(ValueError, match=words):
        gl.mesh(**axes)


def prepared(mesh, loss=loss):
    plan = Plan(steps=100, shards=1 if mesh is None else mesh.data)
    session = prepare(NORM, loss, START, plan, data=DATA, mesh=mesh)
    session.begin()
    return session


def messages(mesh):
    """Return the words of 32 bits in each message of the compiled loop."""
    session = prepared(mesh)
    chain, (program, data) = session.chains[0], session.work.stage(0)
    limits = session.work.limits(1)
    compiled = loop.advance.lower(program, chain.algorithm, chain.key, chain.carry, data, session.work.test, limits)
    text = compiled.compile().as_text()
    assert not re.search(r" (all-reduce|all-to-all|collective-permute|reduce-scatter)[-(]", text)
    shapes = re.findall(r"= u32\[([\d,]+)\]\S* all-gather\(", text)
    assert len(shapes) == len(re.findall(r" all-gather(?:-start)?\(", text))
    return [int(np.prod([int(length) for length in shape.split(",")])) for shape in shapes]


def test_chains_that_a_process_has_no_part_in_are_sent_apart_with_flags_that_exist(monkeypatch):
    devices = [SimpleNamespace(process_index=index, platform="cpu") for index in (0, 1)]
    monkeypatch.setattr(jax, "devices", lambda: devices)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match=r"or run the chains apart, each machine with its own --seed \(seed=\)$"):
        gl.mesh(chains=2)


@needs_devices
def test_only_losses_and_decisions_travel_never_parameters():
    devices = 4
    # Of each device: how many it looked at, which were no numbers, and of the last whether it was accepted or finite,
    # U(x) and U(x'): six words, in one message a round.
    assert messages(gl.mesh(proposals=devices)) == [6 * devices]


@needs_devices
def test_data_send_a_loss_and_one_number_per_neuron():
    num_parameters, neurons = 13, 3  # lambda of w and v from the inputs of two layers; the bias has none
    words = messages(gl.mesh(data=2))
    assert words
    assert max(words) <= 2 * (1 + neurons) < 2 * num_parameters


@needs_devices
def test_a_net_for_digits_with_signal_norm_is_the_same_to_the_last_bit():
    # Wide layers and many samples: sums that a compiler would take in another order in another program.
    digits = make_problem("digits", {})
    settings = {"data": digits.data, "batches": gl.minibatch(479), "steps": 400}  # 479 divides the 1,437
    expected = gl.train(NORM, digits.loss, digits.init, **settings)
    found = gl.train(NORM, digits.loss, digits.init, mesh=gl.mesh(proposals=2), speculate=4, **settings)
    assert_same(found, expected)
    assert 0.05 < expected.acceptance < 0.95
