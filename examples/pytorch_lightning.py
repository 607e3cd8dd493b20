"""aMC in a Lightning module: manual optimisation, because there is nothing to call backward() on.

Needs `pip install '.[torch]'`, from the checkout, and `pip install lightning`; without them the example says so and
ends.
"""

import argparse
import importlib.util
import sys

if importlib.util.find_spec("torch") is None:
    sys.exit("PyTorch is not installed: pip install '.[torch]', in the checkout")

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gradless.pytorch import AMC


def main(epochs: int = 100) -> float | None:
    """Fit a sine by a small tanh net, and return the loss; None without Lightning."""
    if importlib.util.find_spec("lightning") is None:
        print("Lightning is not installed: pip install lightning")
        return None
    import lightning

    class Sine(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False  # Lightning's own loop would call backward()
            self.net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))

        def configure_optimizers(self) -> AMC:
            return AMC(self.net, sigma=0.02, epsilon=0.01, signal_norm=True, seed=0)

        def training_step(self, batch: list[torch.Tensor], number: int) -> None:
            x, y = batch
            loss = self.optimizers().step(lambda: nn.functional.mse_loss(self.net(x), y))
            self.log("loss", loss)

    lightning.seed_everything(0, verbose=False)
    x = torch.linspace(0, 1, 256)[:, None]
    data = TensorDataset(x, torch.sin(2 * torch.pi * x))
    model = Sine()
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(data, batch_size=64, shuffle=True))
    with torch.no_grad():
        loss = nn.functional.mse_loss(model.net(x), data.tensors[1]).item()
    print(f"loss {loss:.4f} after {trainer.global_step} steps; always saying 0 has 0.5")
    return loss


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=100)
    sys.exit(0 if main(**vars(parser.parse_args())) is not None else 1)
