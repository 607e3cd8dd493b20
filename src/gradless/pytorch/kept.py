"""What a rejected move returns to."""

from torch import Tensor


class Kept:
    """One copy of tensors. It is copied back whole: x + eps - eps is not x in floating point."""

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
    """A copy of buffers by name: a pass may make one, or make one longer, and then that one stays as it is."""

    def __init__(self) -> None:
        self.copies: dict[str, Tensor] = {}

    def keep(self, buffers: dict[str, Tensor]) -> None:
        """Copy the buffers."""
        self.copies = {name: buffer.detach().clone() for name, buffer in buffers.items()}

    def put_back(self, buffers: dict[str, Tensor]) -> None:
        """Copy back what was kept, and write to nothing that has not changed."""
        for name, buffer in buffers.items():
            copy = self.copies.get(name)
            if copy is not None and copy.shape == buffer.shape and not buffer.equal(copy):
                buffer.copy_(copy)
