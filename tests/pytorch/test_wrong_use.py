"""Wrong use of the optimizer: one clear line."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from gradless.pytorch import AMC

X = nn.Parameter(torch.ones(1))


@pytest.mark.parametrize("closure", [None, 3])
def test_a_missing_closure_is_an_error(closure):
    optimizer = AMC([X])
    with pytest.raises(TypeError, match=r"step needs a function that returns the loss, opt.step\(closure\), got"):
        optimizer.step(closure)


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (None, "None"),
        ("1.5", "'1.5'"),
        (torch.ones(2), r"torch\.float32, shape \(2,\)"),
        (np.zeros(3), r"float64, shape \(3,\)"),
        (torch.tensor(1j), r"torch\.complex64, shape \(\)"),
    ],
)
def test_a_closure_without_one_number_is_an_error(result, shown):
    optimizer = AMC([X])
    with pytest.raises(TypeError, match=f"the closure must return the loss, one real number, got {shown}"):
        optimizer.step(lambda: result)


def test_a_loss_may_be_an_array_of_one_number():
    assert AMC([X]).step(lambda: np.array([1.5])) == 1.5


def test_a_schedule_that_raises_leaves_the_net_where_it_was():
    model = nn.Linear(4, 1)
    before = model.weight.detach().clone()
    optimizer = AMC(model, sigma=0.1, temperature=lambda n: 1 / n, seed=0)
    with pytest.raises(ZeroDivisionError):
        optimizer.step(lambda: model.weight.square().sum())
    assert torch.equal(model.weight, before)


def test_backward_in_the_closure_is_an_error_that_says_so():
    optimizer = AMC([X])

    def closure():
        loss = X.square().sum()
        loss.backward()
        return loss

    with pytest.raises(RuntimeError, match=r"backward\(\) in it has nothing to do"):
        optimizer.step(closure)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sigma": -1.0}, "sigma must be positive, got -1.0"),
        ({"sigma": [1.0, 2.0]}, r"sigma must be one number, got shape \(2,\)"),
        ({"epsilon": 2}, "epsilon must be between -1 and 1, got 2"),
        ({"n_s": 0}, "n_s must be a whole number of at least 1, or inf, got 0"),
        ({"sigma_decay": 1.5}, "sigma_decay must be above 0 and at most 1, got 1.5"),
        ({"temperature": -1}, "temperature must be zero or positive, got -1"),
        ({"signal_norm": 1}, "signal_norm must be True or False, got 1"),
        ({"fixed_batch": "yes"}, "fixed_batch must be True or False, got 'yes'"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        AMC([X], **settings)
    assert "\n" not in str(caught.value)


def test_wrong_groups_are_refused():
    with pytest.raises(ValueError, match="sigma must be positive, got 0"):
        AMC([{"params": [X], "sigma": 0}])
    with pytest.raises(ValueError, match=r"a parameter group may set sigma, .*, got temperature"):
        AMC([{"params": [X], "temperature": 0.1}])
    with pytest.raises(ValueError, match=r"parameters must be floating-point numbers, got torch\.complex64"):
        AMC([torch.zeros(1, dtype=torch.complex64)])
    with pytest.raises(
        ValueError, match=r"parameters must be dense, got torch.sparse_coo: give parameter.to_dense\(\)"
    ):
        AMC([torch.eye(2).to_sparse()])
    with pytest.raises(ValueError, match=r"memory of their own, got one expanded to \(3, 2\)"):
        AMC([torch.zeros(2).expand(3, 2)])


def with_weight(weight):
    """A layer that hooks go on and a table with padding, one of whose parameters will be refused."""
    model = nn.Sequential(nn.Embedding(3, 2, padding_idx=0), nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[1].weight = weight if weight is X else nn.Parameter(weight, requires_grad=weight.is_floating_point())
    return model


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (torch.eye(2, dtype=torch.complex64), "parameters must be floating-point numbers"),
        (torch.eye(2).to_sparse(), "parameters must be dense"),
        (torch.zeros(2).expand(2, 2), "memory of their own"),
        (X, "some parameters appear in more than one parameter group"),  # is PyTorch's own
    ],
    ids=["complex", "sparse", "expanded", "known"],
)
@pytest.mark.parametrize("listed", [lambda model: model, lambda model: model.parameters()], ids=["model", "parameters"])
def test_a_group_that_is_refused_leaves_nothing_behind(weight, words, listed):
    known, model = nn.Linear(2, 1), with_weight(weight)
    known.bias = X
    optimizer = AMC(known, seed=0)
    before = optimizer.state_dict()
    with pytest.raises(ValueError, match=words):
        optimizer.add_param_group({"params": listed(model), "signal_norm": listed(model) is model})
    assert len(optimizer.param_groups) == 1
    assert optimizer.state_dict()["param_groups"] == before["param_groups"]
    assert (optimizer._models, optimizer._padding, optimizer._signals.names) == ([known], {}, {})
    assert all(not one._forward_pre_hooks for one in model.modules())
    right = nn.Linear(2, 1)
    optimizer.add_param_group({"params": right, "signal_norm": True})
    optimizer.step(lambda: right(torch.ones(1, 2)).square().sum())
    assert optimizer.state[right.weight]["lam"] == pytest.approx(2**-0.5)


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_scheduler_of_learning_rates_is_told_what_to_do(is_loaded):
    optimizer = AMC([nn.Parameter(torch.ones(1))])
    if is_loaded:
        optimizer.load_state_dict(optimizer.state_dict())
    with pytest.raises(KeyError, match=r"AMC has no learning rate .* sigma shrinks by itself, or set param_groups"):
        torch.optim.lr_scheduler.StepLR(optimizer, 10)
    with pytest.raises(KeyError, match="'momentum'"):
        optimizer.param_groups[0]["momentum"]


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_a_copy_is_refused_and_the_way_out_named(copied):
    with pytest.raises(TypeError, match=r"take its state_dict\(\)"):
        copied(AMC([X]))


def test_without_torch_one_clear_line_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None\nimport gradless.pytorch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    last = done.stderr.strip().splitlines()[-1]
    assert last == "ModuleNotFoundError: gradless.pytorch needs PyTorch: pip install 'gradless[torch]'"
    assert done.stderr.count("Traceback") == 1
