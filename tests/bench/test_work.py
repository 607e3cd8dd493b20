"""The work of a loss, against numbers worked out by hand."""

import jax
import jax.numpy as jnp
import pytest

from gradless.bench.roofline import Machine, measure_machine, work_per_step
from gradless.bench.work import Operations, work_of
from gradless.bench.workloads import tiny
from gradless.models import MLP, RNN, ResNet


def shapes(*sizes):
    return [jax.ShapeDtypeStruct(size, jnp.float32) for size in sizes]


def test_products_are_counted_twice_for_each_multiplication():
    work = work_of(lambda a, b: jnp.tanh(a @ b), *shapes((5, 7), (7, 3)))
    assert work == Operations(flops=2 * 5 * 7 * 3, transcendentals=15, bytes=4 * (35 + 21))


def test_a_loop_is_counted_as_often_as_it_runs():
    def function(h, w):
        return jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), None), h, None, length=6)[0]

    assert work_of(function, *shapes((5, 7), (7, 7)))[:2] == (6 * 2 * 5 * 49, 6 * 35)


@pytest.mark.parametrize(("size", "stride", "taps"), [(4, 1, 10), (4, 2, 5), (2, 1, 4), (1, 1, 1)])
def test_the_margin_of_an_image_is_no_work(size, stride, taps):
    """Of a kernel of three all taps lie inside but one at each end: 3 x 4 - 2 = 10 for four pixels."""

    def function(image, kernel):
        padding = ((1, 1), (1, 1))
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(image, kernel, (stride, stride), padding, dimension_numbers=numbers)

    work = work_of(function, *shapes((5, size, size, 2), (3, 3, 2, 6)))
    assert work.flops == 2 * taps**2 * 5 * 2 * 6


@pytest.mark.parametrize(
    ("net", "inputs", "flops", "transcendentals"),
    [
        (MLP((784, 16, 16, 10)), (60_000, 784), 1.5552e9, 60_000 * 32),
        (MLP((1, *[4] * 127, 10, 1)), (1000, 1), 4.14e6, 518_000),
        (RNN(), (1500, 784, 2), 2 * 1500 * (784 * (2 * 64 + 3 * 64 * 64) + 64 * 2), 1500 * 784 * 128),
    ],
)
def test_the_work_of_the_papers_nets(net, inputs, flops, transcendentals):
    params = jax.eval_shape(lambda: net.init(jax.random.key(0), "pytorch"))
    work = work_of(net.apply, params, *shapes(inputs))
    assert work.flops == pytest.approx(flops)
    assert work.transcendentals == transcendentals


def test_an_image_of_mnist_is_35_million_operations_for_resnet_18():
    net = ResNet()
    params = jax.eval_shape(lambda: net.init(jax.random.key(0), "kaiming"))
    assert work_of(net.apply, params, *shapes((1, 28, 28, 1))).flops == pytest.approx(35.7e6, rel=0.01)


def test_a_minibatch_step_is_two_losses():
    workload = tiny("W4")
    params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), workload.start())
    batch = jax.tree.map(lambda array: array[: workload.batch], workload.data)
    once = work_of(workload.problem.loss, params, batch)
    assert work_per_step(workload) == Operations(*(2 * number for number in once))


def test_the_roofline_is_the_slower_of_reading_and_computing():
    machine = Machine(flops=100.0, bandwidth=10.0, transcendentals=5.0)
    assert machine.seconds(Operations(200.0, 10.0, 1.0)) == 4.0
    assert machine.seconds(Operations(200.0, 10.0, 50.0)) == 5.0


def test_the_machine_is_measured():
    assert all(rate > 1e6 for rate in measure_machine(tries=1, scale=64))
