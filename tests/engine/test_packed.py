"""Images are kept as bytes where nothing is lost by it, and a run does not show it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.engine.compiling import can_read_bytes
from gradless.engine.packed import MIN_SIZE, Bytes, read_as_bytes, widened
from gradless.models import MLP
from gradless.problem import Problem
from gradless.runs import rebuild

PIXELS = np.random.default_rng(0).integers(0, 256, (MIN_SIZE // 16, 16)).astype(np.uint8)
IMAGES = PIXELS / np.float32(255)
X = np.random.default_rng(1).normal(size=(16, 9)).astype(np.float32)


def multiplied(x, batch):
    return jnp.mean(jnp.tanh(batch @ x))


def squared(x, batch):
    return jnp.mean(batch**2) + jnp.mean(x)


def kept(images, value=multiplied):
    return read_as_bytes(lambda x, batch: value(x, widened(batch)), X, jnp.asarray(images))


@pytest.mark.parametrize(("images", "divisor"), [(IMAGES, 255), (PIXELS.astype(np.float32), 1)])
def test_images_are_kept_as_bytes(images, divisor):
    data, is_read = kept(images)
    assert is_read
    assert isinstance(data, Bytes)
    assert data.divisor == divisor
    np.testing.assert_array_equal(data.array, PIXELS)
    np.testing.assert_array_equal(jax.jit(widened)({"images": data})["images"], images)  # as compiled: no division


def changed(place, value):
    images = IMAGES.copy()
    images[place] = value
    return images


@pytest.mark.parametrize(
    "images",
    [
        changed((-1, -1), np.nextafter(IMAGES[-1, -1], np.float32(0.5))),  # no byte divided by 255
        changed((-1, -1), np.nan),
        changed((0, 0), -1 / 255),
        changed((0, 0), 256 / 255),
        changed((0, 0), np.float32(-0.0)),
        IMAGES[:-1],  # too few to matter
        IMAGES.reshape(-1),
    ],
    ids=["last bit", "nan", "negative", "above", "minus zero", "few", "numbers"],
)
def test_what_would_lose_something_stays(images):
    data, is_read = kept(images, squared if images.ndim == 1 else multiplied)
    assert not is_read
    np.testing.assert_array_equal(data, images)


def test_a_loss_that_does_not_multiply_them_gets_them_as_they_are():
    data, is_read = kept(IMAGES, squared)
    assert not is_read
    assert isinstance(data, jax.Array)
    assert data.dtype == jnp.float32


def test_a_compiler_without_the_option_gets_numbers(monkeypatch):
    monkeypatch.setattr("gradless.engine.compiling.FOR_BYTES", {"xla_cpu_no_such_option": "1"})
    can_read_bytes.cache_clear()
    data, is_read = kept(IMAGES)
    can_read_bytes.cache_clear()
    assert not is_read
    assert data.dtype == jnp.float32


def test_bytes_of_the_user_are_read_as_such():
    data, is_read = kept(PIXELS, lambda x, batch: multiplied(x, batch / 255))
    assert is_read
    assert data.dtype == jnp.uint8


NET = MLP((16, 8, 8, 3), head="softmax")
LABELS = np.arange(len(IMAGES)) % 3
BATCHES = {
    "full": gl.full_batch(),
    "minibatch": gl.minibatch(128),  # divides them: a short last minibatch would be compiled apart
    "held": gl.minibatch(128, hold=3),
    "progressive": gl.progressive(2048, lambda params, batch: wrong(params, batch), threshold=1.0, check_every=5),
}


def loss(params, batch):
    images, labels = batch
    return gl.models.mse(NET.apply(params, images), jax.nn.one_hot(labels, 3))


def wrong(params, batch):
    return jnp.mean(jnp.argmax(NET.apply(params, batch[0]), -1) != batch[1])


@pytest.mark.parametrize(
    ("batches", "signal_norm"),
    [(BATCHES["full"], True), pytest.param(BATCHES["held"], False, marks=pytest.mark.soak)],
)
def test_a_run_on_bytes_is_that_on_numbers(batches, signal_norm, monkeypatch):
    def trace():
        algorithm = gl.amc(sigma=1e-2, signal_norm=signal_norm)
        return gl.train(
            algorithm, loss, NET.init(jax.random.key(0), "pytorch"), data=(IMAGES, LABELS), steps=12, batches=batches,
            record_every=1,
        ).trace  # fmt: skip

    found = trace()
    monkeypatch.setattr("gradless.engine.train.read_as_bytes", lambda value, x, data: (data, False))
    # A loss of the order 1 in float32, on proposals that a few roundings do not move apart in twelve steps.
    np.testing.assert_allclose(found.loss, trace().loss, rtol=2e-5)


@pytest.mark.parametrize(
    "algorithm", [gl.gradient_descent(learning_rate=0.1), gl.adam(learning_rate=0.1)], ids=["gd", "adam"]
)
def test_gradients_see_numbers(algorithm, monkeypatch):
    monkeypatch.setattr("gradless.engine.train.read_as_bytes", None)
    start = NET.init(jax.random.key(0), "pytorch")
    assert gl.train(algorithm, loss, start, data=(IMAGES, LABELS), steps=2).steps == 2


LONG = [pytest.param(BATCHES[name], marks=pytest.mark.soak, id=name) for name in ("full", "held", "progressive")]
SHORT = [pytest.param(BATCHES["minibatch"], id="minibatch")]


@pytest.mark.parametrize("batches", [*SHORT, *LONG])
def test_a_run_on_bytes_goes_on_and_is_replayed(batches, tmp_path):
    algorithm, start = gl.amc(sigma=1e-2, signal_norm=True), NET.init(jax.random.key(0), "pytorch")
    given = {"data": (IMAGES, LABELS)}
    whole = gl.train(algorithm, loss, start, steps=20, batches=batches, **given)
    gl.train(algorithm, loss, start, steps=8, batches=batches, run=tmp_path / "run", **given)
    again = given | {"loss": loss, "params": start, "error": wrong}
    found = gl.resume(tmp_path / "run", steps=20, **again)
    jax.tree.map(np.testing.assert_array_equal, found.params, whole.params)
    problem = Problem(start, loss, (IMAGES, LABELS), error=wrong)
    checks = rebuild(tmp_path / "run", 20, problem, verify=True).checks
    assert dict(checks) == {0: None, 8: None, 20: None}
