"""Metrics that only Python can call: every bit they see and give, and whose exception is whose."""

import jax
import numpy as np
import pytest

from gradless.engine.flat import ByIdentity
from gradless.jaxprs import fingerprint
from gradless.models import MLP
from gradless.sklearn.hosted import HostMetric, Troubles
from gradless.sklearn.losses import MULTICLASS, metric_loss
from gradless.sklearn.nets import first_params
from gradless.sklearn.samples import Samples, as_data

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 3))
WEIGHT = RNG.integers(0, 4, 12).astype(float)
CLASSES = RNG.integers(0, 2, (12, 1)).astype(np.int32)
NET = MLP((3, 5, 2))


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


def loss_of(host):
    return jax.jit(metric_loss(NET, MULTICLASS, ByIdentity(host), True))


def params(dtype=np.float64):
    return first_params(NET, dtype, jax.random.key(1))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_metric_called_in_python_sees_and_gives_every_bit(dtype):
    seen = {}

    def metric(y, p, sample_weight):
        seen.update(y=y, p=p, w=sample_weight)
        return np.sum(p[:, 1] * sample_weight) / 3

    host = HostMetric(metric)
    data = Troubles().follow(host, as_data(Samples(X.astype(dtype), CLASSES, WEIGHT), None))
    with jax.enable_x64(dtype is np.float64):
        value = loss_of(host)(params(dtype), data)
    assert (seen["p"].dtype, seen["w"].dtype, seen["y"].shape) == (dtype, dtype, (12,))
    assert (seen["y"] == CLASSES[:, 0]).all()
    assert float(value) == float(dtype(np.sum(seen["p"][:, 1] * seen["w"]) / 3))


def test_of_two_fits_under_way_each_has_its_own_exceptions():
    def metric(y, p):
        if y[0] == 0:
            raise KeyError("mine")
        return float(p.shape[1])

    host, data = HostMetric(metric), as_data(Samples(X, CLASSES), None)
    loss, good, bad = loss_of(host), Troubles(), Troubles()
    of_good = good.follow(host, {**data, "y": np.ones_like(CLASSES)})
    of_bad = bad.follow(host, {**data, "y": np.zeros_like(CLASSES)})
    assert np.isnan(loss(params(), of_bad))
    assert loss(params(), of_good) == 2
    with Troubles() as late:  # a fit that begins in the meantime takes nothing away
        assert loss(params(), late.follow(host, of_good)) == 2
    good.check()
    with pytest.raises(KeyError, match="mine"):
        bad.check()
    assert loss._cache_size() == 1  # they share the program


def test_the_next_fit_is_traced_to_the_same_program():
    host = HostMetric(lambda y, p, sample_weight: 1.0)
    data = as_data(Samples(X, CLASSES, WEIGHT), None)

    def traced(metric):  # anew, as each fit does
        loss = metric_loss(NET, MULTICLASS, ByIdentity(metric), True)
        return jax.make_jaxpr(lambda *given: loss(*given))(params(), Troubles().follow(metric, data))

    first, next_one = traced(host), traced(host)  # both alive: no address is used twice
    assert fingerprint(first) == fingerprint(next_one)


@pytest.mark.parametrize("value", [None, "0.5", [0.5, 1], 1j])
def test_what_is_not_one_number_is_an_exception_too(value):
    host = HostMetric(lambda y, p: value)
    with pytest.raises(ValueError, match=r"^loss must return one number, got"), Troubles() as troubles:
        loss_of(host)(params(), troubles.follow(host, as_data(Samples(X, CLASSES), None)))


def end_with(error, host):
    """End a fit in which the metric has failed with an error of another kind."""
    with Troubles() as troubles:
        loss_of(host)(params(), troubles.follow(host, as_data(Samples(X, CLASSES), None))).block_until_ready()
        raise error


@pytest.mark.parametrize(("error", "seen"), [(ValueError, KeyError), (KeyboardInterrupt, KeyboardInterrupt)])
def test_an_exception_of_the_metric_comes_before_its_consequences_but_not_before_an_interrupt(error, seen):
    host = HostMetric(lambda y, p: {}["mine"])
    with pytest.raises(seen):
        end_with(error, host)
    assert host.troubles == {}
