"""The fully connected net against hand-written NumPy, and its parameter counts against the paper's."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradless.models import MLP

KEY = jax.random.key(0)


def by_hand(mlp, params, x):
    """The same net in NumPy float64, written from the formulas."""
    responses = {
        "tanh": np.tanh,
        "relu": lambda z: np.maximum(z, 0),
        "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
        "sine": np.sin,
        "step": lambda z: np.where(z > 0, 1.0, 0.0),
        "identity": lambda z: z,
    }
    layers = jax.tree.map(lambda leaf: np.asarray(leaf, float), params["layers"])
    h = np.asarray(x, float)
    for layer in layers[:-1]:
        z = h @ layer["weight"] + layer["bias"]
        if mlp.layer_norm:
            z = (z - z.mean(1, keepdims=True)) / np.sqrt(z.var(1, keepdims=True) + 1e-5)
            z = z * layer["scale"] + layer["offset"]
        out = responses[mlp.activation](z)
        h = h + out if mlp.skip and out.shape == h.shape else out
    outputs = h @ layers[-1]["weight"] + layers[-1]["bias"]
    if mlp.head == "softmax":
        outputs = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    return outputs


@pytest.mark.parametrize("activation", ["tanh", "relu", "sigmoid", "sine", "step", "identity"])
@pytest.mark.parametrize(
    ("head", "skip", "layer_norm"), [("linear", False, False), ("softmax", True, False), ("linear", True, True)]
)
def test_apply_equals_numpy(activation, head, skip, layer_norm):
    mlp = MLP((3, 5, 5, 4, 4, 2), activation, head, skip, layer_norm)
    with jax.enable_x64(True):
        # All leaves random, scales and offsets too, so that a forgotten one shows.
        rng = np.random.default_rng(0)
        shapes = jax.eval_shape(lambda key: mlp.init(key, "pytorch"), KEY)
        params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), shapes)
        x = rng.normal(size=(7, 3))
        # Float64 rounding, 1e-16 per operation, some hundred operations, and layer norm may amplify it tenfold.
        np.testing.assert_allclose(jax.jit(mlp.apply)(params, x), by_hand(mlp, params, x), rtol=1e-12, atol=1e-12)


def test_one_neuron_by_hand():
    params = {"layers": [{"weight": jnp.array([[2.0]]), "bias": jnp.array([-1.0])}] * 2}
    # z = 2 * 0.75 - 1 = 0.5; output 2 tanh(0.5) - 1.
    for activation, hidden in (("tanh", math.tanh(0.5)), ("step", 1.0), ("identity", 0.5), ("sine", math.sin(0.5))):
        net = MLP((1, 1, 1), activation)
        np.testing.assert_allclose(net.apply(params, jnp.array([[0.75]])), [[2 * hidden - 1]], rtol=1e-6)
    # With a skip the hidden state is 0.75 + tanh(0.5).
    skipped = MLP((1, 1, 1), skip=True).apply(params, jnp.array([[0.75]]))
    np.testing.assert_allclose(skipped, [[2 * (0.75 + math.tanh(0.5)) - 1]], rtol=1e-6)


def test_the_threshold_is_silent_at_zero():
    net = MLP((1, 1, 1), "step")
    params = {"layers": [{"weight": jnp.ones((1, 1)), "bias": jnp.zeros(1)}] * 2}
    np.testing.assert_array_equal(net.apply(params, jnp.array([[-1.0], [0.0], [1e-30]])), [[0.0], [0.0], [1.0]])


@pytest.mark.parametrize(
    ("widths", "expected"),
    [
        ((784, 16, 16, 10), 13_002),  # F1
        ((1, 10, 10, 1), 141),  # F2a
        ((1, 1000, 1000, 1), 1_004_001),
        ((1, 25, 25, 1), 726),  # F2b
        ((1, *[25] * 10, 1), 5_926),
        ((1, *[4] * 127, 10, 1), 2_589),  # F6, depth 128
        ((1, 100, 1), 301),  # F4
    ],
)
def test_parameter_counts_are_the_papers(widths, expected):
    assert MLP(widths).num_parameters == expected


def test_layer_norm_adds_a_scale_and_an_offset_per_hidden_neuron():
    assert MLP((1, 4, 4, 10, 1), layer_norm=True).num_parameters == MLP((1, 4, 4, 10, 1)).num_parameters + 2 * 18
    params = MLP((1, 4, 1), layer_norm=True).init(KEY, "gaussian:0.01")
    np.testing.assert_array_equal(params["layers"][0]["scale"], np.ones(4))
    np.testing.assert_array_equal(params["layers"][0]["offset"], np.zeros(4))
    assert set(params["layers"][1]) == {"weight", "bias"}


def test_uniform_start_gives_uniform_probabilities():
    net = MLP((784, 16, 16, 10), head="softmax")
    outputs = net.apply(net.init(KEY, "gaussian:0"), jnp.ones((3, 784)))
    np.testing.assert_allclose(outputs, np.full((3, 10), 0.1), rtol=2e-7)  # one float32 rounding


def test_layers_differ_and_keys_repeat():
    net = MLP((4, 4, 4))
    first, second = net.init(KEY, "pytorch")["layers"]
    assert not np.allclose(first["weight"], second["weight"])
    again = net.init(KEY, "pytorch")["layers"][0]
    np.testing.assert_array_equal(first["weight"], again["weight"])


def test_kaiming_uses_the_gain_of_the_activation_but_not_for_the_head():
    # Ratio of widths of the same draws, so exact up to rounding.
    relu, plain = (MLP((50, 50, 50), activation).init(KEY, "kaiming")["layers"] for activation in ("relu", "identity"))
    np.testing.assert_allclose(relu[0]["weight"], math.sqrt(2) * plain[0]["weight"], rtol=1e-6)
    np.testing.assert_array_equal(relu[1]["weight"], plain[1]["weight"])


@pytest.mark.parametrize("activation", ["relu", "sine", "step", "identity"])
def test_the_gain_keeps_the_signal(activation):
    # E[act(z)^2] gain^2 = 1 for z ~ N(0, 1); a mean of a million has standard error below 2e-3; we allow five.
    from gradless.models.mlp import ACTIVATIONS

    respond, gain = ACTIVATIONS[activation]
    z = jax.random.normal(KEY, (1_000_000,))
    np.testing.assert_allclose(jnp.mean(respond(z) ** 2) * gain**2, 1, atol=0.01)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_parameters_set_the_precision(dtype):
    with jax.enable_x64(True):
        net = MLP((3, 4, 2), head="softmax", layer_norm=True, skip=True)
        params = net.init(KEY, "pytorch", dtype=dtype)
        assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(dtype)}
        for x in (np.ones((2, 3)), np.ones((2, 3), np.uint8), np.ones((2, 3), np.float32)):
            assert net.apply(params, x).dtype == dtype


def test_jit_vmap_and_single_samples_agree_with_the_batch():
    net = MLP((3, 6, 2), head="softmax", layer_norm=True)
    params = net.init(KEY, "pytorch")
    x = jax.random.normal(jax.random.key(2), (5, 3))
    batch = net.apply(params, x)
    # Different compilations may sum in different orders: a few float32 roundings of numbers below 1.
    np.testing.assert_allclose(jax.jit(net.apply)(params, x), batch, atol=1e-6)
    np.testing.assert_allclose(jax.vmap(net.apply, (None, 0))(params, x), batch, atol=1e-6)
    np.testing.assert_allclose(net.apply(params, x[0]), batch[0], atol=1e-6)


def test_paths_read_well():
    params = MLP((2, 3, 1)).init(KEY, "pytorch")
    paths = {jax.tree_util.keystr(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
    assert paths == {
        "['layers'][0]['weight']": (2, 3),
        "['layers'][0]['bias']": (3,),
        "['layers'][1]['weight']": (3, 1),
        "['layers'][1]['bias']": (1,),
    }


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"widths": (3,)}, r"widths must be two or more positive whole numbers, got \(3,\)"),
        ({"widths": (3, 0, 1)}, r"widths must be .* got \(3, 0, 1\)"),
        ({"widths": (3, 2.5)}, r"widths must be .* got \(3, 2.5\)"),
        ({"widths": (3, 1), "activation": "swish"}, r"activation must be one of tanh, relu, .*, got 'swish'"),
        ({"widths": (3, 1), "head": "tanh"}, r"head must be one of linear, softmax, got 'tanh'"),
    ],
)
def test_wrong_settings_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        MLP(**settings)


def test_settings_hash_even_when_given_a_list():
    assert hash(MLP([1, 2, 1])) == hash(MLP((1, 2, 1)))
