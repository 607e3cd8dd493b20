"""aMC for PyTorch: a `torch.optim.Optimizer` that needs the loss alone."""

try:
    import torch  # noqa: F401 (only to say clearly that it is missing)
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError("gradless.pytorch needs PyTorch: pip install 'gradless[torch]'", name="torch") from None

from gradless.pytorch.optimizer import AMC

__all__ = ["AMC"]
