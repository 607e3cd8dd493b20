"""ResNet-18 with layer norm, the paper's large net: eleven million parameters."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from gradless.models.initial import Scheme, count, named_scheme, parameter_dtype
from gradless.models.mlp import ACTIVATIONS, normalise

Params = dict[str, Any]


@dataclass(frozen=True)
class ResNet:
    """A residual net: a 7x7 stem, four stages of blocks of two 3x3 convolutions, a mean over positions, a linear head.

    Paper: Sec. II F. Claims: F8; N = 11,175,370 with the defaults.
    Differs: from the usual ResNet-18, layer norm as GroupNorm(1, C), with one scale and one offset per channel, stands
    wherever batch norm would. The paper says "layer normalization" and no more.
    """

    channels: tuple[int, ...] = (64, 128, 256, 512)
    """Channels of each stage; the stem has those of the first."""
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    """Residual blocks of each stage; every stage but the first begins by halving the image."""
    inputs: int = 1
    """Channels of the image."""
    outputs: int = 10
    """Classes."""

    def __post_init__(self) -> None:
        for name in ("channels", "blocks"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        numbers = (*self.channels, *self.blocks, self.inputs, self.outputs)
        if not self.channels or len(self.channels) != len(self.blocks):
            raise ValueError(
                f"channels and blocks must have one entry for each stage, got {self.channels} and {self.blocks}"
            )
        if any(int(number) != number or number < 1 for number in numbers):
            raise ValueError(f"channels, blocks, inputs and outputs must be positive whole numbers, got {self}")

    @property
    def num_parameters(self) -> int:
        """N, the number of weights, scales, offsets and biases."""
        return count(jax.eval_shape(lambda key: self.init(key, "kaiming"), jax.random.key(0)))

    def init(self, key: jax.Array, scheme: str, *, dtype: DTypeLike | None = None) -> Params:
        """Draws parameters ``{"stem": conv, "stages": [[block, ...], ...], "head": {"weight", "bias"}}``.

        A conv is ``{"weight": (height, width, in, out), "scale": (out,), "offset": (out,)}``; a block holds "conv1",
        "conv2" and, where its input has another shape, "shortcut". ``scheme`` draws the weights and the head; scale
        and offset start at 1 and 0.
        """
        draw, dtype = named_scheme(scheme), parameter_dtype(dtype)
        key_stem, key_stages, key_head = jax.random.split(key, 3)
        stages = []
        width = self.channels[0]
        for i, (channels, num_blocks) in enumerate(zip(self.channels, self.blocks, strict=True)):
            stage = []
            for j in range(num_blocks):
                key_block = jax.random.fold_in(jax.random.fold_in(key_stages, i), j)
                key_conv1, key_conv2, key_shortcut = jax.random.split(key_block, 3)
                block = {
                    "conv1": _draw_conv(draw, key_conv1, (3, 3, width, channels), dtype),
                    "conv2": _draw_conv(draw, key_conv2, (3, 3, channels, channels), dtype),
                }
                if width != channels or _stride(i, j) != 1:
                    block["shortcut"] = _draw_conv(draw, key_shortcut, (1, 1, width, channels), dtype)
                width = channels
                stage.append(block)
            stages.append(stage)
        return {
            "stem": _draw_conv(draw, key_stem, (7, 7, self.inputs, self.channels[0]), dtype),
            "stages": stages,
            "head": draw(key_head, (width, self.outputs), width, 1.0, dtype),
        }

    def apply(self, params: Params, x: jax.Array) -> jax.Array:
        """Maps images (batch, height, width, channels) to logits (batch, outputs)."""
        head = params["head"]
        h = jnp.asarray(x).astype(head["weight"].dtype)
        h = jax.nn.relu(_conv_norm(params["stem"], h, stride=2))
        h = _max_pool(h)
        for i, stage in enumerate(params["stages"]):
            for j, block in enumerate(stage):
                stride = _stride(i, j)
                shortcut = _conv_norm(block["shortcut"], h, stride) if "shortcut" in block else h
                h = jax.nn.relu(_conv_norm(block["conv1"], h, stride))
                h = jax.nn.relu(_conv_norm(block["conv2"], h, 1) + shortcut)
        return jnp.mean(h, axis=(1, 2)) @ head["weight"] + head["bias"]


def _stride(stage: int, block: int) -> int:
    return 2 if stage > 0 and block == 0 else 1


def _draw_conv(
    draw: Scheme, key: jax.Array, shape: tuple[int, int, int, int], dtype: jnp.dtype
) -> dict[str, jax.Array]:
    height, width, fan, channels = shape
    weight = draw(key, shape, height * width * fan, ACTIVATIONS["relu"].gain, dtype)["weight"]
    return {"weight": weight, "scale": jnp.ones(channels, dtype), "offset": jnp.zeros(channels, dtype)}


def _conv_norm(conv: dict[str, jax.Array], x: jax.Array, stride: int) -> jax.Array:
    """Convolves, then normalises each image over its positions and channels."""
    margin = (
        conv["weight"].shape[0] // 2
    )  # the same on all sides, unlike "SAME", which shifts the image when it strides
    z = lax.conv_general_dilated(
        x,
        conv["weight"],
        window_strides=(stride, stride),
        padding=((margin, margin), (margin, margin)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return normalise(z, axes=(1, 2, 3)) * conv["scale"] + conv["offset"]


def _max_pool(x: jax.Array) -> jax.Array:
    """Takes the largest value of each 3x3 window, every second position."""
    return lax.reduce_window(
        x,
        -jnp.inf,
        lax.max,
        window_dimensions=(1, 3, 3, 1),
        window_strides=(1, 2, 2, 1),
        padding=((0, 0), (1, 1), (1, 1), (0, 0)),
    )
