# %% [markdown]
# # A net of 64 layers
#
# 63 layers of 4 tanh neurons and one of 10 are to learn a step function (the paper's Sec. II E). Gradients vanish on
# the way back through so many layers. aMC with signal norm does not use them. Under a minute on two cores.
#
# What is shown, and what is not: the gradient at two usual starts, layer by layer; some thousand steps of aMC, and a
# thousand of Adam from both starts. The paper gives each a million steps; docs/results.md has the runs of that length.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import gradless as gl
from gradless.problems import make_problem

DEPTH = 64
STEPS = 6_000
ADAM_STEPS = 1_000
CHAINS = 4
PLATEAU = 3 / 64  # U of the best constant answer

jax.config.update("jax_enable_x64", True)
gaussian = make_problem("step", {"depth": DEPTH})
pytorch = make_problem("step", {"depth": DEPTH, "init": "pytorch"})

# %% [markdown]
# **The gradient.** How large is the derivative of U with respect to the weights of each layer, at the start?


# %%
def gradient_by_layer(problem):
    start = jax.tree.map(lambda leaf: leaf.astype(float), problem.init(jax.random.key(0), sigma=0.01))
    layers = jax.jit(jax.grad(problem.loss))(start, problem.data)["layers"]
    return np.array([np.abs(layer["weight"]).max() for layer in layers])


gradients = {"N(0, 0.01²)": gradient_by_layer(gaussian), "PyTorch's default": gradient_by_layer(pytorch)}
for name, sizes in gradients.items():
    print(f"start {name}: largest derivative in the first layer {sizes[0]:.1e}, in the last {sizes[-1]:.1e}")

# %% [markdown]
# **Training.** aMC from the Gaussian start with the paper's settings; Adam from both.

# %%
common = {"loss": gaussian.loss, "data": gaussian.data, "precision": "float64"}
amc = gl.train(gl.amc(**gaussian.algorithms["amc"]), params=gaussian.init, steps=STEPS, chains=CHAINS, **common)
left = int(np.sum(amc.loss < 0.9 * PLATEAU))
print(f"aMC, {STEPS:,} steps: U = {np.round(amc.loss, 4)}; {left} of {CHAINS} chains have left the plateau")

adam = [gl.train(gl.adam(1e-4), params=problem.init, steps=ADAM_STEPS, **common) for problem in (gaussian, pytorch)]
for name, result in zip(gradients, adam, strict=True):
    print(f"Adam, {ADAM_STEPS:,} steps from {name}: U = {result.loss:.6f}, the best constant answer has {PLATEAU:.6f}")

# %%
figure, (left_axes, middle, right) = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
for (name, sizes), colour in zip(gradients.items(), ["#b5562a", "#d9a441"], strict=True):
    left_axes.semilogy(range(1, len(sizes) + 1), sizes, color=colour, label=name)
left_axes.set(xlabel="layer", ylabel="largest derivative of U", title="The gradient at the start")
left_axes.legend()

for chain in range(CHAINS):
    middle.loglog(amc.trace.step + 1, amc.trace.loss[chain], color="#2e8b57", label="aMC" if chain == 0 else None)
for name, result, colour in zip(gradients, adam, ["#b5562a", "#d9a441"], strict=True):
    middle.loglog(result.trace.step + 1, result.trace.loss, color=colour, ls="--", label=f"Adam, {name}")
middle.axhline(PLATEAU, color="0.7", lw=0.8)
middle.set(xlabel="step n", ylabel="loss U", title=f"{DEPTH} layers")
middle.legend()

theta, target = gaussian.data
best = jax.tree.map(lambda leaf: leaf[int(np.argmin(amc.loss))], amc.params)
right.plot(theta, target, color="0.6", lw=3, label="target")
right.plot(theta, gaussian.outputs(best, theta), color="#2e8b57", label="aMC, best chain")
right.plot(theta, gaussian.outputs(adam[0].params, theta), color="#b5562a", ls="--", label="Adam")
right.set(xlabel="θ", ylabel="output", title="What the nets say")
right.legend()
figure.savefig("deep_net.png", dpi=120)
plt.close(figure)
print("deep_net.png")
