# %% [markdown]
# # A PyTorch model
#
# `gradless.pytorch.AMC` is an ordinary `torch.optim.Optimizer` that needs the loss and no gradient. Here a small
# net learns a sine. Half-way the net and the optimizer are saved and loaded again, and go on to the last bit. Some
# seconds. Needs `pip install '.[torch]'`, from the checkout.

# %%
import importlib.util
import io
import sys

if importlib.util.find_spec("torch") is None:
    sys.exit("PyTorch is not installed: pip install '.[torch]', in the checkout")

import matplotlib.pyplot as plt
import torch
from torch import nn

from gradless.pytorch import AMC

STEPS = 8_000
torch.set_num_threads(1)  # the net is small: a second thread costs more than it brings

# %%
torch.manual_seed(0)
x = torch.linspace(0, 1, 200)[:, None]
y = torch.sin(2 * torch.pi * x)


def make():
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    return model, AMC(model, sigma=0.03, epsilon=0.01, n_s=50, signal_norm=True, fixed_batch=True, seed=0)


def train(model, optimizer, until, record):
    while optimizer.n < until:
        loss = optimizer.step(lambda: nn.functional.mse_loss(model(x), y))  # no backward() anywhere
        record.append((float(loss), optimizer.param_groups[0]["sigma"]))


# %% [markdown]
# Half of the steps, a file, and the other half; beside it a second run that never stops.

# %%
model, optimizer = make()
first = {name: value.clone() for name, value in model.state_dict().items()}
record = []
train(model, optimizer, STEPS // 2, record)
file = io.BytesIO()  # or a path
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)

model, optimizer = make()
saved = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
train(model, optimizer, STEPS, record)
print(f"loss {record[-1][0]:.5f}, accepted {optimizer.num_accepted / optimizer.n:.1%} of {STEPS:,} moves")

unbroken, other = make()
unbroken.load_state_dict(first)
train(unbroken, other, STEPS, [])
same = all(torch.equal(one, two) for one, two in zip(model.parameters(), unbroken.parameters(), strict=True))
print("saved and loaded, or never stopped: the same net?", "yes" if same else "no")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.8), layout="constrained")
left.plot([loss for loss, _ in record], color="#2e8b57", label="loss U")
left.plot([sigma for _, sigma in record], color="0.5", ls="--", label="move scale σ")
left.axvline(STEPS // 2, color="0.8", ls=":")
left.set(yscale="log", xlabel="step n", title="A PyTorch model, trained by aMC")
left.legend()
with torch.no_grad():
    right.plot(x[:, 0], (model(x) - y)[:, 0], color="#2e8b57")
right.axhline(0, color="0.7", lw=0.8)
right.set(xlabel="θ", ylabel="output - sin(2πθ)", title="What is left of the error")
figure.savefig("pytorch_model.png", dpi=120)
plt.close(figure)
print("pytorch_model.png")
