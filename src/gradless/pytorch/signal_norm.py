"""Signal norm by hooks: every layer tells the sum of squares of its inputs during the closure's own pass.

Paper: Sec. III B, Eqs. (17) and (18).
"""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gradless.pytorch.noise import GlobalRandomness, working_dtype
from gradless.pytorch.recurrent import RECURRENT, recurrent
from gradless.pytorch.sums import LAYERS, mean_over_vmap

# lambda is 1 for what scales or shifts single signals, and for a table of which single rows are read.
ONES: tuple[Any, ...] = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.PReLU)
ONES += (nn.Embedding, nn.EmbeddingBag)
ONES += (nn.RMSNorm,) if hasattr(nn, "RMSNorm") else ()  # since PyTorch 2.4


class Signals:
    """Listens at the layers of models, and turns what it hears in one pass into lambda."""

    def __init__(self) -> None:
        self.is_listening = False
        self.names: dict[Tensor, str] = {}  # of the parameters of all models, for people
        self.heard: dict[Tensor, list[Tensor]] = {}  # by weight: its sum in each call of a layer that it is in
        self.ones: set[Tensor] = set()  # parameters that have no fan-in
        self.has_warned = False
        self.handles: list[RemovableHandle] = []  # of the hooks; they hold no model

    def attach(self, model: nn.Module) -> None:
        """Put a hook on every layer of a model whose inputs tell a lambda."""
        self.names |= {parameter: name for name, parameter in model.named_parameters()}
        for module in model.modules():
            own: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
            if isinstance(module, ONES):
                self.ones |= set(own.values())
            listen = next((function for kind, function in LAYERS.items() if works_as(module, kind)), None)
            is_recurrent = any(works_as(module, kind) for kind in RECURRENT)
            if listen or is_recurrent:
                self.ones |= {parameter for name, parameter in own.items() if "bias" in name}
                self.heard |= {parameter: [] for parameter in own.values()}
            if listen:
                self.handles.append(module.register_forward_pre_hook(Ear(self, own, listen), with_kwargs=True))
            elif is_recurrent:
                start = Start(self, own)
                self.handles.append(module.register_forward_pre_hook(start, with_kwargs=True))
                self.handles.append(module.register_forward_hook(RecurrentEar(self, own, start), with_kwargs=True))

    def hear(self, own: dict[str, Tensor], sums: dict[str, Tensor]) -> None:
        """Note the sums of one call of a layer; a weight that is computed from others, as by weight norm, has none."""
        for name, total in sums.items():
            if name in own:
                self.heard[own[name]].append(mean_over_vmap(total))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to one pass."""
        for sums in self.heard.values():
            sums.clear()
        self.is_listening = True
        try:
            yield
        finally:
            self.is_listening = False

    def lam(self, sought: Iterable[Tensor]) -> dict[Tensor, Tensor]:
        """Return lambda for each parameter sought. A weight used several times has the mean of its uses."""
        lams, unplaced = {}, []
        for parameter in sought:
            wide = working_dtype(parameter)
            uses = self.heard.get(parameter, [])
            if uses:
                lams[parameter] = inverse_root(sum(uses[1:], start=uses[0]) / len(uses)).to(wide)
            else:
                lams[parameter] = parameter.new_ones((), dtype=wide)
                if parameter not in self.ones:
                    unplaced.append(self.names.get(parameter, "a parameter outside the model"))
        self._warn(unplaced)
        return lams

    def _warn(self, unplaced: list[str]) -> None:
        if unplaced and not self.has_warned:
            self.has_warned = True
            names = ", ".join(unplaced)
            warnings.warn(f"signal norm has not seen the inputs of {names}: lambda is 1 there", stacklevel=2)


def remove(handles: list[RemovableHandle]) -> None:
    """Take hooks off their layers; what these hold goes with them."""
    while handles:
        handles.pop().remove()


def works_as(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Return whether a module is of a kind and computes as that kind does; a `forward` of its own may do anything."""
    return isinstance(module, kind) and type(module).forward is kind.forward


def inverse_root(mean: Tensor) -> Tensor:
    """lambda from the mean sum of squares: the inverse root, 0 where all inputs vanish. Paper: Eq. (17)."""
    is_zero = mean < torch.finfo(mean.dtype).tiny
    return torch.where(is_zero, 0, torch.where(is_zero, 1, mean).rsqrt())


class Ear:
    """A hook on one layer. Copied or pickled with its model it leaves a hook that does nothing."""

    def __init__(self, signals: Signals, own: dict[str, Tensor], listen: Any = None) -> None:
        self.signals, self.own, self.listen = signals, own, listen

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self.signals.is_listening:
            self.signals.is_listening = False  # what the sums call is not part of the pass
            sums = self.listen(module, *args, **kwargs)
            self.signals.is_listening = True
            self.signals.hear(self.own, sums)

    def __reduce__(self) -> Any:
        return Deaf, ()


class RecurrentEar(Ear):
    """The hook after a recurrent module, which reads its output too."""

    def __call__(self, module: nn.RNNBase, args: Any, kwargs: Any, output: Any) -> None:  # type: ignore[override]
        if self.signals.is_listening:
            start, now = self.listen.start, GlobalRandomness([output[0].data.device])
            if start is not None:
                start.again()
            self.signals.hear(self.own, recurrent(module, *args, **kwargs, output=output))
            now.again()  # cuDNN draws its masks elsewhere: what was drawn here must not count


class Start(Ear):
    """The hook before a recurrent module: it notes from where dropout between the layers will be drawn."""

    start: GlobalRandomness | None = None

    def __call__(self, module: nn.RNNBase, args: Any, kwargs: Any) -> None:  # type: ignore[override]
        is_dropping = self.signals.is_listening and module.training and module.dropout > 0
        self.start = GlobalRandomness([next(module.parameters()).device]) if is_dropping else None


class Deaf:
    """What is left of a hook in a copy of a model."""

    def __call__(self, *ignored: Any) -> None:
        pass
