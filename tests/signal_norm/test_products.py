"""lambda by hand for one product at a time: dense layers, convolutions, and how a weight reaches them."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradless.signal_norm import signal_norm, trace_signal

# float32 sums of at most 1e4 squares, added up in blocks: relative error below 1e-5 (1e4 additions of 6e-8 at worst
# would be 6e-4, but rounding errors are random and blocks short: measured below 1e-6).
RTOL = 1e-5
RNG = np.random.default_rng(0)
START = np.random.default_rng(7).bit_generator.state


@pytest.fixture(autouse=True)
def _same_numbers_whatever_ran_before():
    RNG.bit_generator.state = START


def normal(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def expected(inputs, fan_in_axes=-1) -> float:
    """Eq. (17) by NumPy in float64: mean over data of the sum over `fan_in_axes` of the squared inputs."""
    inputs = np.asarray(inputs, np.float64)
    return float(np.mean(np.sum(inputs**2, axis=fan_in_axes)) ** -0.5)


X = normal(30, 6)


def test_paper_input_of_a_thousand_points():
    # mean theta^2 over linspace(0, 1, 1000) is 1999/5994; lambda = 1.731618
    theta = jnp.linspace(0, 1, 1000)[:, None]
    lam = signal_norm(lambda p, x: jnp.sum(jnp.tanh(x @ p["w"] + p["b"])), {"w": normal(1, 5), "b": normal(5)}, theta)
    np.testing.assert_allclose(lam["w"], [[1.731618]], rtol=1e-6)
    assert lam["b"].tolist() == [1.0]


def test_images_with_known_sum_of_squares():
    # 3 images of 784 pixels: 100, 50 and no pixels of value 1, a quarter of them 1/2 in the second:
    # mean sum of squares = (100 + (38 + 12/4) + 0) / 3 = 141/3 = 47
    images = np.zeros((3, 784), np.float32)
    images[0, :100], images[1, :38], images[1, 38:50] = 1, 1, 0.5
    lam = signal_norm(lambda w, x: jnp.sum(x @ w), normal(784, 16), images)
    assert lam.shape == (1, 1)
    np.testing.assert_allclose(lam, 47**-0.5, rtol=RTOL)


def test_second_layer_sees_activations():
    params = {"one": normal(6, 4), "two": normal(4, 3)}
    lam = signal_norm(lambda p, x: jnp.sum(jnp.tanh(x @ p["one"]) @ p["two"]), params, X)
    np.testing.assert_allclose(lam["one"].item(), expected(X), rtol=RTOL)
    np.testing.assert_allclose(lam["two"].item(), expected(np.tanh(X @ params["one"])), rtol=RTOL)


@pytest.mark.parametrize("side", ["left", "right"])
def test_weight_on_either_side(side):
    # features first: W @ X.T
    product = (lambda w, x: jnp.sum(w.T @ x.T)) if side == "left" else (lambda w, x: jnp.sum(x @ w))
    np.testing.assert_allclose(signal_norm(product, normal(6, 4), X).item(), expected(X), rtol=RTOL)


def test_convolution_with_stride_padding_dilation_and_groups():
    x, kernel = normal(2, 4, 7, 6), normal(6, 2, 3, 2)  # NCHW, two groups of two channels, three features each

    def loss(w, x):
        return jnp.sum(
            jax.lax.conv_general_dilated(x, w, (2, 1), ((1, 2), (0, 1)), (1, 2), (2, 1), feature_group_count=2)
        )

    lam = signal_norm(loss, kernel, x)
    assert lam.shape == (6, 1, 1, 1)
    # the fields by brute force: image dilated by 2 across, padded; window of rows 0, 2, 4, columns 0, 1; stride (2, 1)
    image = np.zeros((2, 4, 7 + 3, 11 + 1))
    image[:, :, 1:8, 0:11:2] = x
    fields = [
        [[image[n, 2 * g : 2 * g + 2, r : r + 5 : 2, c : c + 2] for c in range(11)] for r in range(0, 6, 2)]
        for n in range(2)
        for g in range(2)
    ]
    for g in range(2):
        of_group = np.array(fields[g::2]).reshape(2, 3, 11, -1)
        np.testing.assert_allclose(lam[3 * g : 3 * g + 3].ravel(), expected(of_group), rtol=RTOL)


def test_a_weight_that_is_longer_than_the_signal_is_refused():
    # jnp.convolve then makes the weight the image and the signal the kernel
    def loss(weight, x):
        return jnp.mean(jax.vmap(lambda row: jnp.tanh(jnp.convolve(row, weight)))(x))

    assert signal_norm(loss, normal(2), X).shape == (1,)
    with pytest.raises(ValueError, match="enters a convolution as its image, with data as the kernel"):
        signal_norm(loss, normal(9), X)


def test_convolution_of_one_group_stays_one_number():
    x = normal(3, 8, 8, 2)

    def loss(w, x):
        return jnp.sum(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))

    lam = signal_norm(loss, normal(3, 3, 2, 5), x)
    assert lam.shape == (1, 1, 1, 1)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    fields = [padded[:, i : i + 3, j : j + 3].reshape(3, -1) for i in range(8) for j in range(8)]
    np.testing.assert_allclose(lam.item(), expected(np.array(fields)), rtol=RTOL)


def test_model_under_vmap():
    params = {"w": normal(4, 6), "v": normal(2, 4)}

    def loss(p, x):
        return jnp.mean(jax.vmap(lambda one: jnp.sum(p["v"] @ jnp.tanh(p["w"] @ one)))(x))

    lam = signal_norm(loss, params, X)
    assert lam["w"].shape == (1, 1)
    np.testing.assert_allclose(lam["w"].item(), expected(X), rtol=RTOL)
    np.testing.assert_allclose(lam["v"].item(), expected(np.tanh(X @ params["w"].T)), rtol=RTOL)


def test_bfloat16_is_squared_in_float32():
    # 4096 inputs of 1 + 1/128: added up in bfloat16 (8 bits) the sum would stall at 256
    x = jnp.full((2, 4096), 1 + 1 / 128, jnp.bfloat16)
    lam = signal_norm(lambda w, x: jnp.sum(x @ w.astype(jnp.bfloat16)), normal(4096, 2), x)
    np.testing.assert_allclose(lam.item(), expected(np.full((2, 4096), 1 + 1 / 128)), rtol=RTOL)
    half = signal_norm(lambda w, x: jnp.sum(x @ w), normal(4096, 2).astype(jnp.bfloat16), x)
    assert half.dtype == jnp.float32


def test_shared_weight_averages_over_uses():
    w = normal(6, 6)
    lam = signal_norm(lambda w, x: jnp.sum(jnp.tanh(x @ w) @ w), w, X)
    first, second = expected(X) ** -2, expected(np.tanh(X @ w)) ** -2
    np.testing.assert_allclose(lam.item(), ((first + second) / 2) ** -0.5, rtol=RTOL)


def test_fused_projection_read_by_slices():
    # columns 0-3 weigh x, 4-7 weigh its tanh, 8-9 are not used: lambda 1 there
    x, w = X, normal(6, 10)

    def loss(w, x):
        return jnp.sum((x @ w[:, :4]) ** 2) + jnp.sum((jnp.tanh(x) @ w[:, 4:8]) ** 2)

    lam = np.broadcast_to(signal_norm(loss, w, x), w.shape)
    np.testing.assert_allclose(lam[:, :4], expected(X), rtol=RTOL)
    np.testing.assert_allclose(lam[:, 4:8], expected(np.tanh(X)), rtol=RTOL)
    np.testing.assert_array_equal(lam[:, 8:], 1)


def test_weight_per_head():
    x = normal(9, 3, 5)
    lam = signal_norm(lambda w, x: jnp.sum(jnp.einsum("bhi,hio->bho", x, w) ** 2), normal(3, 5, 2), x)
    assert lam.shape == (3, 1, 1)
    np.testing.assert_allclose(lam.ravel(), [expected(x[:, h]) for h in range(3)], rtol=RTOL)


LAYOUTS = {
    "reshape": lambda w: w.reshape(2, 3, 4).reshape(6, 4),
    "transpose": lambda w: w.T.reshape(4, 6).T,
    "flip": lambda w: w[::-1],
    "roll": lambda w: jnp.roll(w, 2, axis=0),
    "gather": lambda w: w[np.array([3, 1, 2, 0, 4, 5])],
    "pad": lambda w: jnp.pad(w, ((0, 0), (0, 2))),
    "stack": lambda w: jnp.stack([w[:, i] for i in range(4)], axis=1),
    "mask": lambda w: w * jnp.asarray([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])[:, None],
    "triangle": jnp.triu,
    "sign": jnp.sign,
    "weight norm": lambda w: w / jnp.linalg.norm(w, axis=0),
    "stop gradient": jax.lax.stop_gradient,
    "barrier": lambda w: jax.lax.optimization_barrier((w, 1.0))[0],
    "scatter": lambda w: jnp.zeros((6, 5)).at[:, 1:].set(w),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_weight_seen_through(layout):
    lam = signal_norm(lambda w, x: jnp.sum((x @ LAYOUTS[layout](w)) ** 2), normal(6, 4), X)
    np.testing.assert_allclose(lam, np.full(lam.shape, expected(X)), rtol=RTOL)


def test_weight_copied_for_every_data_point():
    def loss(w, x):
        return jnp.sum(jnp.einsum("bi,bio->bo", x, jnp.broadcast_to(w, (30, 6, 4))) ** 2)

    lam = signal_norm(loss, normal(6, 4), X)
    assert lam.shape == (1, 1)
    np.testing.assert_allclose(lam.item(), expected(X), rtol=RTOL)


def test_slices_meet_their_own_inputs_after_rearranging():
    # the rows of w are read backwards in two halves: rows 5, 4, 3 weigh x[:, :3], rows 2, 1, 0 weigh tanh x[:, 3:]
    def loss(w, x):
        back = w[::-1]
        return jnp.sum((x[:, :3] @ back[:3]) ** 2) + jnp.sum((jnp.tanh(x[:, 3:]) @ back[3:]) ** 2)

    lam = signal_norm(loss, normal(6, 4), X)
    assert lam.shape == (6, 1)
    np.testing.assert_allclose(lam[3:, 0], expected(X[:, :3]), rtol=RTOL)
    np.testing.assert_allclose(lam[:3, 0], expected(np.tanh(X[:, 3:])), rtol=RTOL)


def test_sums_of_two_products_share_one_sum():
    y = normal(30, 3)
    params = {"w": normal(6, 4), "v": normal(3, 4), "b": normal(4)}
    lam = signal_norm(lambda p, b: jnp.sum(jnp.tanh(b[0] @ p["w"] + p["b"] + b[1] @ p["v"])), params, (X, y))
    both = expected(np.concatenate([X, y], axis=1))
    np.testing.assert_allclose([lam["w"].item(), lam["v"].item()], both, rtol=RTOL)


def test_three_products_in_one_sum():
    params = [normal(6, 4), normal(6, 4), normal(6, 4)]
    lams = signal_norm(lambda p, x: jnp.sum(jnp.tanh((x @ p[0] - (2 * x) @ p[1]) + (3 * x) @ p[2])), params, X)
    both = ((1 + 4 + 9) * expected(X) ** -2) ** -0.5
    np.testing.assert_allclose([lam.item() for lam in lams], both, rtol=RTOL)


def test_sum_that_stretches_one_product_over_positions():
    # y feeds the neuron at each of the 5 positions of x: one product of shape (30, 1, 4), one of (30, 5, 4)
    x, y, params = normal(30, 5, 6), normal(30, 3), {"w": normal(6, 4), "v": normal(3, 4)}
    lam = signal_norm(lambda p, b: jnp.sum(jnp.tanh(b[0] @ p["w"] + (b[1] @ p["v"])[:, None])), params, (x, y))
    both = (expected(x) ** -2 + expected(y) ** -2) ** -0.5
    np.testing.assert_allclose([lam["w"].item(), lam["v"].item()], both, rtol=RTOL)


def test_residual_stream_does_not_merge():
    # x1 = x + f(x) W is read by the next layer too, so x1 + g(x1) V is another neuron
    params = {"w": normal(6, 6), "v": normal(6, 6)}

    def loss(p, x):
        one = x @ p["w"]
        return jnp.sum((one + jnp.tanh(one) @ p["v"]) ** 2)

    lam = signal_norm(loss, params, X)
    np.testing.assert_allclose(lam["w"].item(), expected(X), rtol=RTOL)
    np.testing.assert_allclose(lam["v"].item(), expected(np.tanh(X @ params["w"])), rtol=RTOL)


def test_gates_read_by_slices_share_sums_gate_by_gate():
    # columns 0-1 of both products are added to each other; columns 2-3 feed neurons of their own
    y, params = normal(30, 3), {"w": normal(6, 4), "v": normal(3, 4)}

    def loss(p, b):
        i, h = b[0] @ p["w"], b[1] @ p["v"]
        return jnp.sum(jnp.tanh(i[:, :2] + h[:, :2])) + jnp.sum(jnp.tanh(i[:, 2:]) * jnp.tanh(h[:, 2:]))

    lam = signal_norm(loss, params, (X, y))
    both = expected(np.concatenate([X, y], axis=1))
    np.testing.assert_allclose(np.broadcast_to(lam["w"], (6, 4))[:, :2], both, rtol=RTOL)
    np.testing.assert_allclose(np.broadcast_to(lam["w"], (6, 4))[:, 2:], expected(X), rtol=RTOL)
    np.testing.assert_allclose(np.broadcast_to(lam["v"], (3, 4))[:, :2], both, rtol=RTOL)
    np.testing.assert_allclose(np.broadcast_to(lam["v"], (3, 4))[:, 2:], expected(y), rtol=RTOL)


def test_leaves_that_weigh_nothing_get_one():
    params = {
        "embedding": normal(10, 6),
        "scale": normal(6),
        "bias": normal(6),
        "w": normal(6, 2),
        "gain": normal(1, 2),
    }
    tokens = jnp.arange(8) % 5

    def loss(p, tokens):
        e = p["embedding"][tokens]
        h = (e - e.mean(-1, keepdims=True)) * p["scale"] + p["bias"]
        return jnp.sum(h @ (p["w"] * p["gain"])) + 1e-3 * sum(jnp.vdot(w, w) for w in jax.tree.leaves(p))

    for lam in (
        signal_norm(loss, params, tokens),
        signal_norm(lambda p: loss(p, tokens), params),
        signal_norm(lambda p, t: sum(loss(p, t[i : i + 1]) for i in range(8)), params, tokens),
    ):
        for name in ("embedding", "scale", "bias", "gain"):
            np.testing.assert_array_equal(lam[name], np.ones((1,) * params[name].ndim))
        assert lam["w"].item() != 1


def test_attention_products_of_activations_do_not_count():
    x, params = normal(2, 5, 6), {name: normal(6, 6) for name in "qkv"}

    def loss(p, x):
        q, k, v = (x @ p[name] for name in "qkv")
        return jnp.sum(jax.nn.softmax(q @ k.swapaxes(1, 2)) @ v)

    for lam in jax.tree.leaves(signal_norm(loss, params, x)):
        np.testing.assert_allclose(lam.item(), expected(x), rtol=RTOL)


def test_inputs_that_all_vanish_give_zero():
    lam = signal_norm(lambda p, x: jnp.sum((x @ p["w"]) @ p["v"]), {"w": normal(6, 4), "v": normal(4, 2)}, 0 * X)
    assert lam["w"].item() == lam["v"].item() == 0


def test_tiny_and_huge_inputs_stay_finite():
    # squares of 1e-30 and 1e30 leave the range of float32: lambda 0, never inf or NaN
    for scale in (1e-30, 1e-20, 1e30):
        assert np.isfinite(signal_norm(lambda w, x: jnp.sum(x @ w), normal(6, 4), scale * X)).all()


NET = trace_signal(lambda w, x: jnp.sum(x @ w), jnp.ones((5, 3)), jnp.ones((20, 5)))
LAMBDA = jax.jit(NET)


@settings(max_examples=50, deadline=None)
@given(c=st.floats(1e-3, 1e3), seed=st.integers(0, 1000))
def test_scaling_the_inputs_scales_lambda_inversely(c, seed):
    x = np.random.default_rng(seed).normal(size=(20, 5)).astype(np.float32)
    lam, scaled = (LAMBDA(jnp.ones((5, 3)), factor * x)[1][0] for factor in (1, np.float32(c)))
    np.testing.assert_allclose(scaled * np.float32(c), lam, rtol=RTOL)


def test_pre_activations_change_by_sigma():
    # Eq. (16): the variance over proposals of the change of a pre-activation (inputs held), averaged over data, is
    # sigma^2. num_moves independent moves give the variance with a relative standard error of at most
    # sqrt(2/num_moves) per neuron (equality when all data points move alike); 5 of them allow for 21 neurons.
    # The one nonlinearity: weights alone move, biases (lambda 1) would add their own sigma^2.
    sigma, num_moves = 1e-2, 4000
    widths = (6, 8, 8, 5)
    params = [normal(a, b) for a, b in pairwise(widths)]

    def layers(ws, x):
        inputs = [x]
        for w in ws:
            inputs.append(jnp.tanh(inputs[-1] @ w))
        return inputs

    lams = signal_norm(lambda ws, x: jnp.sum(layers(ws, x)[-1]), params, X)
    for i, (w, lam, h) in enumerate(zip(params, lams, layers(params, X), strict=False)):
        moves = sigma * lam * jax.random.normal(jax.random.key(i), (num_moves, *w.shape))
        change = jnp.einsum("di,mio->mdo", h, moves)
        variance = np.mean(np.var(change, axis=0), axis=0)
        np.testing.assert_allclose(variance, sigma**2, rtol=5 * (2 / num_moves) ** 0.5)
