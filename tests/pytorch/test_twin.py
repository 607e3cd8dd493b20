"""The PyTorch class and the JAX kernel make the same moves, given the same noise."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from gradless.kernels import AMC as Kernel
from gradless.proposals import Noise
from gradless.pytorch import AMC
from gradless.signal_norm.trace import trace_signal
from gradless.types import Evaluation

STEPS = 300
WIDTHS = (2, 8, 3, 1)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(STEPS, 20, 2))  # a batch for every step; a fixed batch is the first
START = [0.5 * RNG.normal(size=shape) for a, b in pairwise(WIDTHS) for shape in ((b, a), (b,))]
N = sum(part.size for part in START)
NORMAL, XI = RNG.normal(size=(STEPS, N)), 1 - RNG.uniform(size=STEPS)
SETTINGS = {"sigma": 0.05, "n_s": 5}


class GivenNoise:
    """Stands in for the optimizer's generators: the noise of step n, as often as it is asked for."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        sizes = [parameter.numel() for parameter in optimizer.param_groups[0]["params"]]
        ends = np.cumsum(sizes)
        self.places = {
            p: slice(e - p.numel(), e) for p, e in zip(optimizer.param_groups[0]["params"], ends, strict=True)
        }

    def normal(self, parameter):
        flat = NORMAL[self.optimizer.n, self.places[parameter]]
        return torch.from_numpy(flat.reshape(parameter.shape).copy())

    def xi(self, parameter):
        return XI[self.optimizer.n]

    def generator(self, device):
        pass

    def state(self):
        return {}

    def set_state(self, state):
        pass


def run_torch(settings, is_new_batch):
    layers = [nn.Linear(a, b, dtype=torch.float64) for a, b in pairwise(WIDTHS)]
    model = nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])
    for parameter, value in zip(model.parameters(), START, strict=True):
        parameter.data = torch.from_numpy(value.copy())
    optimizer = AMC(model, **settings, fixed_batch=not is_new_batch)
    optimizer.noise = GivenNoise(optimizer)
    trace = []
    for n in range(STEPS):
        x = torch.from_numpy(X[n if is_new_batch else 0])
        loss = optimizer.step(lambda x=x: ((model(x) - x.prod(1, keepdim=True)) ** 2).mean())
        point = torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).numpy()
        trace.append((point, float(loss), optimizer.num_accepted, optimizer.param_groups[0]["sigma"]))
    return trace


def run_jax(settings, is_new_batch):
    def loss(params, x):
        signal = x
        for place in range(0, 6, 2):
            signal = (jnp.tanh(signal) if place else signal) @ params[place].T + params[place + 1]
        return jnp.mean((signal - x.prod(1, keepdims=True)) ** 2)

    shapes = [part.shape for part in START]
    cuts = np.cumsum([part.size for part in START])[:-1]

    def unflatten(flat):
        return [part.reshape(shape) for part, shape in zip(jnp.split(flat, cuts), shapes, strict=True)]

    traced = trace_signal(loss, [jnp.asarray(part) for part in START], X[0])

    def evaluate(flat, batch):
        if not settings.get("signal_norm"):
            return Evaluation(loss(unflatten(flat), batch))
        value, lams = traced(unflatten(flat), batch)
        whole = [jnp.broadcast_to(lam, shape).ravel() for lam, shape in zip(lams, shapes, strict=True)]
        return Evaluation(value, jnp.concatenate(whole))

    algorithm = Kernel(**settings)
    with_xi = algorithm.temperature != 0

    @jax.jit
    def step(state, n):
        batch = jnp.asarray(X)[n if is_new_batch else 0]
        noise = Noise(jnp.asarray(NORMAL)[n], jnp.asarray(XI)[n] if with_xi else None)
        return algorithm.step(noise, state, lambda flat: evaluate(flat, batch), is_new_batch)

    flat = jnp.concatenate([part.ravel() for part in START])
    state, trace, accepted = algorithm.init(flat, evaluate(flat, X[0])), [], 0
    for n in range(STEPS):
        state, info = step(state, n)
        accepted += bool(info.is_accepted)
        trace.append((np.asarray(state.x), float(state.loss), accepted, float(state.sigma)))
    return trace


@pytest.mark.parametrize("is_new_batch", [False, True], ids=["fixed", "new batches"])
@pytest.mark.parametrize("signal_norm", [False, True], ids=["plain", "signal norm"])
@pytest.mark.parametrize("epsilon", [0.0, 0.2])
@pytest.mark.parametrize("temperature", [0.0, lambda n: 1e-2 / (n + 1)], ids=["cold", "annealed"])
def test_the_class_and_the_kernel_make_the_same_moves(is_new_batch, signal_norm, epsilon, temperature):
    settings = SETTINGS | {"signal_norm": signal_norm, "epsilon": epsilon, "temperature": temperature}
    ours = run_torch(settings, is_new_batch)
    with jax.enable_x64(True):
        twin = run_jax(settings, is_new_batch)
    assert [row[2] for row in ours] == [row[2] for row in twin]
    assert 20 < ours[-1][2] < STEPS - 20  # both kinds of step were made
    assert ours[-1][3] < 0.05  # and sigma has shrunk
    # Decisions are the same, so each step adds a few roundings of 2^-53 to numbers of order 1: 300 * 10 * 1e-16.
    for (x, loss, _, sigma), (x_twin, loss_twin, _, sigma_twin) in zip(ours, twin, strict=True):
        np.testing.assert_allclose(x, x_twin, rtol=0, atol=1e-12)
        np.testing.assert_allclose([loss, sigma], [loss_twin, sigma_twin], rtol=1e-11)
