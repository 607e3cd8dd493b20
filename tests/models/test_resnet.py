"""ResNet-18: its count, and a small one against the same net written with flax's layers."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradless.models import ResNet
from gradless.models.resnet import _max_pool

KEY = jax.random.key(0)
SMALL = ResNet(channels=(4, 6), blocks=(2, 1), outputs=3)
# One compilation each instead of one per operation.
draw = jax.jit(SMALL.init, static_argnums=1)
apply = jax.jit(SMALL.apply)


def test_parameter_count_is_resnet_18s():
    assert ResNet().num_parameters == 11_175_370
    assert ResNet(inputs=3, outputs=1000).num_parameters == 11_689_512  # the published count of the ImageNet net


def flax_twin(nn, params, x):
    """The same net out of flax's Conv, GroupNorm and max_pool, which have their own padding and statistics."""

    def conv_norm(conv, h, stride):
        size, _, _, channels = conv["weight"].shape
        layer = nn.Conv(channels, (size, size), stride, padding=size // 2, use_bias=False, param_dtype=h.dtype)
        h = layer.apply({"params": {"kernel": conv["weight"]}}, h)
        norm = nn.GroupNorm(num_groups=1, epsilon=1e-5, param_dtype=h.dtype)
        return norm.apply({"params": {"scale": conv["scale"], "bias": conv["offset"]}}, h)

    h = nn.relu(conv_norm(params["stem"], x, 2))
    h = nn.max_pool(h, (3, 3), (2, 2), padding=((1, 1), (1, 1)))
    for i, stage in enumerate(params["stages"]):
        for j, block in enumerate(stage):
            stride = 2 if (i > 0 and j == 0) else 1
            out = nn.relu(conv_norm(block["conv1"], h, stride))
            out = conv_norm(block["conv2"], out, 1)
            h = nn.relu(out + (conv_norm(block["shortcut"], h, stride) if "shortcut" in block else h))
    return h.mean((1, 2)) @ params["head"]["weight"] + params["head"]["bias"]


def test_apply_equals_the_flax_twin():
    nn = pytest.importorskip("flax.linen")
    with jax.enable_x64(True):
        params = draw(KEY, "kaiming")
        # Scales and offsets away from 1 and 0, so that a forgotten one shows.
        params = jax.tree.map(lambda leaf: leaf + 0.1 * jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape), params)
        x = jax.random.normal(jax.random.key(1), (2, 28, 28, 1))
        # Float64: sums of 10^4 terms in another order, six layers deep. flax takes the variance as E[z^2] - E[z]^2,
        # which loses one or two digits more.
        np.testing.assert_allclose(apply(params, x), jax.jit(partial(flax_twin, nn))(params, x), rtol=1e-10, atol=1e-10)


def test_max_pool_by_hand():
    x = jnp.arange(16.0).reshape(1, 4, 4, 1)
    # Windows are centred on rows and columns 0 and 2, so they end at 1 and 3.
    np.testing.assert_array_equal(_max_pool(x)[0, :, :, 0], [[5.0, 7.0], [13.0, 15.0]])
    np.testing.assert_array_equal(_max_pool(-x - 1)[0, 0, 0], [-1.0])  # the margin is minus infinity, not zero


def test_shapes_along_the_way():
    params = draw(KEY, "pytorch")
    assert params["stem"]["weight"].shape == (7, 7, 1, 4)
    assert [[sorted(block) for block in stage] for stage in params["stages"]] == [
        [["conv1", "conv2"], ["conv1", "conv2"]],
        [["conv1", "conv2", "shortcut"]],
    ]
    assert set(params["stem"]) == {"weight", "scale", "offset"}
    assert apply(params, np.ones((2, 28, 28, 1), np.uint8)).shape == (2, 3)


def test_the_answer_does_not_depend_on_the_others_in_the_batch():
    params = draw(KEY, "kaiming")
    x = jax.random.normal(jax.random.key(2), (3, 12, 12, 1))
    # Layer norm, unlike batch norm; another batch size may sum in another order, a few hundred float32 roundings.
    np.testing.assert_allclose(apply(params, x)[:1], apply(params, x[:1]), rtol=1e-4, atol=1e-5)


def test_layer_norm_forgets_the_scale_of_the_weights():
    with jax.enable_x64(True):
        params = draw(KEY, "kaiming")
        x = jax.random.normal(jax.random.key(2), (1, 12, 12, 1))
        louder = params | {"stem": params["stem"] | {"weight": 10 * params["stem"]["weight"]}}
        # Only through the 1e-5 that is added to variances of order 1 or more.
        np.testing.assert_allclose(apply(louder, x), apply(params, x), rtol=1e-3, atol=1e-4)


def test_weights_have_the_kaiming_width():
    weight = jax.jit(ResNet(channels=(64,), blocks=(1,)).init, static_argnums=1)(KEY, "kaiming")["stages"][0][0][
        "conv1"
    ]["weight"]
    # 36,864 numbers: standard deviation to 0.37%, five of which we allow.
    np.testing.assert_allclose(weight.std(), np.sqrt(2 / (9 * 64)), rtol=0.019)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"channels": (4, 8), "blocks": (1,)}, r"one entry for each stage, got \(4, 8\) and \(1,\)"),
        ({"channels": (), "blocks": ()}, r"one entry for each stage"),
        ({"inputs": 0}, r"must be positive whole numbers, got ResNet\(.*inputs=0"),
    ],
)
def test_wrong_settings_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        ResNet(**settings)
