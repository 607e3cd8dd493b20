"""What every algorithm of the table promises, one test for all."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.kernels import ALGORITHMS, algorithm_from_json, algorithm_to_json
from gradless.types import Evaluation

SETTINGS = {
    "mc": {"sigma": 0.1, "temperature": 0.05},
    "amc": {"sigma": 0.1, "epsilon": 0.1, "n_s": 3, "temperature": 0.05},
    "gd": {"learning_rate": 0.05},
    "adam": {"learning_rate": 0.05},
}
OTHER = {
    "mc": {"sigma": 0.2, "temperature": 0.1},
    "amc": {"sigma": 0.2, "epsilon": -0.2, "n_s": 4, "temperature": 0.1, "sigma_decay": 0.5},
    "gd": {"learning_rate": 0.02},
    "adam": {"learning_rate": 0.02, "b1": 0.5},
}
algorithms = pytest.mark.parametrize("name", ALGORITHMS)
traces = []  # one entry each time Python runs through the loss


def value(x):
    """A loss without products: the compiler has nothing to fuse, and its bits do not depend on the program."""
    return jnp.abs(x[0] - 1) + jnp.abs(x[1] + 2)


def loss(params):
    traces.append(1)
    return value(params)


def evaluation_for(algorithm):
    """Return the evaluation that the engine gives to an algorithm of this kind."""
    return lambda x: Evaluation(value(x), grad=jax.grad(value)(x) if algorithm.needs_gradient else None)


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def test_the_table_is_complete():
    assert set(SETTINGS) == set(OTHER) == set(ALGORITHMS) == {"mc", "amc", "gd", "adam"}
    for name, kernel in ALGORITHMS.items():
        assert kernel.name == name


def walk(algorithm, step, num=20, is_new=False):
    x, evaluate = jnp.array([0.3, -0.7]), evaluation_for(algorithm)
    states = [algorithm.init(x, evaluate(x))]
    for t in range(num):
        noise = algorithm.draw(jax.random.fold_in(jax.random.key(0), t), x)
        states.append(step(noise, states[-1], is_new)[0])
    return states


@algorithms
@pytest.mark.parametrize("is_new", [False, True])
def test_a_compiled_step_is_the_step(name, is_new):
    algorithm = ALGORITHMS[name](**SETTINGS[name])
    evaluate = evaluation_for(algorithm)
    compiled = jax.jit(lambda noise, state, is_new: algorithm.step(noise, state, evaluate, is_new), static_argnums=2)
    eager = walk(algorithm, lambda *args: algorithm.step(*args[:2], evaluate, args[2]), is_new=is_new)
    jitted = walk(algorithm, compiled, is_new=is_new)
    assert not np.array_equal(eager[0].x, eager[-1].x)
    for one, other in zip(jax.tree.leaves(eager), jax.tree.leaves(jitted), strict=True):
        if algorithm.needs_gradient:  # optax leaves a * b + c to the compiler: one rounding more or less a step
            np.testing.assert_allclose(one, other, rtol=20 * 2.0**-22)
        else:
            np.testing.assert_array_equal(one, other)


@algorithms
def test_steps_of_many_chains_at_once_are_the_steps_of_each(name):
    algorithm = ALGORITHMS[name](**SETTINGS[name])
    evaluate = evaluation_for(algorithm)
    points = jax.random.normal(jax.random.key(1), (5, 2))
    starts = jax.vmap(lambda x: algorithm.init(x, evaluate(x)))(points)
    noises = jax.vmap(lambda key: algorithm.draw(key, points[0]))(jax.random.split(jax.random.key(2), 5))
    together = jax.vmap(lambda noise, state: algorithm.step(noise, state, evaluate, False))(noises, starts)
    for place in range(5):
        noise, start, expected = jax.tree.map(lambda leaf: leaf[place], (noises, starts, together))  # noqa: B023
        alone = algorithm.step(noise, start, evaluate, False)
        if algorithm.needs_gradient:
            for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves(expected), strict=True):
                np.testing.assert_allclose(one, other, rtol=2.0**-22)  # as above, one step
        else:
            assert same(alone, expected)


@algorithms
def test_a_step_is_a_pure_function(name):
    algorithm = ALGORITHMS[name](**SETTINGS[name])

    def step(noise, state, is_new):
        return algorithm.step(noise, state, evaluation_for(algorithm), is_new)

    assert same(walk(algorithm, step, num=3), walk(algorithm, step, num=3))


@algorithms
@pytest.mark.parametrize("is_new", [False, True])
def test_the_promised_number_of_evaluations_is_made(name, is_new):
    """One loss per step on a fixed batch; the Monte Carlo kernels need two on a new one."""
    algorithm = ALGORITHMS[name](**SETTINGS[name])
    passes = []

    def counted(x):
        passes.append(1)
        return evaluation_for(algorithm)(x)

    walk(algorithm, lambda *args: algorithm.step(*args[:2], counted, args[2]), num=4, is_new=is_new)
    assert len(passes) == 4 * algorithm.evaluations(is_new)
    assert algorithm.evaluations(False) == 1


@algorithms
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_the_type_of_x_is_kept_by_a_step(name, dtype):
    with jax.enable_x64(dtype == "float64"):
        algorithm = ALGORITHMS[name](**SETTINGS[name])
        evaluate = evaluation_for(algorithm)
        x = jnp.array([0.3, -0.7], dtype)
        start = algorithm.init(x, evaluate(x))
        state, _ = algorithm.step(algorithm.draw(jax.random.key(0), x), start, evaluate, False)
        for before, after in zip(jax.tree.leaves(start), jax.tree.leaves(state), strict=True):
            assert after.dtype == before.dtype
            assert after.shape == before.shape
        assert state.x.dtype == dtype


@algorithms
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_a_run_keeps_the_type_of_the_parameters_and_moves_them(name, dtype):
    # In bfloat16 too: numbers such as the 0.999 of Adam must not be rounded to 1 on the way.
    algorithm = ALGORITHMS[name](**SETTINGS[name])
    start = np.array([0.25, -0.75], jnp.dtype(dtype))
    result = gl.train(algorithm, loss, start, steps=50)
    assert result.params.dtype == dtype
    assert np.isfinite(result.loss)
    assert result.loss < float(value(jnp.asarray(start, jnp.float32)))
    assert result.stopped_by == "steps"


def uphill(params):
    return jnp.where(params[0] == 1, 0.0, 1.0)


def test_a_count_is_not_rounded_to_the_precision_of_x():
    """bfloat16 has 8 bits: between 512 and 1024 it knows every fourth whole number."""
    algorithm = gl.amc(sigma=64.0, n_s=1000, sigma_decay=0.5)
    before, after = (gl.train(algorithm, uphill, jnp.ones(1, jnp.bfloat16), steps=steps) for steps in (999, 1000))
    assert before.acceptance == after.acceptance == 0
    assert (before.sigma, int(before.state.n_cr)) == (64, 999)
    assert (after.sigma, int(after.state.n_cr)) == (32, 0)


@algorithms
def test_no_other_number_traces_the_loss_again(name):
    """Another sigma, another number of steps, another seed, a second call: all run the program that is compiled."""
    params = jnp.array([0.25, -0.75])
    before = len(traces)
    gl.train(ALGORITHMS[name](**SETTINGS[name]), loss, params, steps=50)
    first = len(traces) - before
    # The check of the loss, the start, and the loop, in which the compiler may look twice at a branch or its shapes.
    assert first <= 12
    gl.train(ALGORITHMS[name](**OTHER[name]), loss, params, steps=333, seed=5, record_every=7, target_loss=1e-9)
    gl.train(ALGORITHMS[name](**SETTINGS[name]), loss, params + 1, steps=20, chains=3)
    # Each call checks its loss once, before anything is compiled.
    assert len(traces) - before - first <= 2


@algorithms
def test_algorithms_are_read_back_from_json(name):
    algorithm = ALGORITHMS[name](**SETTINGS[name])
    table = algorithm_to_json(algorithm)
    assert table["name"] == name
    assert algorithm_to_json(algorithm_from_json(table)) == table


def test_arrays_infinity_and_annealing_are_read_back_from_json():
    algorithm = gl.amc(sigma=np.array([0.5, 0.25]), n_s=float("inf"), temperature=gl.anneal(1.0, 0.5, 10))
    back = algorithm_from_json(algorithm_to_json(algorithm))
    np.testing.assert_array_equal(back.sigma, [0.5, 0.25])
    assert back.n_s == float("inf")
    assert back.temperature(jnp.int32(10)) == 0.5


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"name": "sgd"}, "algorithm must be one of mc, amc, gd, adam"),
        ({"name": "mc", "sigmo": 1.0}, "algorithm must be one of mc, amc, gd, adam with its settings"),
        ({"name": "mc", "sigma": -1.0}, "sigma must be positive, got -1.0"),
        ({"name": "mc", "temperature": "module:function"}, "temperature was module:function, a function"),
    ],
)
def test_a_wrong_table_is_refused(table, message):
    with pytest.raises(ValueError, match=message):
        algorithm_from_json(table)
