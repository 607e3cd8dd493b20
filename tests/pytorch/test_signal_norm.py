"""lambda of every kind of layer against sums taken by hand, neuron by neuron."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gradless.pytorch import AMC


@pytest.fixture(autouse=True)
def in_float64():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


def lams(model, *inputs, **settings):
    """lambda after one pass, by name; a single 1 where none was set."""
    optimizer = AMC(model, signal_norm=True, seed=0, **settings)
    optimizer.step(lambda: torch.stack([part.sum() for part in _tensors(model(*inputs))]).sum())
    return {name: optimizer.state[parameter]["lam"] for name, parameter in model.named_parameters()}


def _tensors(output):
    if isinstance(output, torch.Tensor):
        return [output]
    if hasattr(output, "batch_sizes"):
        return [output.data]
    return [tensor for part in output if part is not None for tensor in _tensors(part)]


def check_layer(layer, *inputs, feature):
    """Compare lambda of `layer.weight` with sums of squared derivatives; `feature` is the output's axis of neurons.

    The output is linear in the weights, so its derivative by a weight is that weight's input.
    """

    def output_of(weight):
        return torch.func.functional_call(layer, {"weight": weight}, inputs).movedim(feature, 0)

    jacobian = torch.autograd.functional.jacobian(output_of, layer.weight.detach(), vectorize=True)
    squares = jacobian.square().reshape(jacobian.shape[0], -1, *layer.weight.shape)  # (neuron, position, weight...)
    fan_in = squares.flatten(2).sum(2).mean(1)
    feeds = squares.sum(1) > 0
    lam = lams(layer, *inputs)["weight"].expand(layer.weight.shape)
    for neuron in range(len(squares)):
        torch.testing.assert_close(lam[feeds[neuron]], fan_in[neuron].rsqrt().expand(int(feeds[neuron].sum())))


@pytest.mark.parametrize("shape", [(7, 3), (2, 5, 3), (3,)])
def test_linear(shape):
    check_layer(nn.Linear(3, 4), torch.randn(shape), feature=len(shape) - 1)


def test_linear_by_a_known_number():
    """theta from 0 to 1 in 1000 points: the mean of theta^2 is 1999/5994. Paper: the nets of Sec. II."""
    found = lams(nn.Linear(1, 4), torch.linspace(0, 1, 1000)[:, None])
    torch.testing.assert_close(found["weight"], torch.tensor((1999 / 5994) ** -0.5))
    assert found["bias"] == 1


def test_bilinear():
    check_layer(nn.Bilinear(2, 3, 4), torch.randn(6, 2), torch.randn(6, 3), feature=1)


CONVOLUTIONS = {
    "plain": {},
    "stride": {"stride": 2},
    "padding": {"padding": 1},
    "same": {"padding": "same", "dilation": 2},
    "dilation": {"dilation": 2, "stride": 2, "padding": 2},
    "groups": {"groups": 2, "padding": 1},
    "depthwise": {"groups": 4},
    "reflect": {"padding": 1, "padding_mode": "reflect", "stride": 2},
    "circular": {"padding": 1, "padding_mode": "circular", "groups": 2},
    "replicate": {"padding": 1, "padding_mode": "replicate", "stride": 2},
}


@pytest.mark.parametrize("options", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
@pytest.mark.parametrize(("kind", "dims"), [(nn.Conv1d, 1), (nn.Conv2d, 2), (nn.Conv3d, 3)])
def test_convolutions(kind, dims, options):
    check_layer(kind(4, 4, 3, **options), torch.randn(2, 4, *[5, 4, 5][:dims]), feature=1)


def test_a_convolution_of_one_image():
    check_layer(nn.Conv2d(2, 4, (1, 3), groups=2), torch.randn(2, 4, 5), feature=0)


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_a_convolution_of_no_images_has_lambda_0(kind):
    assert (lams(kind(1, 2, 3), torch.ones(0, 1, 5, 5))["weight"] == 0).all()


@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2, "dilation": 2}]
)
@pytest.mark.parametrize(("kind", "dims"), [(nn.ConvTranspose1d, 1), (nn.ConvTranspose2d, 2), (nn.ConvTranspose3d, 3)])
def test_transposed_convolutions(kind, dims, options):
    layer, x = kind(4, 2, 3, **options), torch.randn(2, 4, *[3, 4, 3][:dims])
    ones = kind(4, 2, 3, bias=False, **options)
    with torch.no_grad():
        ones.weight.fill_(1)
        fields = ones(x.square())  # each output neuron adds up what reaches it
    groups = options.get("groups", 1)
    means = fields.mean(dim=(0, *range(2, fields.dim()))).reshape(groups, -1)[:, 0]
    expected = means.repeat_interleave(4 // groups).rsqrt().reshape(-1, 1, *[1] * dims)
    torch.testing.assert_close(lams(layer, x)["weight"], expected)


def test_a_transposed_convolution_with_the_size_of_its_output_given():
    layer, x = nn.ConvTranspose1d(1, 1, 3, stride=2), torch.ones(1, 1, 2)
    optimizer = AMC(layer, signal_norm=True)
    optimizer.step(lambda: layer(x, output_size=[6]).sum())
    # Two inputs of 1 reach 3 outputs each, 6 contributions on 6 outputs; without a size there would be 5.
    torch.testing.assert_close(optimizer.state[layer.weight]["lam"].flatten(), torch.ones(1))


@pytest.mark.parametrize("kind", [nn.RNNCell, nn.LSTMCell, nn.GRUCell])
def test_cells_share_one_sum_between_input_and_state(kind):
    cell, x, h = kind(2, 3), torch.randn(5, 2), torch.randn(5, 3)
    found = lams(cell, x, (h, torch.randn(5, 3)) if kind is nn.LSTMCell else h)
    from_x, from_h = x.square().sum(1).mean(), h.square().sum(1).mean()
    if kind is nn.GRUCell:  # the gate r stands between the two parts of the candidate
        rows = [*[from_x + from_h] * 6, *[from_x] * 3], [*[from_x + from_h] * 6, *[from_h] * 3]
        torch.testing.assert_close(found["weight_ih"].flatten(), torch.stack(rows[0]).rsqrt())
        torch.testing.assert_close(found["weight_hh"].flatten(), torch.stack(rows[1]).rsqrt())
    else:
        torch.testing.assert_close(found["weight_ih"], (from_x + from_h).rsqrt())
        torch.testing.assert_close(found["weight_hh"], (from_x + from_h).rsqrt())
    assert found["bias_ih"] == found["bias_hh"] == 1


def test_a_cell_without_a_state_counts_its_input_alone():
    cell, x = nn.RNNCell(2, 3), torch.randn(5, 2)
    torch.testing.assert_close(lams(cell, x)["weight_hh"], x.square().sum(1).mean().rsqrt())


@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize("options", [{}, {"kdim": 3, "vdim": 5}, {"bias": False, "batch_first": True}])
def test_attention(options, is_training):
    """What the heads gather, also with dropout in them, is found from the output of the closure's own pass."""
    attend = nn.MultiheadAttention(4, 2, dropout=0.3, **options).train(is_training)
    sizes = (4, options.get("kdim", 4), options.get("vdim", 4))
    query, key, value = (torch.randn(6, 7, size) for size in sizes)
    projection, outputs = attend.out_proj.weight.detach().clone(), []
    optimizer = AMC(attend, signal_norm=True, seed=0)
    optimizer.step(lambda: outputs.append(attend(query, key, value)[0]) or outputs[-1].sum())
    found = {name: optimizer.state[parameter]["lam"] for name, parameter in attend.named_parameters()}
    sums = [x.square().sum(-1).mean().rsqrt() for x in (query, key, value)]
    if "kdim" in options:
        for name, expected in zip("qkv", sums, strict=True):
            torch.testing.assert_close(found[f"{name}_proj_weight"], expected)
    else:
        torch.testing.assert_close(found["in_proj_weight"], torch.stack(sums).repeat_interleave(4)[:, None])
    gathered = outputs[0] @ torch.linalg.inv(projection).T  # the bias of the projection starts at 0
    torch.testing.assert_close(found["out_proj.weight"], gathered.square().sum(-1).mean().rsqrt())
    assert all(lam == 1 for name, lam in found.items() if "bias" in name)


def test_attention_with_a_mask_given_by_its_place():
    attend, x, mask = nn.MultiheadAttention(4, 2), torch.randn(5, 2, 4), torch.zeros(2, 5, dtype=torch.bool)
    mask[:, 3:] = True
    twin = copy.deepcopy(attend)
    found = lams(attend, x, x, x, mask)
    optimizer = AMC(twin, signal_norm=True, seed=0)
    optimizer.step(lambda: sum(part.sum() for part in twin(x, x, x, key_padding_mask=mask)))
    expected = {name: optimizer.state[parameter]["lam"] for name, parameter in twin.named_parameters()}
    torch.testing.assert_close(found, expected)


def test_the_output_projection_of_attention_reads_what_the_heads_gather():
    """One head, all keys equal: attention is uniform and gathers the mean of the projected values."""
    attend = nn.MultiheadAttention(3, 1, bias=False)
    key, value = torch.ones(5, 2, 3), torch.randn(5, 2, 3)
    gathered = value.mean(0, keepdim=True) @ attend.in_proj_weight[6:].T
    expected = gathered.square().sum(-1).mean().rsqrt()
    torch.testing.assert_close(lams(attend, torch.randn(4, 2, 3), key, value)["out_proj.weight"], expected)


def test_the_closure_s_own_pass_is_not_disturbed_by_listening():
    """Dropout, in attention and between recurrent layers, is drawn as without signal norm."""
    x, seen = torch.randn(3, 2, 4), []
    model = nn.ModuleList([nn.MultiheadAttention(4, 2, dropout=0.5), nn.RNN(4, 4, num_layers=3, dropout=0.5)])

    def loss():
        seen.append(model[1](model[0](x, x, x)[0])[0].sum())
        return seen[-1]

    for signal_norm in (False, True):
        torch.manual_seed(1)
        AMC(model, signal_norm=signal_norm, sigma=1e-12, seed=0).step(loss)
    torch.testing.assert_close(seen[0], seen[2])  # other masks would change it by something like 1
    torch.testing.assert_close(seen[0], seen[1])  # and x' was seen under the same masks as x


def test_an_embedding_has_lambda_1():
    assert lams(nn.Embedding(4, 3, padding_idx=2), torch.tensor([0, 1]))["weight"] == 1
    assert lams(nn.EmbeddingBag(4, 3), torch.tensor([[0, 1]]))["weight"] == 1


def test_weights_with_vanishing_inputs_have_lambda_0():
    assert lams(nn.Linear(3, 2), torch.zeros(4, 3))["weight"] == 0
    assert lams(nn.Linear(3, 2), torch.full((4, 3), 1e-200))["weight"] == 0  # squares below the smallest number


def test_layers_are_found_wherever_they_are_nested():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleDict({"a": nn.ModuleList([nn.Linear(2, 2), nn.LayerNorm(2)])})

        def forward(self, x):
            return self.parts["a"][1](self.parts["a"][0](x))

    model, x = nn.Sequential(Block(), nn.Sequential(Block())), torch.randn(5, 2)
    inner = model[0](x)
    found = lams(model, x)
    torch.testing.assert_close(found["0.parts.a.0.weight"], x.square().sum(1).mean().rsqrt())
    torch.testing.assert_close(found["1.0.parts.a.0.weight"], inner.square().sum(1).mean().rsqrt())
    assert found["1.0.parts.a.1.weight"] == found["1.0.parts.a.1.bias"] == 1


def test_a_shared_layer_and_tied_weights_have_the_mean_of_their_uses():
    shared, x = nn.Linear(3, 3, bias=False), torch.randn(5, 3)
    twice = nn.Sequential(shared, nn.Tanh(), shared)
    tied = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh(), nn.Linear(3, 3, bias=False))
    tied[2].weight = tied[0].weight = shared.weight
    mean = (x.square().sum(1).mean() + shared(x).tanh().square().sum(1).mean()) / 2
    for model in (copy.deepcopy(twice), tied):
        torch.testing.assert_close(lams(model, x)["0.weight"], mean.rsqrt())


def test_an_embedding_tied_to_a_linear_layer_has_the_lambda_of_the_layer():
    model = nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 4, bias=False))
    model[1].weight = model[0].weight
    tokens = torch.tensor([0, 2])
    expected = model[0](tokens).square().sum(1).mean().rsqrt()
    torch.testing.assert_close(lams(model, tokens)["0.weight"], expected)


class Odd(nn.Module):
    """A layer of one's own, which no hook can read, and one that is never called."""

    def __init__(self):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(3, 3))
        self.layer, self.spare = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x) @ self.kernel


def test_parameters_that_cannot_be_placed_are_named_in_one_warning():
    model, x = Odd(), torch.randn(4, 3)
    optimizer = AMC(model, signal_norm=True)
    with pytest.warns(UserWarning, match=r"not seen the inputs of kernel, spare.weight: lambda is 1 there") as caught:
        optimizer.step(lambda: model(x).sum())
    assert len(caught) == 1
    assert optimizer.state[model.kernel]["lam"] == 1
    assert optimizer.state[model.layer.weight]["lam"] != 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step(lambda: model(x).sum())


def test_a_layer_with_a_forward_of_its_own_is_not_read():
    class Scaled(nn.Linear):
        def forward(self, x, by):
            return super().forward(by * x)

    layer, x = Scaled(3, 2), torch.randn(4, 3)
    optimizer = AMC(layer, signal_norm=True)
    with pytest.warns(UserWarning, match="not seen the inputs of weight, bias: lambda is 1 there"):
        optimizer.step(lambda: layer(x, 2.0).sum())


@pytest.mark.parametrize("normed", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm])
def test_a_weight_that_is_computed_from_others_is_not_read(normed):
    layer, x = normed(nn.Linear(3, 2)), torch.randn(4, 3)
    optimizer = AMC(layer, signal_norm=True)
    with pytest.warns(UserWarning, match="not seen the inputs of parametrizations.weight.original"):
        optimizer.step(lambda: layer(x).sum())
    assert all(optimizer.state[parameter]["lam"] == 1 for parameter in layer.parameters())


def test_a_weight_that_was_frozen_has_its_lambda_from_the_first_step_that_moves_it():
    layer, x = nn.Linear(3, 2), torch.randn(4, 3)
    layer.weight.requires_grad_(False)
    optimizer = AMC(layer, sigma=1e3, signal_norm=True, fixed_batch=True, seed=0)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.zero_()
    for _ in range(3):  # at the minimum: all moves are rejected
        optimizer.step(lambda: layer(x).square().sum())
    layer.weight.requires_grad_(True)
    optimizer.step(lambda: layer(x).square().sum())
    assert optimizer.num_accepted == 0
    torch.testing.assert_close(optimizer.state[layer.weight]["lam"], x.square().sum(-1).mean().rsqrt())
    layer.weight.requires_grad_(False)
    optimizer.step(lambda: layer(x).square().sum())
    assert "lam" not in optimizer.state[layer.weight]


def test_lambda_is_that_of_x_after_a_rejection_and_that_of_the_new_x_after_an_acceptance():
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1)), torch.randn(4, 3)
    optimizer, left = AMC(model, sigma=0.5, signal_norm=True, fixed_batch=True, seed=0), [2.0, 3.0, 2.0, 1.0]

    def loss():
        model(x)
        return left.pop(0)

    def inner():
        return model[0](x).square().sum(1).mean().rsqrt()

    before = inner()
    optimizer.step(loss)  # 2 -> 3, rejected
    torch.testing.assert_close(optimizer.state[model[1].weight]["lam"], before)
    optimizer.step(loss)  # looked at again, 2; 2 -> 1, accepted
    torch.testing.assert_close(optimizer.state[model[1].weight]["lam"], inner())
    assert abs(inner() - before) > 1e-3


def test_on_minibatches_lambda_is_that_of_the_present_one():
    layer, x = nn.Linear(3, 1), torch.randn(4, 3)
    optimizer = AMC(layer, signal_norm=True, seed=0)
    for scale in (1.0, 10.0):
        optimizer.step(lambda scale=scale: layer(scale * x).square().sum())
        expected = x.square().sum(1).mean().rsqrt() / scale
        torch.testing.assert_close(optimizer.state[layer.weight]["lam"], expected)


def test_inputs_in_half_precision_are_squared_in_float32():
    model = nn.Linear(2, 2, dtype=torch.float16)
    x = torch.full((3, 2), 300.0, dtype=torch.float16)  # 300^2 is beyond float16
    lam = lams(model, x)["weight"]
    assert lam.dtype == torch.float32
    torch.testing.assert_close(lam, torch.tensor(180_000.0, dtype=torch.float32).rsqrt())


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_squares_are_added_in_float32_under_autocast_too(kind):
    layer, x = kind(1, 2, 1, dtype=torch.float32), torch.full((3, 1, 2, 2), 300.0, dtype=torch.float32)
    with torch.autocast("cpu", torch.float16):
        lam = lams(layer, x)["weight"]
    torch.testing.assert_close(lam, torch.full_like(lam, 1 / 300))


def test_arguments_given_by_name_are_read_too():
    layer, x = nn.Linear(3, 2), torch.randn(4, 3)
    optimizer = AMC(layer, signal_norm=True)
    optimizer.step(lambda: layer(input=x).sum())
    torch.testing.assert_close(optimizer.state[layer.weight]["lam"], x.square().sum(1).mean().rsqrt())


def test_hooks_listen_only_while_their_own_optimizer_looks():
    layer, x = nn.Linear(3, 2), torch.randn(4, 3)
    optimizer = AMC(layer, signal_norm=True, fixed_batch=True, sigma=1e-9)
    optimizer.step(lambda: (layer(x) ** 2).sum())
    lam = optimizer.state[layer.weight]["lam"].clone()
    layer(100 * x)
    optimizer.step(lambda: (layer(x) ** 2).sum())
    torch.testing.assert_close(optimizer.state[layer.weight]["lam"], lam)


def test_a_model_with_hooks_can_be_copied_and_pickled():
    model = nn.Sequential(nn.Linear(3, 2), nn.LSTM(2, 2))
    AMC(model, signal_norm=True)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301 (our own bytes)
        x = torch.randn(4, 3)
        torch.testing.assert_close(twin(x)[0], model(x)[0])


def test_a_transformer_is_read_in_training_and_in_evaluation():
    """In evaluation PyTorch would leave its layers out of a fast path of its own; with hooks it does not."""
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        x = torch.randn(3, 5, 4)
        padded = torch.tensor([[False] * 5, [False] * 4 + [True], [False] * 5])
        found = [lams(copy.deepcopy(model).train(mode), x, None, padded if mode else None) for mode in (True, False)]
        plain = lams(copy.deepcopy(model).train(), x)
    for name, lam in plain.items():
        torch.testing.assert_close(found[1][name], lam)
    assert all("weight" not in name or "norm" in name or (lam != 1).any() for name, lam in found[0].items())


def test_signal_norm_needs_the_model():
    layer = nn.Linear(3, 2)
    with pytest.raises(ValueError, match=r"signal_norm=True needs the model itself, AMC\(model, ...\), got bare"):
        AMC(layer.parameters(), signal_norm=True)


def test_a_group_without_signal_norm_keeps_lambda_1():
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)), torch.randn(4, 3)
    groups = [{"params": model[0]}, {"params": model[1], "signal_norm": False}]
    optimizer = AMC(groups, signal_norm=True)
    optimizer.step(lambda: F.relu(model(x)).sum())
    assert "lam" in optimizer.state[model[0].weight]
    assert "lam" not in optimizer.state[model[1].weight]
