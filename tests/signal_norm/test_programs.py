"""lambda by hand through scan, while, cond and calls; errors and values by hand; the traced pieces of the loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.signal_norm import signal_norm, trace_signal

RTOL = 1e-5  # float32 sums of at most 1e4 squares in blocks, see test_products.py
RNG = np.random.default_rng(1)
START = np.random.default_rng(7).bit_generator.state


@pytest.fixture(autouse=True)
def _same_numbers_whatever_ran_before():
    RNG.bit_generator.state = START


def normal(*shape: int) -> jax.Array:
    return jnp.asarray(0.5 * RNG.normal(size=shape), jnp.float32)


def expected(inputs) -> float:
    return float(np.mean(np.sum(np.asarray(inputs, np.float64) ** 2, axis=-1)) ** -0.5)


X, SEQUENCE = normal(30, 6), normal(7, 5, 3)  # (data, features); (time, data, features)
RNN = {"in": normal(3, 4), "rec": normal(4, 4), "b": normal(4)}


def rnn_states(p, xs):
    """The states before each step, by a plain loop."""
    states = [np.zeros((xs.shape[1], 4), np.float32)]
    for x in np.asarray(xs):
        states.append(np.tanh(x @ np.asarray(p["in"]) + states[-1] @ np.asarray(p["rec"]) + np.asarray(p["b"])))
    return np.array(states[:-1])


def scanned_rnn(p, xs):
    def step(h, x):
        h = jnp.tanh(x @ p["in"] + p["b"] + h @ p["rec"])
        return h, h

    return jnp.sum(jax.lax.scan(step, jnp.zeros((xs.shape[1], 4)), xs)[0] ** 2)


def hoisted_rnn(p, xs):
    def step(h, x):
        return jnp.tanh(x + h @ p["rec"]), None

    return jnp.sum(jax.lax.scan(step, jnp.zeros((xs.shape[1], 4)), xs @ p["in"] + p["b"])[0] ** 2)


def unrolled_rnn(p, xs):
    h = jnp.zeros((xs.shape[1], 4))
    for x in xs:
        h = jnp.tanh(x @ p["in"] + h @ p["rec"] + p["b"])
    return jnp.sum(h**2)


def looped_rnn(p, xs):
    def step(i, h):
        return jnp.tanh(xs[i] @ p["in"] + h @ p["rec"] + p["b"])

    return jnp.sum(
        jax.lax.fori_loop(0, jnp.asarray(len(xs)) + 0 * jnp.int32(xs[0, 0, 0]), step, jnp.zeros((5, 4))) ** 2
    )


@pytest.mark.parametrize("rnn", [scanned_rnn, hoisted_rnn, unrolled_rnn, looped_rnn])
def test_input_and_recurrent_weights_share_one_sum(rnn):
    lam = signal_norm(rnn, RNN, SEQUENCE)
    both = expected(np.concatenate([SEQUENCE, rnn_states(RNN, SEQUENCE)], axis=-1))
    np.testing.assert_allclose([lam["in"].item(), lam["rec"].item()], both, rtol=RTOL)
    assert lam["b"].tolist() == [1.0]


def test_model_of_one_sequence_under_vmap():
    lam = signal_norm(lambda p, xs: jax.vmap(lambda x: scanned_rnn(p, x[:, None]), 1)(xs).sum(), RNN, SEQUENCE)
    both = expected(np.concatenate([SEQUENCE, rnn_states(RNN, SEQUENCE)], axis=-1))
    np.testing.assert_allclose([lam["in"].item(), lam["rec"].item()], both, rtol=RTOL)


def inputs_of_layers(ws):
    inputs = [np.asarray(X)]
    for w in np.asarray(ws):
        inputs.append(np.tanh(inputs[-1] @ w))
    return inputs


def by_scan(ws, x):
    return jnp.sum(jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, ws)[0])


def by_backward_scan(ws, x):
    return jnp.sum(jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, ws[::-1], reverse=True)[0])


def by_counter(ws, x):
    return jnp.sum(jax.lax.fori_loop(0, len(ws), lambda i, h: jnp.tanh(h @ ws[i]), x))


def by_index(ws, x):
    for i in range(len(ws)):
        x = jnp.tanh(x @ ws[i])
    return jnp.sum(x)


@pytest.mark.parametrize("stack", [by_scan, by_backward_scan, by_counter, by_index])
def test_stacked_layers_have_one_lambda_per_layer(stack):
    ws = normal(4, 6, 6)
    lam = signal_norm(stack, ws, X)
    assert lam.shape == (4, 1, 1)
    np.testing.assert_allclose(lam.ravel(), [expected(h) for h in inputs_of_layers(ws)[:-1]], rtol=RTOL)


def test_while_loop_counts_the_steps_taken():
    # h -> tanh(h w) until three steps are done; a step more or less changes the mean
    w = normal(6, 6)

    def loss(w, x):
        def step(state):
            return state[0] + 1, jnp.tanh(state[1] @ w)

        return jnp.sum(jax.lax.while_loop(lambda s: s[0] < 3, step, (0, x))[1])

    inputs = inputs_of_layers(jnp.stack([w, w, w]))[:-1]
    np.testing.assert_allclose(signal_norm(loss, w, X).item(), expected(np.array(inputs)), rtol=RTOL)


def test_while_loop_carrying_the_weights():
    w = normal(6, 6)

    def loss(w, x):
        return jnp.sum(jax.lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1], s[2] @ s[1]), (0, w, x))[2])

    np.testing.assert_allclose(signal_norm(loss, w, X).item(), expected(np.array([X, X @ w])), rtol=RTOL)


def test_carry_that_changes_is_no_weight():
    def loss(w, x):
        def step(state):
            return state[0] + 1, state[1] * jnp.mean(state[2]), state[2] @ state[1]

        return jnp.sum(jax.lax.while_loop(lambda s: s[0] < 2, step, (0, w, x))[2])

    assert signal_norm(loss, normal(6, 6), X).item() == 1


def test_row_read_by_a_carried_index_is_an_embedding():
    params = {"embedding": normal(4, 6), "w": normal(6, 2)}

    def loss(p, tokens):
        def step(state, token):
            index, total = state
            return (token, total + jnp.sum(p["embedding"][index] @ p["w"])), None

        return jax.lax.scan(step, (0, 0.0), tokens)[0][1]

    lam = signal_norm(loss, params, jnp.asarray([2, 1, 3]))
    assert lam["embedding"].tolist() == [[1.0]]
    np.testing.assert_allclose(lam["w"].item(), expected(params["embedding"][np.array([0, 2, 1])]), rtol=RTOL)


@pytest.mark.parametrize("taken", [0, 1])
def test_only_the_branch_taken_counts(taken):
    params = {"w": normal(6, 4), "v": normal(6, 4)}

    def loss(p, batch):
        x, which = batch
        one = lambda p, x: jnp.sum(x @ p["w"])  # noqa: E731
        two = lambda p, x: jnp.sum(x @ p["v"][:, ::-1] + (2 * x) @ p["v"][:, ::-1])  # noqa: E731
        return jax.lax.cond(which == 0, one, two, p, x) + jnp.sum((3 * x) @ p["w"])

    lam = signal_norm(loss, params, (X, jnp.asarray(taken)))
    # w weighs 3x always, and x in the first branch: 9 or the mean of 9 and 1; v weighs x and 2x into one neuron: 1 + 4
    wanted = [5 * expected(X) ** -2, 1] if taken == 0 else [9 * expected(X) ** -2, 5 * expected(X) ** -2]
    np.testing.assert_allclose([lam["w"].item() ** -2, lam["v"].item() ** -2], wanted, rtol=RTOL)


@jax.custom_jvp
def squash(x):
    return jnp.tanh(x)


squash.defjvp(lambda primals, tangents: (squash(*primals), tangents[0]))


@jax.custom_vjp
def layer(x, w):
    return jnp.tanh(x @ w)


layer.defvjp(lambda x, w: (layer(x, w), (x, w)), lambda kept, g: (g @ kept[1].T, kept[0].T @ g))
CALLS = {
    "jit": lambda x, w: jax.jit(lambda x, w: jnp.tanh(x @ w))(x, w),
    "remat": lambda x, w: jax.checkpoint(lambda x, w: jnp.tanh(x @ w))(x, w),
    "custom_jvp": lambda x, w: squash(x @ squash(w)),
    "custom_vjp": layer,
    "nested": lambda x, w: jax.jit(jax.checkpoint(jax.jit(layer)))(x, w),
}


@pytest.mark.parametrize("call", CALLS)
def test_calls_are_transparent(call):
    lam = signal_norm(lambda w, x: jnp.sum(CALLS[call](x, w)), normal(6, 4), X)
    np.testing.assert_allclose(lam.item(), expected(X), rtol=RTOL)


def test_pre_activation_leaves_a_jit_before_it_is_added_to():
    params = {"w": normal(6, 4), "v": normal(6, 4)}
    dense = jax.jit(lambda x, w: x @ w)
    lam = signal_norm(lambda p, x: jnp.sum(jnp.tanh(dense(x, p["w"]) + dense(2 * x, p["v"]))), params, X)
    both = (5 * expected(X) ** -2) ** -0.5  # x^2 + (2x)^2
    np.testing.assert_allclose([lam["w"].item(), lam["v"].item()], both, rtol=RTOL)


def host(w, x):
    return jax.pure_callback(lambda w, x: np.float32(np.sum(x @ w)), jax.ShapeDtypeStruct((), jnp.float32), w, x)


def ragged(w, x):
    return jnp.sum(jax.lax.ragged_dot(x, w[None], jnp.asarray([30])))


@pytest.mark.parametrize(("opaque", "met"), [(host, "pure_callback"), (ragged, "ragged_dot")])
def test_opaque_use_names_the_leaf_and_the_way_out(opaque, met):
    params = {"layers": [{"weight": normal(6, 4)}], "v": normal(4, 2)}

    def loss(p, x):
        return opaque(p["layers"][0]["weight"], x) + jnp.sum(x[:, :4] @ p["v"])

    with pytest.raises(
        ValueError, match=rf'"layers.0.weight" is used: .*{met}.*signal_norm={{"layers.0.weight": value}}'
    ):
        trace_signal(loss, params, X)
    lam = signal_norm(loss, params, X, {"layers.0.weight": 0.25})
    assert lam["layers"][0]["weight"].tolist() == [[0.25]]
    np.testing.assert_allclose(lam["v"].item(), expected(X[:, :4]), rtol=RTOL)


def test_activations_may_enter_opaque_calls():
    def loss(w, x):
        h = x @ w
        return jnp.sum(jax.pure_callback(np.sin, jax.ShapeDtypeStruct(h.shape, h.dtype), h))

    np.testing.assert_allclose(signal_norm(loss, normal(6, 4), X).item(), expected(X), rtol=RTOL)


def test_values_by_hand():
    params = {"w": normal(6, 4), "b": normal(4)}

    def loss(p, x):
        return jnp.sum(x @ p["w"] + p["b"])

    lam = signal_norm(loss, params, X, {"w": np.array([1.0, 2.0, 3.0, 4.0])})
    assert lam["w"].tolist() == [[1, 2, 3, 4]]
    assert lam["w"].dtype == jnp.float32
    with pytest.raises(ValueError, match=r'"W", which is no trainable leaf; the closest are .*"w"'):
        signal_norm(loss, params, X, {"W": 1.0})
    with pytest.raises(ValueError, match=r'signal_norm\["w"\] must be positive and finite, got -1.0'):
        signal_norm(loss, params, X, {"w": -1.0})
    with pytest.raises(ValueError, match=r'signal_norm\["w"\] must broadcast to the leaf \(6, 4\), got shape \(6,\)'):
        signal_norm(loss, params, X, {"w": np.ones(6)})


def test_leaves_whose_dotted_names_would_be_the_same():
    params = {"a.b": normal(6, 4), "a": {"b": normal(4, 3)}}

    def loss(p, x):
        return jnp.sum(jnp.tanh(x @ p["a.b"]) @ p["a"]["b"])

    lam = signal_norm(loss, params, X, {"['a']['b']": 0.5})
    np.testing.assert_allclose(lam["a.b"].item(), expected(X), rtol=RTOL)
    assert lam["a"]["b"].item() == 0.5
    with pytest.raises(ValueError, match=r'"a\.b", which is no trainable leaf; the closest are'):
        signal_norm(loss, params, X, {"a.b": 1.0})


def test_leaves_that_are_no_inexact_arrays_stay():
    params = {"w": normal(6, 4), "order": jnp.arange(4), "act": jnp.tanh, "n": 3, "key": jax.random.key(0)}

    def loss(p, x):
        return jnp.sum(p["act"](x @ p["w"])[:, p["order"]]) * p["n"] * jax.random.uniform(p["key"])

    lam = signal_norm(loss, params, X)
    assert [lam[name] for name in ("order", "act", "n", "key")] == [1.0] * 4
    np.testing.assert_allclose(lam["w"].item(), expected(X), rtol=RTOL)
    assert trace_signal(loss, params, X).paths == ("w",)


def test_one_pass_gives_the_loss_and_lambda_from_shapes_alone():
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (RNN, SEQUENCE))
    traced = trace_signal(scanned_rnn, *shapes)
    loss, lams = jax.jit(traced)(RNN, SEQUENCE)
    np.testing.assert_allclose(loss, scanned_rnn(RNN, SEQUENCE), rtol=RTOL)
    np.testing.assert_allclose(lams[1], signal_norm(scanned_rnn, RNN, SEQUENCE)["in"], rtol=RTOL)
    with pytest.raises(ValueError, match="batch must be what the loss was traced with"):
        traced(RNN, SEQUENCE[:3])


def test_sums_over_data_alone_come_from_terms():
    params = {"w": normal(6, 4), "v": normal(4, 2), "k": normal(3, 1, 1, 1)}

    def loss(p, x):
        images = jax.lax.conv_general_dilated(x.reshape(30, 1, 2, 3), p["k"], (1, 1), "VALID")
        return jnp.sum(jnp.tanh((x / 2) @ p["w"]) @ p["v"]) + jnp.sum(images**2)

    traced = trace_signal(loss, params, X)
    terms = jax.jit(traced.data_terms)(X)
    assert [t.size for t in terms] == [1, 1]
    _, (k, v, w) = traced(params, X, terms)
    _, plain = traced(params, X)
    np.testing.assert_allclose([k.item(), v.item(), w.item()], [lam.item() for lam in plain], rtol=RTOL)
    # given terms are used, and only for weights of data: a fourfold sum halves lambda
    _, (k, v2, w) = traced(params, X, [4 * t for t in terms])
    np.testing.assert_allclose(
        [k.item(), v2.item(), w.item()], [plain[0].item() / 2, v.item(), plain[2].item() / 2], rtol=RTOL
    )
    # and then the program does not square the batch: all that is left of it are the two products
    text = str(jax.make_jaxpr(lambda p, x, t: traced(p, x, t))(params, X, terms))
    assert "f32[30,6] = mul" not in text
    assert "f32[30,6] = mul" in str(jax.make_jaxpr(lambda p, x: traced(p, x))(params, X))
    with pytest.raises(ValueError, match="terms must be those of data_terms"):
        traced(params, X, terms[:1])


def test_chains_by_vmap_equal_a_loop():
    chains = jax.tree.map(lambda x: jnp.stack([x, 2 * x, 0 * x]), RNN)
    traced = trace_signal(scanned_rnn, RNN, SEQUENCE)
    together = jax.vmap(traced, (0, None))(chains, SEQUENCE)
    for i in range(3):
        alone = traced(jax.tree.map(lambda x, i=i: x[i], chains), SEQUENCE)
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=RTOL, atol=1e-7)


def test_data_closed_over_instead_of_a_batch():
    lam = signal_norm(lambda w: jnp.sum(jnp.tanh(X @ w)), normal(6, 4))
    np.testing.assert_allclose(lam.item(), expected(X), rtol=RTOL)


def test_printing_a_weight_is_no_use(capsys):
    def loss(w, x):
        jax.debug.print("largest weight {}", jnp.max(w))
        jax.debug.print("weights {}", w)
        return jnp.sum(x @ w)

    np.testing.assert_allclose(signal_norm(loss, normal(6, 4), X).item(), expected(X), rtol=RTOL)


def test_double_precision():
    with jax.enable_x64(True):
        x = jnp.linspace(0, 1, 1000, dtype=jnp.float64)[:, None]
        lam = signal_norm(lambda w, x: jnp.sum(x @ w), jnp.ones((1, 3), jnp.float64), x)
        assert lam.dtype == jnp.float64
        np.testing.assert_allclose(lam.item(), (1999 / 5994) ** -0.5, rtol=1e-14)  # 1000 additions, eps 1e-16


def test_public_name():
    assert gl.signal_norm is signal_norm
