"""The step on PyTorch's side: hand-worked numbers, what a rejection leaves, and laws."""

import math
import subprocess
import sys

import pytest
import torch
from torch import nn

import gradless as gl
from gradless.pytorch import AMC


class Given:
    """Noise from a list of numbers, the same for every parameter of a step."""

    def __init__(self, optimizer, numbers):
        self.optimizer, self.numbers = optimizer, numbers

    def normal(self, parameter):
        return torch.tensor(self.numbers[self.optimizer.n]).expand(parameter.shape).clone()

    def generator(self, device):
        pass

    def state(self):
        return {}

    def set_state(self, state):
        pass


def of_numbers(*values, **settings):
    """One parameter for each value, and the optimizer of them."""
    x = [nn.Parameter(torch.tensor([value])) for value in values]
    return x, AMC(x, **settings)


def losses(*values):
    """A closure that returns one value after the other."""
    left = list(values)
    return lambda: torch.tensor(left.pop(0))


def test_a_hand_worked_accepted_and_rejected_move():
    """All numbers are small multiples of powers of two, so that sums and products are exact."""
    (x,), optimizer = of_numbers(1.0, sigma=0.5, epsilon=0.25, n_s=2, sigma_decay=0.5)
    optimizer.noise = Given(optimizer, [1.0, -2.0, 4.0, 1.0])
    assert optimizer.step(losses(5.0, 4.0)) == 4.0  # eps = 0.5 * 1
    assert (x.item(), optimizer.state[x]["mu"].item()) == (1.5, 0.125)
    assert optimizer.step(losses(4.0, 3.0)) == 3.0  # eps = 0.125 - 1
    assert (x.item(), optimizer.state[x]["mu"].item()) == (0.625, 0.125 + 0.25 * (-0.875 - 0.125))
    assert optimizer.step(losses(3.0, 3.5)) == 3.0
    group = optimizer.param_groups[0]
    assert (x.item(), optimizer.state[x]["mu"].item(), group["n_cr"], group["sigma"]) == (0.625, -0.125, 1, 0.5)
    assert optimizer.step(losses(3.0, 3.5)) == 3.0  # the second rejection in a row: n_s = 2
    assert (x.item(), optimizer.state[x]["mu"].item(), group["n_cr"], group["sigma"]) == (0.625, 0.0, 0, 0.25)
    assert (optimizer.n, optimizer.num_accepted, optimizer.num_nonfinite) == (4, 2, 0)


@pytest.mark.parametrize("temperature", [0.0, 1e-9])
def test_mu_is_moved_by_the_very_noise_of_the_move(temperature):
    """The noise is drawn a second time for mu. From x = 0 and with epsilon = 1, x' and mu are both eps."""
    x = [nn.Parameter(torch.zeros(5)), nn.Parameter(torch.zeros(3, 2, dtype=torch.float64))]
    optimizer = AMC(x, epsilon=1.0, temperature=temperature, seed=0)
    optimizer.step(losses(1.0, 0.0))
    first = [parameter.detach().clone() for parameter in x]
    for parameter in x:
        assert parameter.abs().min() > 0
        assert torch.equal(parameter, optimizer.state[parameter]["mu"])
    optimizer.step(losses(0.0, -1.0))  # eps = mu + new noise
    for parameter, one in zip(x, first, strict=True):
        assert (parameter - 3 * one).abs().min() > 1e-6  # the same noise again would lead to 3 eps


def test_groups_move_together_and_shrink_each_by_its_own_rule():
    a, b = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    groups = [{"params": [a], "sigma": 0.5, "n_s": 1, "sigma_decay": 0.5}, {"params": [b], "epsilon": 0.5}]
    optimizer = AMC(groups, sigma=0.25, n_s=3, sigma_decay=0.25)
    optimizer.noise = Given(optimizer, [1.0] * 6)
    optimizer.step(losses(2.0, 1.0))
    assert (a.item(), b.item()) == (0.5, 0.25)  # one decision for both
    assert "mu" not in optimizer.state[a]
    assert optimizer.state[b]["mu"].item() == 0.125
    for _ in range(2):
        optimizer.step(losses(1.0, 2.0))
    assert [(group["sigma"], group["n_cr"]) for group in optimizer.param_groups] == [(0.125, 0), (0.25, 2)]
    optimizer.step(losses(1.0, 2.0))
    assert [(group["sigma"], group["n_cr"]) for group in optimizer.param_groups] == [(0.0625, 0), (0.0625, 0)]
    assert optimizer.state[b]["mu"].item() == 0
    optimizer.step(losses(1.0, 2.0))
    optimizer.step(losses(1.0, 1.0))  # an acceptance sets all counts to 0
    assert [group["n_cr"] for group in optimizer.param_groups] == [0, 0]


def test_with_a_smaller_n_s_in_a_run_sigma_shrinks_at_the_next_rejection():
    _, optimizer = of_numbers(1.0, sigma=0.5, n_s=100, sigma_decay=0.5, seed=0)
    for _ in range(5):
        optimizer.step(losses(1.0, 2.0))
    optimizer.param_groups[0]["n_s"] = 3
    optimizer.step(losses(1.0, 2.0))
    assert optimizer.param_groups[0]["sigma"] == 0.25


def test_x_is_the_same_to_the_last_bit_after_10_000_rejections():
    torch.manual_seed(0)
    x = nn.Parameter(torch.randn(50))
    start = x.detach().clone()
    optimizer = AMC([x], sigma=1.0, epsilon=0.1, n_s=100, fixed_batch=True, seed=1)
    for _ in range(10_000):
        assert optimizer.step(lambda: (x - start).abs().max()) == 0
    assert optimizer.num_accepted == 0
    assert torch.equal(x, start)
    # 100 rescales of a double: relative 100 * 2^-53.
    assert math.isclose(optimizer.param_groups[0]["sigma"], 0.95**100, rel_tol=2e-14)


def test_a_linear_loss_accepts_one_half():
    """Each move goes up or down the slope with probability one half. Known answers of the paper's Sec. II."""
    g = torch.tensor([3.0, -4.0, 12.0], dtype=torch.float64)
    x = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer = AMC([x], sigma=1e-2, n_s=math.inf, fixed_batch=True, seed=2)
    num = 10_000
    for _ in range(num):
        loss = optimizer.step(lambda: x @ g)
    assert abs(optimizer.num_accepted - num / 2) < 4 * math.sqrt(num) / 2
    # Gain per step sigma |g| / sqrt(2 pi); its square has the mean sigma^2 |g|^2 / 2.
    gain = 1e-2 * 13 / math.sqrt(2 * math.pi)
    assert abs(float(loss) + num * gain) < 4 * math.sqrt(num * (0.5 * (1e-2 * 13) ** 2 - gain**2))


def test_at_a_finite_temperature_a_quadratic_loss_has_its_variance():
    """U = k x^2 / 2 has the variance T/k. 200 chains in one tensor do not work (one decision), so 10 in time."""
    x = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = AMC([x], sigma=1.0, n_s=math.inf, temperature=0.5, fixed_batch=True, seed=3)
    points = []
    for _ in range(8000):
        optimizer.step(lambda: x.square().sum())  # k = 2
        points.append(x.item())
    # The variance of x^2 is 2 (T/k)^2; moves of twice the width of the well forget it within some 10 steps: 800
    # independent samples, and a standard error of 0.25 sqrt(2/800) = 0.0125.
    assert abs(torch.tensor(points[100:]).square().mean() - 0.25) < 4 * 0.0125


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_proposal_that_is_not_finite_is_rejected(bad):
    (x,), optimizer = of_numbers(1.0)
    assert optimizer.step(losses(1.0, bad)) == 1.0
    assert (x.item(), optimizer.num_accepted, optimizer.num_nonfinite) == (1.0, 0, 1)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("fixed_batch", [False, True])
def test_a_start_that_is_not_finite_is_refused(bad, fixed_batch):
    (x,), optimizer = of_numbers(1.0, fixed_batch=fixed_batch)
    with pytest.raises(ValueError, match=f"the loss at the start must be finite, got {bad}"):
        optimizer.step(losses(bad, 1.0))
    assert x.item() == 1.0


@pytest.mark.parametrize(("fixed_batch", "calls"), [(False, 20), (True, 1 + 10 + 4)])
def test_the_number_of_losses(fixed_batch, calls):
    """Two a step on new batches; on a fixed one a first look, one a step, and looks again at steps 1, 2, 4 and 8."""
    (x,), optimizer = of_numbers(1.0, fixed_batch=fixed_batch)
    seen = []
    for _ in range(10):
        optimizer.step(lambda: seen.append(0) or x.square().sum())
    assert len(seen) == calls


def test_both_losses_of_a_step_see_the_same_batch_dropout_and_generator():
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    optimizer, x, seen = AMC(model, sigma=1e-9, seed=0), torch.ones(4, 8), []

    def loss():
        seen.append((model(x) == 0).flatten().tolist())
        return torch.tensor(0.0)

    for _ in range(2):
        optimizer.step(loss)
    assert seen[0] == seen[1]
    assert seen[2] == seen[3]
    assert seen[0] != seen[2]


@pytest.mark.parametrize("is_model_given", [True, False])
def test_buffers_return_with_a_rejected_move_if_the_model_is_known(is_model_given):
    model, x = nn.BatchNorm1d(2), torch.tensor([[0.0, 1.0], [2.0, 5.0]])
    optimizer, seen = AMC(model if is_model_given else model.parameters(), seed=0), []

    def loss():
        model(x)
        seen.append(model.running_mean.clone())
        return torch.tensor(float(len(seen)))  # the second is higher: rejected

    optimizer.step(loss)
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(model.running_mean, seen[0 if is_model_given else 1])
    assert model.num_batches_tracked == (1 if is_model_given else 2)


def test_autocast_around_the_step_is_autocast_in_the_closure():
    """Autocast holds the weights in half precision as long as it lasts, though they have moved since."""
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    ends = []
    for is_around in (True, False):
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        optimizer = AMC(model, sigma=0.1, seed=0)

        def loss(model=model, is_around=is_around):
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=True, cache_enabled=is_around):
                return (model(x) - x.sum(1, keepdim=True)).square().mean()

        with torch.autocast("cpu", torch.bfloat16, enabled=is_around):
            for _ in range(10):
                assert optimizer.step(loss) == loss()
        ends.append((optimizer.num_accepted, model.weight.tolist()))
    assert ends[0] == ends[1]
    assert 0 < ends[0][0] < 10


def test_an_error_at_the_proposal_leaves_the_net_at_x():
    (x,), optimizer = of_numbers(1.0)

    def fail():
        if x.item() != 1.0:
            raise KeyboardInterrupt
        return x.sum()

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(fail)
    assert x.item() == 1.0


def test_a_fixed_batch_that_changes_is_noticed_at_the_second_step():
    model, data = nn.Linear(2, 1), torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
    optimizer = AMC(model, fixed_batch=True, seed=0)
    optimizer.step(lambda: model(data[:5]).square().mean())
    with pytest.raises(ValueError, match=r"fixed_batch=True needs the same data and no dropout .* went from"):
        optimizer.step(lambda: model(data[5:]).square().mean())


def test_a_fixed_batch_is_looked_at_again_for_ever():
    (x,), optimizer = of_numbers(1.0, fixed_batch=True, sigma=1e-3, seed=0)
    for _ in range(1030):
        optimizer.step(lambda: x.square().sum())
    for _ in range(1030, 2048):
        optimizer.step(lambda: x.square().sum() + 1)
    with pytest.raises(ValueError, match="with x at rest"):
        optimizer.step(lambda: x.square().sum() + 1)


def test_a_new_fixed_batch_may_follow_a_reset():
    (x,), optimizer = of_numbers(1.0, fixed_batch=True, sigma=1e-3, epsilon=0.1, n_s=1, seed=0)
    for _ in range(20):
        optimizer.step(lambda: x.square().sum())
    assert optimizer.param_groups[0]["sigma"] < 1e-3
    optimizer.reset()
    group = optimizer.param_groups[0]
    assert (group["sigma"], group["n_cr"], optimizer.state[x]["mu"].item()) == (1e-3, 0, 0)
    assert optimizer.step(lambda: x.square().sum() + 7) > 7


@pytest.mark.parametrize("change", [lambda x: x.data.fill_(2.0), lambda x: x.detach().fill_(2.0)])
def test_with_a_fixed_batch_a_change_of_x_from_outside_is_seen(change):
    (x,), optimizer = of_numbers(1.0, fixed_batch=True, sigma=1e-6, seed=0)
    for _ in range(3):
        optimizer.step(lambda: x.square().sum())
    change(x)
    assert abs(float(optimizer.step(lambda: x.square().sum())) - 4) < 1e-4
    assert abs(x.item() - 2) < 1e-4


def test_with_a_fixed_batch_a_small_change_of_x_from_outside_is_seen_too():
    (x,), optimizer = of_numbers(1.0, fixed_batch=True, sigma=1e-9, n_s=math.inf, seed=0)
    for _ in range(20):  # the loss changes by less than half of its digits, the rounding that a fixed batch may have
        with torch.no_grad():
            x.mul_(1 + 1e-6)
        assert float(optimizer.step(lambda: x.square().sum())) == x.square().item()


def test_frozen_parameters_stay():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].requires_grad_(False)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = AMC(model, seed=0)
    optimizer.step(losses(1.0, 0.0))
    moved = [not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
    assert moved == [False, False, True, True]
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter to move: requires_grad=False keeps"):
        optimizer.step(losses(1.0, 0.0))


def test_the_seed_decides_and_without_one_manual_seed_does():
    ends = []
    for seed, global_seed in ((1, 5), (1, 6), (2, 5), (None, 5), (None, 5), (None, 6)):
        torch.manual_seed(global_seed)
        (x,), optimizer = of_numbers(1.0, seed=seed)
        optimizer.step(losses(1.0, 0.0))
        ends.append(x.item())
    assert ends[0] == ends[1] != ends[2]
    assert ends[3] == ends[4] != ends[5]


def test_the_optimizer_s_noise_leaves_the_global_generator_alone():
    (x,), optimizer = of_numbers(1.0, seed=0, temperature=1.0)
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    optimizer.step(lambda: x.sum())
    assert torch.equal(torch.rand(3), expected)


def test_a_schedule_of_gradless_is_a_temperature():
    (x,), optimizer = of_numbers(1.0, temperature=gl.anneal(1.0, 0.1, steps=10), seed=0)
    for _ in range(3):
        optimizer.step(lambda: x.square().sum())
    assert optimizer.n == 3


LOADER = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from gradless.pytorch import AMC

torch.manual_seed(0)
x = torch.randn(64, 2)
y = x.sum(1, keepdim=True)
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True)
model = torch.nn.Linear(2, 1)
optimizer = AMC(model, sigma=0.05, seed=0)
print((model(x) - y).square().mean().item())
for _ in range(60):
    for rows, targets in loader:
        optimizer.step(lambda: (model(rows) - targets).square().mean())
print((model(x) - y).square().mean().item())
"""


def test_it_trains_from_a_data_loader_that_forks_a_worker():
    """In a process of its own: JAX, which other tests have started in this one, warns of every fork."""
    command = [sys.executable, "-W", "error", "-c", LOADER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    before, after = map(float, done.stdout.split())
    assert after < before / 10


def test_a_closure_may_return_a_number_of_python():
    (x,), optimizer = of_numbers(1.0, seed=0)
    assert isinstance(optimizer.step(lambda: x.item() ** 2), float)


def test_a_loss_with_derivatives_by_its_inputs_works():
    model, x = nn.Linear(1, 1), torch.ones(3, 1, requires_grad=True)

    def loss():
        with torch.enable_grad():
            return torch.autograd.grad(model(x).sum(), x)[0].square().sum()

    AMC(model, seed=0).step(loss)
