"""What the optimizer holds: one copy of the parameters, and mu when epsilon is not 0. Paper: Sec. III A, at its end."""

import gc

import pytest
import torch
from torch import nn

from gradless.pytorch import AMC


@pytest.fixture(autouse=True)
def only_what_is_new():
    """Leave the millions of objects of earlier tests out of sight: to look through them takes a second each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def bytes_alive():
    """The memory of all tensors of this test that Python can reach, each storage once."""
    tensors = [thing for thing in gc.get_objects() if type(thing) in (torch.Tensor, nn.Parameter)]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


@pytest.mark.parametrize(("epsilon", "copies"), [(0.0, 1), (0.1, 2)])
@pytest.mark.parametrize("fixed_batch", [False, True])
def test_parameters_plus_one_copy_plus_mu(epsilon, copies, fixed_batch):
    """Looked at from inside the closure, at x' too, where everything is held at once."""
    torch.manual_seed(0)
    model, x = nn.Sequential(*[nn.Linear(100, 100) for _ in range(5)]), torch.ones(1, 100)
    size = sum(4 * parameter.numel() for parameter in model.parameters())
    before = bytes_alive()
    optimizer = AMC(model, epsilon=epsilon, signal_norm=True, fixed_batch=fixed_batch, seed=0)
    held = []

    def loss():
        held.append(bytes_alive() - before)
        return model(x).sum()  # about linear: half of the moves are accepted

    for _ in range(6):
        optimizer.step(loss)
    assert optimizer.num_accepted > 0
    # Beside the copies: lambda, one number for each layer, and states of generators of 5 kB.
    assert copies * size <= max(held) < (copies + 0.2) * size
    assert bytes_alive() - before < (copies + 0.2) * size
