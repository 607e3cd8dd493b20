# %% [markdown]
# # Your own flax model
#
# A convolutional net written in flax, as it is, on the 8x8 digits of scikit-learn. gradless takes the parameters as the
# pytree that they are and finds the layers for signal norm in the traced loss: nothing is wrapped. Needs
# `pip install '.[flax]'`, from the checkout. Half a minute.

# %%
import importlib.util
import sys

if importlib.util.find_spec("flax") is None:
    sys.exit("flax is not installed: pip install '.[flax]', in the checkout")

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from flax import linen

import gradless as gl
from gradless.data.digits import digits

STEPS = 8_000
BATCH_START = 200


class Net(linen.Module):
    """A convolution and a linear layer."""

    @linen.compact
    def __call__(self, images):
        x = images.reshape(-1, 8, 8, 1)
        x = linen.tanh(linen.Conv(8, (3, 3), strides=2)(x))
        return linen.Dense(10)(x.reshape(len(x), -1))


net = Net()
images = digits()
train, test = (images.train_x, images.train_y), (images.test_x, images.test_y)

# %% [markdown]
# The loss is optax's, and `init` is the model's own. A batch that begins with 200 images and doubles when its error is
# below 10% saves time at first.


# %%
def init(key):
    return net.init(key, images.train_x[:1])


def loss(params, batch):
    x, y = batch
    return optax.softmax_cross_entropy_with_integer_labels(net.apply(params, x), y).mean()


def error(params, batch):
    x, y = batch
    return jnp.mean(net.apply(params, x).argmax(axis=1) != y)


result = gl.train(
    gl.amc(sigma=0.03, epsilon=0.0, n_s=50, signal_norm=True),
    loss,
    init,
    data=train,
    steps=STEPS,
    batches=gl.progressive(BATCH_START, error),
    test=test,
    metrics=lambda params, test: {"accuracy": 1 - error(params, test)},
)
num_parameters = sum(leaf.size for leaf in jax.tree.leaves(result.params))
print(f"{num_parameters:,} parameters, {STEPS:,} steps: test accuracy {result.metrics['accuracy']:.1%}")

# %% [markdown]
# What comes back is a flax pytree again. Where is the net wrong?

# %%
says = np.asarray(net.apply(result.params, test[0]).argmax(axis=1))
wrong = np.flatnonzero(says != test[1])
figure = plt.figure(figsize=(9.6, 4.2), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=[1.2, 1])
axes = left.subplots()
axes.plot(result.trace.samples, result.trace.accuracy, color="#2e8b57")
axes.set(xscale="log", xlabel="samples seen", ylabel="test accuracy", title="A flax net, trained by aMC")
right.suptitle(f"{len(wrong)} of {len(says)} are wrong; the net says")
for place, cell in enumerate(right.subplots(3, 4).flat):
    cell.axis("off")
    if place < len(wrong):
        cell.imshow(test[0][wrong[place]].reshape(8, 8), cmap="gray_r")
        cell.set_title(int(says[wrong[place]]), fontsize=9)
figure.savefig("flax_model.png", dpi=120)
plt.close(figure)
print("flax_model.png")
