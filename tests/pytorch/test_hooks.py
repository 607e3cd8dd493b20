"""The hooks of signal norm: in several models, inside torch.func, with inputs of unusual forms, and how long."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn

from gradless.pytorch import AMC


def lam_of(optimizer):
    return [state["lam"] for state in optimizer.state.values()]


def test_two_models_have_the_lambda_of_one_made_of_both():
    x = 10 * torch.randn(20, 4)
    body, head = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.Tanh()), nn.Linear(8, 1)
    whole = nn.Sequential(copy.deepcopy(body), copy.deepcopy(head))
    apart = AMC([{"params": body}, {"params": head}], signal_norm=True, seed=0)  # "1.weight" is the name of two weights
    apart.step(lambda: head(body(x)).square().mean())
    together = AMC(whole, signal_norm=True, seed=0)
    together.step(lambda: whole(x).square().mean())
    torch.testing.assert_close(lam_of(apart), lam_of(together))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_pass_over_single_samples_by_vmap_has_the_lambda_of_one_over_all(axis):
    model, x = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)), torch.randn(20, 3)
    twin = copy.deepcopy(model)
    single, whole = AMC(model, signal_norm=True, seed=0), AMC(twin, signal_norm=True, seed=0)
    rows = x if axis == 0 else x.T.contiguous()
    single.step(lambda: torch.func.vmap(model, in_dims=axis)(rows).square().mean())
    whole.step(lambda: twin(x).square().mean())
    torch.testing.assert_close(lam_of(single), lam_of(whole))


def test_a_loss_of_derivatives_by_vmap_and_grad_has_the_lambda_of_the_net():
    model, x = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)), torch.linspace(-1, 1, 20)[:, None]
    twin = copy.deepcopy(model)
    slopes = torch.func.vmap(torch.func.grad(lambda point: model(point).sum()))
    physics, plain = AMC(model, signal_norm=True, seed=0), AMC(twin, signal_norm=True, seed=0)
    physics.step(lambda: slopes(x).square().mean())
    plain.step(lambda: twin(x).square().mean())
    torch.testing.assert_close(lam_of(physics), lam_of(plain))


@pytest.mark.parametrize("layer", [nn.LSTM(3, 4), nn.LSTMCell(3, 4)], ids=["LSTM", "LSTMCell"])
def test_the_state_of_an_lstm_may_be_a_list(layer):
    x, h = torch.randn(2, 5, 3), torch.randn(1, 5, 4)
    x, h = (x, h) if isinstance(layer, nn.LSTM) else (x[0], h[0])
    twin = copy.deepcopy(layer)
    one, other = AMC(layer, signal_norm=True, seed=0), AMC(twin, signal_norm=True, seed=0)
    one.step(lambda: layer(x, [h, h])[0].sum())
    other.step(lambda: twin(x, (h, h))[0].sum())
    torch.testing.assert_close(lam_of(one), lam_of(other))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_sequences_of_several_lengths_count_their_own_rows_alone():
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 1).eval(), torch.randn(3, 5, 4)
    is_padding = torch.arange(5) >= torch.tensor([5, 3, 4])[:, None]
    optimizer = AMC(model, signal_norm=True, seed=0)
    optimizer.step(lambda: model(x, src_key_padding_mask=is_padding).square().mean())
    read = x[~is_padding].square().sum(1).mean().rsqrt()
    lam = optimizer.state[model.layers[0].self_attn.in_proj_weight]["lam"]
    torch.testing.assert_close(lam.flatten(), read.expand(12))


def layers_of_all_kinds():
    return nn.Sequential(nn.Linear(3, 4), nn.GRU(4, 4, num_layers=2), Only(), nn.Linear(4, 1))


class Only(nn.Module):
    """The first of several outputs."""

    def forward(self, outputs):
        return outputs[0]


def hooks_of(model):
    return sum(len(module._forward_pre_hooks) + len(module._forward_hooks) for module in model.modules())


def test_the_hooks_of_an_optimizer_go_with_it():
    model = layers_of_all_kinds()
    seen = []
    model[0].register_forward_pre_hook(lambda module, args: seen.append(module))  # the user's own stays
    first = AMC(model, signal_norm=True, seed=0)
    number = hooks_of(model)
    ears = [weakref.ref(hook) for hook in model[1]._forward_hooks.values()]
    for _ in range(20):
        second = AMC(model, signal_norm=True, seed=0)
        second.step(lambda: model(torch.ones(5, 2, 3)).square().mean())
    assert hooks_of(model) == 2 * number - 1
    del second
    gc.collect()
    assert hooks_of(model) == number
    first.step(lambda: model(torch.ones(5, 2, 3)).square().mean())
    assert first.state[model[0].weight]["lam"] == pytest.approx(3**-0.5)
    del first
    gc.collect()
    assert hooks_of(model) == 1
    assert not model[0]._forward_pre_hooks_with_kwargs
    assert [ear() for ear in ears] == [None]
    seen.clear()
    model(torch.ones(5, 2, 3))
    assert seen == [model[0]]


def test_an_optimizer_and_the_model_that_holds_it_go_together():
    model = layers_of_all_kinds()
    model.optimizer = AMC(model, signal_norm=True, seed=0)
    model[0].weight.optimizer = model.optimizer
    gone = [weakref.ref(model), weakref.ref(model.optimizer), weakref.ref(model.optimizer._signals)]
    del model
    gc.collect()
    assert [one() for one in gone] == [None] * 3


def pickled(model):
    return pickle.loads(pickle.dumps(model))  # noqa: S301, it is our own


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_a_copy_of_a_model_is_whole_when_the_optimizer_is_gone(copied):
    model, x = layers_of_all_kinds(), torch.ones(5, 2, 3)
    optimizer = AMC(model, signal_norm=True, seed=0)
    twin = copied(model)
    del optimizer
    gc.collect()
    assert hooks_of(model) == 0
    assert hooks_of(copied(model)) == 0
    torch.testing.assert_close(twin(x), model(x))
    AMC(twin, signal_norm=True, seed=0).step(lambda: twin(x).square().mean())
