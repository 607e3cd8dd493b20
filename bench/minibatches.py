"""What the order of the data costs: python -m bench.minibatches

An epoch of 60,000 samples in minibatches of 2,000, sorted by random numbers or shuffled by digits, and for comparison
thirty steps of aMC on MNIST 784-16-16-10, one for each of these minibatches.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import gradless as gl
from gradless.bench.timing import interleaved, tell
from gradless.engine.shuffle import draw_order, in_order
from gradless.models import MLP
from gradless.types import Params

NUM_DATA, SIZE, EPOCHS = 60_000, 2_000, 10
NUMBER = NUM_DATA // SIZE


def sort(key: jax.Array) -> jax.Array:
    """Return the samples of all minibatches."""
    return jax.random.permutation(key, NUM_DATA).reshape(NUMBER, SIZE)


def by_digits(key: jax.Array) -> jax.Array:
    """Return the samples of all minibatches, found minibatch by minibatch."""
    order = draw_order(key, NUM_DATA)
    places = jnp.arange(SIZE, dtype=jnp.int32)
    return lax.map(lambda number: in_order(order, number * SIZE + places, NUM_DATA), jnp.arange(NUMBER))


def train() -> Callable[[], None]:
    """Return a turn of training, as many epochs as the others find the order of."""
    net = MLP((784, 16, 16, 10), head="softmax")
    images = np.random.default_rng(0).integers(0, 256, (NUM_DATA, 784), np.uint8)
    labels = jax.nn.one_hot(np.arange(NUM_DATA) % 10, 10)

    def loss(params: Params, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
        return jnp.mean(jnp.sum((net.apply(params, batch[0] / 255) - batch[1]) ** 2, axis=-1))

    def turn() -> None:
        gl.train(
            gl.amc(sigma=1e-2, n_s=20, signal_norm=True),
            loss,
            net.init(jax.random.key(0), "pytorch"),
            data=(images, labels),
            steps=EPOCHS * NUMBER,
            batches=gl.minibatch(SIZE),
        )

    return turn


if __name__ == "__main__":
    contestants: dict[str, Callable[[], None]] = {}
    for name, function in (("sorted", sort), ("by digits", by_digits)):
        compiled = jax.jit(function).lower(jax.random.key(0)).compile()

        def draw(compiled: Callable[[jax.Array], jax.Array] = compiled) -> None:
            for epoch in range(EPOCHS):
                jax.block_until_ready(compiled(jax.random.fold_in(jax.random.key(0), epoch)))

        contestants[name] = draw
    contestants["training, its order by digits"] = train()
    tell("an epoch is 30 minibatches of 2,000", interleaved(contestants), EPOCHS, "ms", "sorted", one="epoch")
