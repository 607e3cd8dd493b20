"""The sums of squares inside RNN, LSTM and GRU, layer by layer and direction by direction."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from gradless.pytorch.sums import Sums, mean_sum, shared, square

RECURRENT: tuple[type[nn.RNNBase], ...] = (nn.RNN, nn.LSTM, nn.GRU)
RUN: dict[str, Any] = {"RNN_TANH": torch.rnn_tanh, "RNN_RELU": torch.rnn_relu, "LSTM": torch.lstm, "GRU": torch.gru}


class Sequences(NamedTuple):
    """Signals in time: (time, sequence, feature), or the rows of a packed sequence with the lengths in `sizes`."""

    rows: Tensor
    sizes: Tensor | None = None


def recurrent(module: nn.RNNBase, input: Any, hx: Any = None, *, output: Any) -> Sums:
    """Return the sums of every layer: mean over time and sequences of |x_t|^2 + |h_(t-1)|^2.

    The top layer's states are the module's output. Those of the layers below are nowhere to be seen, so these layers
    are run a second time; with dropout between layers, PyTorch's generators must stand where the module found them.
    """
    x, hx = _inputs(module, input, hx)
    top = _sequences(module, output[0])
    sums: Sums = {}
    gru = module if isinstance(module, nn.GRU) else None
    directions = 2 if module.bidirectional else 1
    for k, (inputs, states) in enumerate(_layers(module, x, hx, top)):
        for d in range(directions):
            suffix = f"_l{k}" + ("_reverse" if d else "")
            h_0 = hx[0][k * directions + d]
            own = states._replace(rows=states.rows.chunk(directions, dim=-1)[d])
            previous = (square(h_0).sum() + _all_but_last(own, is_reverse=d == 1)) / max(1, inputs.rows[..., 0].numel())
            sums |= shared(mean_sum(inputs.rows), previous, f"weight_ih{suffix}", f"weight_hh{suffix}", gru)
    return sums


def _layers(
    module: nn.RNNBase, x: Sequences, hx: tuple[Tensor, ...], top: Sequences
) -> Iterator[tuple[Sequences, Sequences]]:
    """Go through the layers with what each reads and what it puts out."""
    directions = 2 if module.bidirectional else 1
    for k in range(module.num_layers - 1):
        start = [h[k * directions : (k + 1) * directions].contiguous() for h in hx]
        weights = [one for d in range(directions) for one in module.all_weights[k * directions + d]]
        state = tuple(start) if module.mode == "LSTM" else start[0]
        of_time = (x.rows, state) if x.sizes is None else (x.rows, x.sizes, state)
        rest = (weights, module.bias, 1, 0.0, module.training, module.bidirectional)
        states = x._replace(rows=RUN[module.mode](*of_time, *rest, *(() if x.sizes is not None else (False,)))[0])
        yield x, states
        x = states._replace(rows=nn.functional.dropout(states.rows, module.dropout, module.training))
    yield x, top


def _inputs(module: nn.RNNBase, input: Any, hx: Any) -> tuple[Sequences, tuple[Tensor, ...]]:
    """Return the input in order of time, and the initial states (h, and c for an LSTM) of all layers."""
    x = _sequences(module, input)
    if hx is None:
        num = x.rows.shape[1] if x.sizes is None else int(x.sizes[0])
        layers = module.num_layers * (2 if module.bidirectional else 1)
        widths = [module.proj_size or module.hidden_size, module.hidden_size][: 2 if module.mode == "LSTM" else 1]
        return x, tuple(x.rows.new_zeros(layers, num, width) for width in widths)
    states = tuple(hx) if isinstance(hx, tuple | list) else (hx,)
    if isinstance(input, PackedSequence) and input.sorted_indices is not None:
        states = tuple(h.index_select(1, input.sorted_indices) for h in states)
    return x, tuple(h[:, None] if h.dim() == 2 else h for h in states)


def _sequences(module: nn.RNNBase, signal: Any) -> Sequences:
    if isinstance(signal, PackedSequence):
        return Sequences(signal.data, signal.batch_sizes)
    if signal.dim() == 2:
        return Sequences(signal[:, None])
    return Sequences(signal.transpose(0, 1) if module.batch_first else signal)


def _all_but_last(states: Sequences, is_reverse: bool) -> Tensor:
    """Return the sum of squares of the states that a later step reads: all but the last of each sequence."""
    if states.sizes is None:
        return square(states.rows[1:] if is_reverse else states.rows[:-1]).sum()
    rows, lengths = pad_packed_sequence(PackedSequence(states.rows, states.sizes))
    squares = square(rows).sum(-1)
    last = torch.zeros_like(lengths) if is_reverse else lengths - 1
    squares[last, torch.arange(len(lengths))] = 0
    return squares.sum()
