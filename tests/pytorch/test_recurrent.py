"""lambda inside RNN, LSTM and GRU against nets unrolled by hand, step by step with single cells."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence

from gradless.pytorch import AMC

INPUTS, HIDDEN = 2, 3
KINDS = {
    "tanh": (nn.RNN, nn.RNNCell, {}),
    "relu": (nn.RNN, nn.RNNCell, {"nonlinearity": "relu"}),
    "lstm": (nn.LSTM, nn.LSTMCell, {}),
    "gru": (nn.GRU, nn.GRUCell, {}),
}


@pytest.fixture(autouse=True)
def in_float64():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


def lams(module, *inputs):
    optimizer = AMC(module, signal_norm=True, seed=0)
    optimizer.step(lambda: module(*inputs)[1][0].sum())  # the final states will do for a loss
    return {name: optimizer.state[parameter]["lam"] for name, parameter in module.named_parameters()}


def unroll(module, make_cell, options, sequences, h_0, c_0):
    """The lambda of each weight, from all sequences (each of shape (time, inputs)) run one by one by single cells."""
    directions = 2 if module.bidirectional else 1
    expected, signals = {}, list(sequences)
    for k in range(module.num_layers):
        outputs = [[] for _ in signals]
        for d in range(directions):
            suffix = f"_l{k}" + ("_reverse" if d else "")
            cell = make_cell(INPUTS if k == 0 else HIDDEN * directions, HIDDEN, **options, device="meta")
            weights = {name: getattr(module, f"{name}{suffix}") for name in dict(cell.named_parameters())}
            inputs, states = [], []
            for number, signal in enumerate(signals):
                h, c = h_0[k * directions + d, number], c_0[k * directions + d, number]
                hidden = []
                for x in signal.flip(0) if d else signal:
                    inputs.append(x)
                    states.append(h)
                    given = (x[None], (h[None], c[None])) if module.mode == "LSTM" else (x[None], h[None])
                    out = torch.func.functional_call(cell, weights, given)
                    h, c = (out[0][0], out[1][0]) if module.mode == "LSTM" else (out[0], c)
                    hidden.append(h)
                outputs[number].append(torch.stack(hidden).flip(0) if d else torch.stack(hidden))
            from_x, from_h = (torch.stack(rows).square().sum(1).mean() for rows in (inputs, states))
            for name, own in (("weight_ih", from_x), ("weight_hh", from_h)):
                both = (from_x + from_h).rsqrt()
                gates = torch.stack([both] * 2 * HIDDEN + [own.rsqrt()] * HIDDEN)[:, None]
                expected[name + suffix] = gates if module.mode == "GRU" else both
        signals = [torch.cat(parts, dim=1) for parts in outputs]
        if module.training and module.dropout and k < module.num_layers - 1:
            signals = list(F.dropout(torch.stack(signals, dim=1), module.dropout).unbind(1))
    return expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both ways"])
@pytest.mark.parametrize("form", ["time first", "batch first", "packed", "one sequence", "states given", "dropout"])
def test_lambda_is_that_of_the_unrolled_net(kind, num_layers, bidirectional, form):
    make, make_cell, options = KINDS[kind]
    layout = {"batch_first": form == "batch first", "dropout": 0.4 if form == "dropout" and num_layers > 1 else 0.0}
    module = make(INPUTS, HIDDEN, num_layers, bidirectional=bidirectional, **layout, **options)
    lengths = {"packed": [2, 4, 1], "one sequence": [5]}.get(form, [4, 4, 4])  # packed in another order than by length
    sequences = [torch.randn(length, INPUTS) for length in lengths]
    shape = (num_layers * (2 if bidirectional else 1), len(lengths), HIDDEN)
    h_0, c_0 = torch.zeros(2, *shape)
    if form in ("packed", "states given"):
        h_0, c_0 = torch.randn(2, *shape)
    given = {
        "packed": lambda: pack_sequence(sequences, enforce_sorted=False),
        "batch first": lambda: torch.stack(sequences),
        "one sequence": lambda: sequences[0],
    }.get(form, lambda: torch.stack(sequences, dim=1))()
    start = (h_0, c_0) if kind == "lstm" else h_0
    torch.manual_seed(5)
    expected = unroll(module, make_cell, options, sequences, h_0, c_0)
    torch.manual_seed(5)
    found = lams(module, given, start) if form in ("packed", "states given") else lams(module, given)
    for name, lam in expected.items():
        torch.testing.assert_close(found[name], lam, rtol=1e-12, atol=0)
    assert all(lam == 1 for name, lam in found.items() if "bias" in name)


def test_a_state_that_is_always_zero_counts_for_nothing():
    """One step from a state of zero: a GRU's candidate has no recurrent input at all, so lambda is 0 there."""
    module, x = nn.GRU(INPUTS, HIDDEN), torch.randn(1, 4, INPUTS)
    found = lams(module, x)
    assert found["weight_hh_l0"].flatten()[2 * HIDDEN :].tolist() == [0] * HIDDEN
    torch.testing.assert_close(found["weight_ih_l0"].flatten()[0], x.square().sum(-1).mean().rsqrt())


def test_the_projection_of_an_lstm_is_named_as_not_seen():
    module, x = nn.LSTM(INPUTS, HIDDEN, num_layers=2, proj_size=2), torch.randn(4, 5, INPUTS)
    with pytest.warns(UserWarning, match=r"inputs of weight_hr_l0, weight_hr_l1: lambda is 1"):
        found = lams(module, x)
    first = AMC(nn.LSTM(INPUTS, HIDDEN, proj_size=2))
    assert found["weight_ih_l1"] == found["weight_hh_l1"]
    assert first.n == 0
