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
apply = jax.jit(SMALL.apply)  # compiled once instead of operation by operation


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


@pytest.fixture(scope="module")
def random_net():
    """Parameters and two images of 12x12, all random float64: scales and offsets too, so that a forgotten one shows."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda key: SMALL.init(key, "kaiming"), KEY)
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), shapes)
    return params, rng.normal(size=(2, 12, 12, 1))


@pytest.fixture(autouse=True)
def _in_double_precision():
    with jax.enable_x64(True):
        yield


def test_apply_equals_the_flax_twin(random_net):
    nn = pytest.importorskip("flax.linen")
    params, x = random_net
    # Float64: sums of a thousand terms in another order, six layers deep. flax takes the variance as E[z^2] - E[z]^2,
    # which loses one or two digits more.
    np.testing.assert_allclose(apply(params, x), jax.jit(partial(flax_twin, nn))(params, x), rtol=1e-10, atol=1e-10)


def test_max_pool_by_hand():
    x = jnp.arange(16.0).reshape(1, 4, 4, 1)
    # Windows are centred on rows and columns 0 and 2, so they end at 1 and 3.
    np.testing.assert_array_equal(_max_pool(x)[0, :, :, 0], [[5.0, 7.0], [13.0, 15.0]])
    np.testing.assert_array_equal(_max_pool(-x - 1)[0, 0, 0], [-1.0])  # the margin is minus infinity, not zero


def test_layout_of_the_parameters():
    params = jax.eval_shape(lambda key: SMALL.init(key, "pytorch"), KEY)
    assert params["stem"]["weight"].shape == (7, 7, 1, 4)
    assert [[sorted(block) for block in stage] for stage in params["stages"]] == [
        [["conv1", "conv2"], ["conv1", "conv2"]],
        [["conv1", "conv2", "shortcut"]],
    ]
    assert set(params["stem"]) == {"weight", "scale", "offset"}


def test_the_parameters_set_the_precision():
    params = jax.eval_shape(lambda key: SMALL.init(key, "pytorch", dtype="float32"), KEY)
    for x in (np.ones((2, 28, 28, 1), np.uint8), np.ones((2, 28, 28, 1))):
        outputs = jax.eval_shape(SMALL.apply, params, x)
        assert (outputs.shape, outputs.dtype) == ((2, 3), jnp.float32)


def test_the_answer_does_not_depend_on_the_others_in_the_batch(random_net):
    params, x = random_net
    # Layer norm, unlike batch norm: the same program on the same image, so equal up to the order of sums.
    other = np.stack([x[0], 5 * x[1] + 1])
    np.testing.assert_allclose(apply(params, other)[0], apply(params, x)[0], rtol=1e-12)


def test_layer_norm_forgets_the_scale_of_the_weights(random_net):
    params, x = random_net
    louder = params | {"stem": params["stem"] | {"weight": 10 * params["stem"]["weight"]}}
    # It remembers only through the 1e-5 that is added to a variance of about 49: 1e-7, amplified by six layers.
    np.testing.assert_allclose(apply(louder, x), apply(params, x), rtol=1e-4)


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
