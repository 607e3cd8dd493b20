"""The recurrent net against a loop in NumPy, its count and its start."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradless.models import RNN

KEY = jax.random.key(0)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def by_hand(cell, params, x, hidden):
    """One sample, one time step and one layer at a time, in PyTorch's documented equations."""
    params = jax.tree.map(lambda leaf: np.asarray(leaf, float), params)
    logits = []
    for sequence in np.asarray(x, float):
        states = [np.zeros(hidden) for _ in params["layers"]]
        for signal in sequence:
            for i, layer in enumerate(params["layers"]):
                from_x = signal @ layer["weight_input"] + layer["bias_input"]
                from_h = states[i] @ layer["weight_recurrent"] + layer["bias_recurrent"]
                if cell == "tanh":
                    states[i] = np.tanh(from_x + from_h)
                else:
                    r = sigmoid(from_x[:hidden] + from_h[:hidden])
                    z = sigmoid(from_x[hidden : 2 * hidden] + from_h[hidden : 2 * hidden])
                    n = np.tanh(from_x[2 * hidden :] + r * from_h[2 * hidden :])
                    states[i] = (1 - z) * n + z * states[i]
                signal = states[i]
        logits.append(states[-1] @ params["head"]["weight"] + params["head"]["bias"])
    return np.array(logits)


@pytest.mark.parametrize("cell", ["tanh", "gru"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_apply_equals_numpy(cell, depth):
    rnn = RNN(inputs=2, hidden=4, outputs=3, depth=depth, cell=cell)
    with jax.enable_x64(True):
        params = rnn.init(KEY, "gaussian:0.7", recurrent="gaussian:0.7")
        x = jax.random.normal(jax.random.key(1), (3, 6, 2))
        # Float64 rounding over six steps; tanh and sigmoid never amplify by more than the weights, below 3.
        np.testing.assert_allclose(jax.jit(rnn.apply)(params, x), by_hand(cell, params, x, 4), rtol=1e-11, atol=1e-11)


def test_one_neuron_two_steps_by_hand():
    one = {
        "weight_input": jnp.array([[0.5]]),
        "bias_input": jnp.array([0.1]),
        "weight_recurrent": jnp.array([[-2.0]]),
        "bias_recurrent": jnp.array([0.2]),
    }
    params = {"layers": [one], "head": {"weight": jnp.array([[3.0]]), "bias": jnp.array([1.0])}}
    first = np.tanh(0.5 * 1.0 + 0.1 + 0.2)
    second = np.tanh(0.5 * 4.0 + 0.1 - 2.0 * first + 0.2)
    logits = RNN(inputs=1, hidden=1, outputs=1, depth=1).apply(params, jnp.array([[[1.0], [4.0]]]))
    np.testing.assert_allclose(logits, [[3.0 * second + 1.0]], rtol=1e-5)  # float32, slope of the map below 10


@pytest.mark.parametrize(("cell", "expected"), [("tanh", 12_802), ("gru", 3 * 12_672 + 130)])
def test_parameter_counts(cell, expected):
    assert RNN(cell=cell).num_parameters == expected


def test_start_is_pytorchs_with_a_gaussian_head():
    params = RNN().init(KEY, "gaussian:0.001")
    for layer in params["layers"]:
        for leaf in layer.values():
            # U(+-1/8): all within, and the largest of 64 or more comes near the bound (it fails to by (3/4)^64 = 1e-8).
            assert 0.75 / 8 < jnp.abs(leaf).max() <= 1 / 8
    # 128 numbers: standard deviation to 1/sqrt(256) = 6%, five of which we allow.
    np.testing.assert_allclose(params["head"]["weight"].std(), 1e-3, rtol=0.31)
    leaves = [leaf.ravel()[:64] for leaf in jax.tree.leaves(params["layers"])]
    assert all(not np.allclose(a, b) for i, a in enumerate(leaves) for b in leaves[:i])


def test_integers_and_doubles_are_read_in_the_precision_of_the_parameters():
    with jax.enable_x64(True):
        rnn = RNN(hidden=3)
        params = rnn.init(KEY, "gaussian:0.1", dtype="float32")
        for x in (np.ones((2, 4, 2), np.uint8), np.ones((2, 4, 2))):
            assert rnn.apply(params, x).dtype == jnp.float32


def test_time_is_one_scan_with_all_layers_in_its_body():
    rnn = RNN(hidden=3)
    params = rnn.init(KEY, "gaussian:0.1")
    jaxpr = jax.make_jaxpr(rnn.apply)(params, jnp.ones((2, 50, 2)))
    assert [eqn.primitive.name for eqn in jaxpr.eqns].count("scan") == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hidden": 0}, r"hidden must be a positive whole number, got 0"),
        ({"depth": 1.5}, r"depth must be a positive whole number, got 1.5"),
        ({"cell": "lstm"}, r"cell must be one of tanh, gru, got 'lstm'"),
    ],
)
def test_wrong_settings_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        RNN(**settings)
