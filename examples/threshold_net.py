# %% [markdown]
# # Neurons that fire or do not
#
# Every hidden neuron is a hard threshold, and the loss is the number of wrong answers. Both are flat almost everywhere:
# the gradient is zero wherever it exists, and gradient descent never moves. aMC needs the loss alone. Some seconds.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import gradless as gl

STEPS = 40_000
POINTS = 400
HIDDEN = 16

# %% [markdown]
# The task: does a point of the square lie in the ring?


# %%
def ring(key, num):
    x = jax.random.uniform(key, (num, 2), minval=-1, maxval=1)
    radius = jnp.linalg.norm(x, axis=1)
    return x, (radius > 0.4) & (radius < 0.8)


key_train, key_test = jax.random.split(jax.random.key(1))
train, test = ring(key_train, POINTS), ring(key_test, 4_000)


def init(key):
    keys = jax.random.split(key, (3, 2))
    widths = [(2, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 1)]
    return [
        {
            "weight": jax.random.normal(key_weight, shape) / shape[0] ** 0.5,
            "bias": jax.random.normal(key_bias, shape[1:]),
        }
        for (key_weight, key_bias), shape in zip(keys, widths, strict=True)
    ]


def answer(params, x):
    *hidden, last = params
    for layer in hidden:
        x = (x @ layer["weight"] + layer["bias"] > 0).astype(x.dtype)
    return (x @ last["weight"] + last["bias"])[:, 0] > 0


def wrong(params, batch):
    x, is_inside = batch
    return jnp.mean(answer(params, x) != is_inside)


# %% [markdown]
# The gradient first, then four chains of aMC, each from a start of its own. Ties are accepted, so a chain wanders over
# the flat steps of the loss until it finds a way down.

# %%
gradient = jax.jit(lambda key: jax.grad(wrong)(init(key), train))(jax.random.key(0))
print("largest derivative of the loss:", max(np.abs(leaf).max() for leaf in jax.tree.leaves(gradient)))
print(f"saying no to every point is right for {1 - test[1].mean():.1%} of them")

result = gl.train(
    gl.amc(sigma=0.3, n_s=500),
    wrong,
    init,
    data=train,
    steps=STEPS,
    chains=4,
    test=test,
    metrics=lambda params, test: {"accuracy": 1 - wrong(params, test)},
)
best = int(np.argmin(result.loss))
print("right on new points:", ", ".join(f"{accuracy:.1%}" for accuracy in result.metrics["accuracy"]))

# %%
grid = np.linspace(-1, 1, 300)
x, y = np.meshgrid(grid, grid)
net = jax.tree.map(lambda leaf: leaf[best], result.params)
says = np.asarray(answer(net, jnp.stack([x.ravel(), y.ravel()], axis=1))).reshape(x.shape)

figure, (curves, picture) = plt.subplots(1, 2, figsize=(9.6, 4.2), layout="constrained")
for chain in range(4):
    curves.plot(result.trace.step, 1 - result.trace.accuracy[chain], color="#2e8b57", alpha=0.4 + 0.6 * (chain == best))
curves.set(xlabel="step n", ylabel="wrong answers on new points", title="Four chains", ylim=(0, None))
picture.contourf(x, y, says, levels=[-0.5, 0.5, 1.5], colors=["#f2f2f2", "#9ccfb0"])
for is_inside, colour in ((False, "#8c8c8c"), (True, "#14532d")):
    rows = np.asarray(train[1]) == is_inside
    picture.plot(*np.asarray(train[0])[rows].T, ".", ms=4, color=colour)
picture.set(aspect="equal", title="The best net and the training points", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
figure.savefig("threshold_net.png", dpi=120)
plt.close(figure)
print("threshold_net.png")
