"""What the faster forms of a loss and of its gradient save: python -m bench.faster"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from gradless.bench.timing import interleaved, tell
from gradless.engine.flat import Flattening
from gradless.faster import faster
from gradless.problems import make_problem


def turns(
    problem: str, options: dict[str, int], samples: int, with_gradient: bool, calls: int
) -> dict[str, Callable[[], None]]:
    """Return the loss of a problem, or its gradient, as written and in the faster form; a turn is so many calls.

    They are made in a compiled loop, as in training: there XLA computes some gradients in another way than outside.
    """
    made = make_problem(problem, options)
    params = made.init(jax.random.key(0))
    flattening = Flattening.of(params, made.precision)
    x, data = flattening.flatten(params), jax.tree.map(lambda array: jnp.asarray(array[:samples]), made.data)

    def loss(x: jax.Array, data: object) -> jax.Array:
        return made.loss(flattening.unflatten(x), data)

    function = jax.grad(loss) if with_gradient else loss
    contestants: dict[str, Callable[[], None]] = {}
    for name, form in (("as written", function), ("faster form", faster(function))):

        def loop(x: jax.Array, data: object, form: Callable[..., jax.Array] = form) -> jax.Array:
            # x stays what it is, which the compiler does not know: the result might be no number.
            return jax.lax.fori_loop(0, calls, lambda _, x: x + 0 * form(x, data), x)

        compiled = jax.jit(loop).lower(x, data).compile()

        def evaluate(compiled: Callable[..., jax.Array] = compiled) -> None:
            jax.block_until_ready(compiled(x, data))

        contestants[name] = evaluate
    return contestants


if __name__ == "__main__":
    for title, problem, options, samples, with_gradient, calls in (
        ("step, depth 32, loss", "step", {"depth": 32}, 1000, False, 300),
        ("step, depth 32, gradient", "step", {"depth": 32}, 1000, True, 300),
        ("step, depth 32, skip connections, loss", "step", {"depth": 32, "skip": True}, 1000, False, 300),
        ("step, depth 32, layer norm, loss", "step", {"depth": 32, "layer_norm": True}, 1000, False, 300),
        ("MNIST 784-16-16-10, 60,000 images, gradient", "mnist", {}, 60_000, True, 5),
        ("ResNet-18, 16 images, loss", "mnist-resnet", {}, 16, False, 3),
        ("ResNet-18, 16 images, gradient", "mnist-resnet", {}, 16, True, 3),
    ):
        with jax.enable_x64(problem == "step"):
            tell(
                title,
                interleaved(turns(problem, options, samples, with_gradient, calls)),
                calls,
                "ms",
                "as written",
                one="call",
            )
