"""The sum of squares that the neurons of one layer receive, for each kind of layer.

Paper: Sec. III B, Eq. (17), the bracket: mean over data of the sum over the neuron's inputs of S_i^2. Each function
gives, for one call of a layer, the sums of its weights by name, in a shape that broadcasts to the weight.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Sums = dict[str, Tensor]


def square(x: Tensor) -> Tensor:
    """x^2 in float32 or wider, whatever the precision of the activations."""
    return x.detach().to(torch.promote_types(x.dtype, torch.float32)).square()


def without_autocast(x: Tensor) -> Any:
    """Return a context that leaves float32 as it is: sums of squares are soon beyond half precision."""
    return torch.autocast(x.device.type, enabled=False)


def mean_sum(x: Tensor) -> Tensor:
    """Return the sum of squares along the last axis, averaged over all others.

    The norm of each row takes no copy of the inputs and, on a CPU, a quarter of the time of `square(x).sum()`; one norm
    of everything would be off by 4e-3 for 60,000 rows of 784 in float32.
    """
    x = torch.cat(x.unbind()) if x.is_nested else x  # sequences of several lengths: the rows of all
    wide = torch.promote_types(x.dtype, torch.float32)
    rows = torch.linalg.vector_norm(x.detach(), dim=-1, dtype=wide)
    return rows.square().sum() / max(1, rows.numel())


def mean_over_vmap(total: Tensor) -> Tensor:
    """Return a sum taken inside `torch.func.vmap` or `grad` as a plain tensor, the mean over what vmap goes over."""
    if torch.compiler.is_compiling():  # which traces what vmap does by itself, and cannot look into wrapped tensors
        return total
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(total):
        axis = functorch.maybe_get_bdim(total)
        total = functorch.get_unwrapped(total)
        total = total if axis < 0 else total.mean(axis)
    return total


def linear(layer: Any, input: Tensor) -> Sums:
    return {"weight": mean_sum(input)}


def bilinear(layer: Any, input1: Tensor, input2: Tensor) -> Sums:
    """The input of weight (k, i, j) is the product of input i on one side and input j on the other."""
    sums = square(input1).sum(-1) * square(input2).sum(-1)
    return {"weight": sums.sum() / max(1, sums.numel())}


def convolution(layer: Any, input: Tensor) -> Sums:
    """The mean over positions of the sum over the receptive field, for each group of channels."""
    window = torch.ones(layer.groups, 1, *layer.kernel_size, dtype=square(input[:0]).dtype, device=input.device)
    with without_autocast(input):
        fields = layer._conv_forward(_by_group(layer, input), window, None)  # strides, dilation and padding are its own
    return {"weight": _to_weight(layer, fields, layer.out_channels)}


def transposed_convolution(layer: Any, input: Tensor, output_size: list[int] | None = None) -> Sums:
    """As for a convolution; the receptive field of an output is what the kernel spreads to it."""
    squares = _by_group(layer, input)
    dims = len(layer.kernel_size)
    added = layer._output_padding(
        squares, output_size, layer.stride, layer.padding, layer.kernel_size, dims, layer.dilation
    )
    window = torch.ones(layer.groups, 1, *layer.kernel_size, dtype=squares.dtype, device=squares.device)
    spread = (nn.functional.conv_transpose1d, nn.functional.conv_transpose2d, nn.functional.conv_transpose3d)[dims - 1]
    with without_autocast(input):
        fields = spread(squares, window, None, layer.stride, layer.padding, added, layer.groups, layer.dilation)
    return {"weight": _to_weight(layer, fields, layer.in_channels)}


def _by_group(layer: Any, input: Tensor) -> Tensor:
    """Squares added over each group's channels and averaged over the samples: (1, groups, positions...)."""
    squares = square(input)
    if input.dim() == 1 + len(layer.kernel_size):
        squares = squares[None]
    if not len(squares):  # no samples: no signal, and not 0/0
        squares = squares.new_zeros(1, *squares.shape[1:])
    return squares.unflatten(1, (layer.groups, -1)).sum(2).mean(0, keepdim=True)


def _to_weight(layer: Any, fields: Tensor, num_rows: int) -> Tensor:
    """One number for each group, repeated for the rows of the weight that belong to it."""
    means = fields.flatten(2).mean(2).flatten()
    return means.repeat_interleave(num_rows // layer.groups).reshape(-1, 1, *(1 for _ in layer.kernel_size))


def attention(
    layer: nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor, *more: Any, **others: Any
) -> Sums:
    """The projections read query, key and value; the output projection reads what the heads have gathered.

    That is nowhere to be seen from outside, so the attention is computed a second time with the identity in place of
    the output projection, under the same random numbers.
    """
    means = [mean_sum(x) for x in (query, key, value)]
    if layer.in_proj_weight is None:
        sums = dict(zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), means, strict=True))
    else:
        sums = {"in_proj_weight": torch.stack(means).repeat_interleave(layer.embed_dim)[:, None]}
    weight, bias = layer.out_proj.weight, layer.out_proj.bias
    plain = {"out_proj.weight": torch.eye(layer.embed_dim, dtype=weight.dtype, device=weight.device)}
    if bias is not None:
        plain["out_proj.bias"] = torch.zeros_like(bias)
    devices = [query.device] if query.is_cuda else []
    with torch.random.fork_rng(devices):
        gathered, _ = torch.func.functional_call(layer, plain, (query, key, value, *more), others)
    return {**sums, "out_proj.weight": mean_sum(gathered)}


def cell(layer: nn.RNNCellBase, input: Tensor, hx: Any = None) -> Sums:
    """All weights into one neuron share one sum, input and recurrent weights together."""
    state = hx[0] if isinstance(hx, tuple | list) else hx
    from_input = mean_sum(input)
    from_state = torch.zeros_like(from_input) if state is None else mean_sum(state)
    return shared(from_input, from_state, "weight_ih", "weight_hh", layer if isinstance(layer, nn.GRUCell) else None)


def shared(from_input: Tensor, from_state: Tensor, name_input: str, name_state: str, gru: Any = None) -> Sums:
    """Return one sum for both weights of a recurrent layer.

    The candidate of a GRU adds x W + r (h W): the gate r stands between, so the last third of each has its own.
    """
    both = from_input + from_state
    if gru is None:
        return {name_input: both, name_state: both}
    gates = both.expand(2 * gru.hidden_size)
    return {
        name: torch.cat([gates, own.expand(gru.hidden_size)])[:, None]
        for name, own in ((name_input, from_input), (name_state, from_state))
    }


LAYERS: dict[type[nn.Module], Callable[..., Sums]] = {
    nn.Linear: linear,
    nn.Bilinear: bilinear,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), convolution),
    **dict.fromkeys((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), transposed_convolution),
    **dict.fromkeys((nn.RNNCell, nn.LSTMCell, nn.GRUCell), cell),
    nn.MultiheadAttention: attention,
}
