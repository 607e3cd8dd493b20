"""What a rejected move returns to: one copy of x, and of the buffers that a pass may change."""

from collections.abc import Iterable

from torch import Tensor


class Kept:
    """The copy of x. It is copied back whole: x + eps - eps is not x in floating point."""

    def __init__(self) -> None:
        self.copies: list[Tensor] = []

    def is_like(self, tensors: list[Tensor]) -> bool:
        """Return whether the tensors are, to the last bit, what was kept."""
        return self._fits(tensors) and all(one.equal(copy) for one, copy in zip(tensors, self.copies, strict=True))

    def keep(self, tensors: list[Tensor]) -> None:
        """Copy the tensors, into the memory of the last copy where it fits."""
        if not self._fits(tensors):
            self.copies = [tensor.detach().clone() for tensor in tensors]
            return
        for tensor, copy in zip(tensors, self.copies, strict=True):
            copy.copy_(tensor)

    def put_back(self, tensors: list[Tensor]) -> None:
        """Copy back what was kept."""
        for tensor, copy in zip(tensors, self.copies, strict=True):
            tensor.copy_(copy)

    def _fits(self, tensors: list[Tensor]) -> bool:
        layout = [(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors]
        return layout == [(copy.shape, copy.dtype, copy.device) for copy in self.copies]


class KeptBuffers:
    """Copies of a model's buffers, such as the running statistics of batch normalisation.

    A pass at x' changes them even if x' is rejected. PyTorch counts the writes to each tensor, so only what is written
    to is ever copied again.
    """

    def __init__(self) -> None:
        self.copies: dict[int, tuple[Tensor, int, Tensor]] = {}  # by id: the buffer, its count of writes, the copy

    def keep(self, buffers: Iterable[Tensor]) -> None:
        """Copy the buffers that have changed since the last time."""
        for buffer in buffers:
            known = self.copies.get(id(buffer))
            if known is None or known[0] is not buffer or known[1] != buffer._version:
                self.copies[id(buffer)] = (buffer, buffer._version, buffer.detach().clone())

    def put_back(self) -> None:
        """Copy back the buffers that have changed since they were kept."""
        for key, (buffer, version, copy) in self.copies.items():
            if buffer._version != version:
                buffer.copy_(copy)
                self.copies[key] = (buffer, buffer._version, copy)
