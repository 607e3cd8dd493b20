"""The recurrent net of the paper's Sec. II D: a stack of simple tanh cells, which gradients cannot train."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from gradless.models.initial import count, named_scheme, parameter_dtype

Params = dict[str, Any]
Cell = Callable[[dict[str, jax.Array], jax.Array, jax.Array], jax.Array]


def tanh_cell(layer: dict[str, jax.Array], x: jax.Array, h: jax.Array) -> jax.Array:
    """One step of the simple cell: h' = tanh(x W_i + b_i + h W_r + b_r)."""
    return jnp.tanh(
        x @ layer["weight_input"] + layer["bias_input"] + h @ layer["weight_recurrent"] + layer["bias_recurrent"]
    )


def gru_cell(layer: dict[str, jax.Array], x: jax.Array, h: jax.Array) -> jax.Array:
    """One step of the gated cell, in PyTorch's form: reset r, update z, candidate n; h' = (1 - z) n + z h."""
    reset_x, update_x, new_x = jnp.split(x @ layer["weight_input"] + layer["bias_input"], 3, axis=-1)
    reset_h, update_h, new_h = jnp.split(h @ layer["weight_recurrent"] + layer["bias_recurrent"], 3, axis=-1)
    reset = jax.nn.sigmoid(reset_x + reset_h)
    update = jax.nn.sigmoid(update_x + update_h)
    new = jnp.tanh(new_x + reset * new_h)
    return (1 - update) * new + update * h


# Each cell with the number of pre-activations that one of its neurons has.
CELLS: dict[str, tuple[Cell, int]] = {"tanh": (tanh_cell, 1), "gru": (gru_cell, 3)}

UNROLL = 8  # time steps written out after one another: each is so short that a turn of the loop counts


@dataclass(frozen=True)
class RNN:
    """A stack of recurrent layers that reads a sequence, and a linear classifier of the top layer's last state.

    Paper: Sec. II D. Claims: F5; N = 12,802 with the defaults, two bias vectors per layer as in PyTorch.
    """

    inputs: int = 2
    """Numbers per time step."""
    hidden: int = 64
    """Neurons per layer."""
    outputs: int = 2
    """Classes."""
    depth: int = 2
    """Recurrent layers, one on top of the other."""
    cell: str = "tanh"
    """The recurrent cell: tanh or gru."""

    def __post_init__(self) -> None:
        for name in ("inputs", "hidden", "outputs", "depth"):
            value = getattr(self, name)
            if int(value) != value or value < 1:
                raise ValueError(f"{name} must be a positive whole number, got {value}")
        if self.cell not in CELLS:
            raise ValueError(f"cell must be one of {', '.join(CELLS)}, got {self.cell!r}")

    @property
    def num_parameters(self) -> int:
        """N, the number of weights and biases."""
        return count(jax.eval_shape(lambda key: self.init(key, "pytorch"), jax.random.key(0)))

    def init(
        self, key: jax.Array, scheme: str, *, recurrent: str = "pytorch", dtype: DTypeLike | None = None
    ) -> Params:
        """Draws parameters ``{"layers": [...], "head": {"weight", "bias"}}``.

        ``scheme`` draws the head; we take "gaussian:" with the paper's sigma_0. ``recurrent`` draws
        "weight_input", "weight_recurrent", "bias_input" and "bias_recurrent" of each layer, with the number of hidden
        neurons as the fan-in of all four, which for "pytorch" is PyTorch's default for recurrent layers.
        """
        draw_head, draw_layer, dtype = named_scheme(scheme), named_scheme(recurrent), parameter_dtype(dtype)
        fan_out = CELLS[self.cell][1] * self.hidden
        layers = []
        for i in range(self.depth):
            key_input, key_recurrent = jax.random.split(jax.random.fold_in(key, i))
            features = self.inputs if i == 0 else self.hidden
            gain = 5 / 3  # of tanh
            of_input = draw_layer(key_input, (features, fan_out), self.hidden, gain, dtype)
            of_state = draw_layer(key_recurrent, (self.hidden, fan_out), self.hidden, gain, dtype)
            layers.append(
                {
                    "weight_input": of_input["weight"],
                    "bias_input": of_input["bias"],
                    "weight_recurrent": of_state["weight"],
                    "bias_recurrent": of_state["bias"],
                }
            )
        key_head = jax.random.fold_in(key, self.depth)
        return {"layers": layers, "head": draw_head(key_head, (self.hidden, self.outputs), self.hidden, 1.0, dtype)}

    def apply(self, params: Params, x: jax.Array) -> jax.Array:
        """Reads sequences (batch, time, features) from a state of zero and returns logits (batch, outputs)."""
        head, step = params["head"], CELLS[self.cell][0]
        dtype = head["weight"].dtype
        x = jnp.asarray(x).astype(dtype)

        def advance(states: list[jax.Array], signal: jax.Array) -> tuple[list[jax.Array], None]:
            # The new state of one layer is the input of the next within the same time step.
            advanced = []
            for layer, state in zip(params["layers"], states, strict=True):
                signal = step(layer, signal, state)
                advanced.append(signal)
            return advanced, None

        start = [jnp.zeros((x.shape[0], self.hidden), dtype) for _ in params["layers"]]
        states, _ = lax.scan(advance, start, jnp.moveaxis(x, 1, 0), unroll=UNROLL)
        return states[-1] @ head["weight"] + head["bias"]
