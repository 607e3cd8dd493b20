"""`gl.train` as its users see it: what it takes, what it gives, when it stops, what it refuses."""

import copy
import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.engine import session
from gradless.engine.loop import is_record
from gradless.records import RunError
from gradless.settings import settings

MC = gl.metropolis(sigma=0.1)
START = np.array([0.25, -0.75], np.float32)


def loss(params):
    return jnp.max(jnp.abs(params - 1))


def metrics(params):
    return {"distance": jnp.max(jnp.abs(params - 1)), "first": params[0]}


def train(algorithm=MC, params=START, **settings):
    return gl.train(algorithm, loss, params, **({"steps": 200, "record_every": 1} | settings))


def test_a_run_ends_with_what_its_trace_says():
    result = train()
    assert result.stopped_by == "steps"
    assert result.steps == result.trace.step[-1] == 200
    assert result.loss == result.trace.loss[-1] == loss(result.params)
    assert result.trace.loss[0] == loss(START)
    assert result.loss < result.trace.loss[0]
    assert np.all(np.diff(result.trace.loss) <= 0)
    assert result.evaluations == 201
    assert np.all(np.diff(result.trace.seconds) >= 0)
    assert result.trace.seconds[-1] <= result.seconds * (1 + 1e-9)
    np.testing.assert_array_equal(result.trace.epoch, result.trace.step)


@pytest.mark.parametrize("record_every", [1, 7])
def test_a_minibatch_without_a_loss_rejects_its_moves_and_ends_nothing(record_every):
    data = np.linspace(0, 1, 40, dtype=np.float32)
    data[3] = np.nan
    given = {"data": data, "batches": gl.minibatch(4), "steps": 300, "record_every": record_every}
    result = gl.train(gl.amc(sigma=0.1), lambda x, batch: jnp.mean((x - batch) ** 2), np.float32(3), **given)
    assert (result.stopped_by, result.steps) == ("steps", 300)
    assert result.trace.nonfinite[-1] == 30  # one of ten minibatches
    assert abs(result.params - 0.5) < 0.5


@pytest.mark.parametrize("signal_norm", [False, True])
@pytest.mark.parametrize("batches", [None, gl.minibatch(3), gl.progressive(2, lambda params, batch: jnp.sum(params))])
def test_keys_of_random_numbers_may_be_data(batches, signal_norm):
    keys = jax.random.split(jax.random.key(0), 6)
    noise = jax.vmap(jax.random.normal)(keys)

    def noisy(x, batch):
        return jnp.mean((x - jax.vmap(jax.random.normal)(batch)) ** 2)

    algorithm = gl.amc(sigma=0.1, signal_norm=signal_norm)
    result = gl.train(algorithm, noisy, np.full(1, 9, np.float32), data=keys, steps=400, batches=batches)
    assert abs(result.params[0] - noise.mean()) < noise.std() + 0.1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_key_among_the_parameters_rides_along(dtype):
    params = {"w": np.ones(2, dtype), "key": jax.random.key(3)}
    found = gl.train(MC, lambda params: jnp.sum(params["w"] ** 2), params, steps=3).params
    assert found["key"] is params["key"]
    assert found["w"].dtype == dtype


def test_strict_promotion_of_the_callers_changes_nothing():
    algorithm = gl.amc(sigma=0.1, epsilon=0.1, temperature=gl.anneal(1e-2, 1e-3, 20))
    expected = train(algorithm, steps=20)
    with jax.numpy_dtype_promotion("strict"):
        np.testing.assert_array_equal(train(algorithm, steps=20).params, expected.params)


def test_columns_of_a_trace_are_attributes_and_items():
    trace = train(steps=4).trace
    np.testing.assert_array_equal(trace.loss, trace["loss"])
    assert set(trace) == {
        *("step", "epoch", "evaluations", "samples", "seconds", "loss", "acceptance", "sigma", "nonfinite"),
    }
    assert len(trace) == 9
    assert "5 records of step" in repr(trace)
    with pytest.raises(AttributeError, match="the trace has no 'accuracy'; it has step"):
        _ = trace.accuracy


@pytest.mark.parametrize("chains", [1, 2])
def test_a_result_is_printed_in_a_few_lines(tmp_path, chains):
    """A net may hold millions of numbers, and none of them is printed."""
    names = ["loss U", "acceptance", "sigma at the end", "steps", "evaluations", "time"]
    result = train(steps=4, chains=chains)
    lines = repr(result).splitlines()
    assert [line.split("  ")[0] for line in lines] == names
    assert lines[3] == "steps             4 (all steps done)"
    result = train(steps=4, chains=chains, run=tmp_path / "run", metrics=lambda x: {"first": x[0]})
    lines = repr(dataclasses.replace(result, advice="look again")).splitlines()
    assert [line.split("  ")[0] for line in lines] == ["first", *names, "run", "advice"]
    assert lines[-2:] == [f"run               {tmp_path / 'run'}", "advice            look again"]


@pytest.mark.parametrize("again", [copy.deepcopy, lambda result: pickle.loads(pickle.dumps(result))])  # noqa: S301 (our own)
def test_a_result_can_be_copied_and_sent_to_another_process(again):
    result = train(steps=4)
    there = again(result)
    np.testing.assert_array_equal(there.trace.loss, result.trace.loss)
    assert repr(there.trace) == repr(result.trace)
    assert there.loss == result.loss


def nested_loss(params):
    return jnp.sum(params["layers"][0][0] ** 2) + params["scale"] ** 2 + params["steps"][1]


def test_parameters_may_be_any_tree_and_what_is_not_floating_point_rides_along():
    params = {"layers": [(np.ones((2, 3), np.float32),)], "scale": 2.0, "steps": np.array([1, 5])}
    result = gl.train(MC, nested_loss, params, steps=50)
    assert jax.tree.structure(result.params) == jax.tree.structure(params)
    assert result.params["layers"][0][0].shape == (2, 3)
    assert np.all(np.asarray(result.params["layers"][0][0]) != 1)
    assert result.params["scale"] != 2
    np.testing.assert_array_equal(result.params["steps"], [1, 5])
    assert result.loss < nested_loss(params)


def test_every_chain_may_draw_its_own_start_at_the_scale_of_its_moves():
    given = []

    def draw(key, sigma):
        given.append(float(sigma))
        return sigma * jax.random.normal(key, (2,))

    result = train(gl.metropolis(sigma=[0.1, 0.2, 0.4]), draw, chains=3, steps=1)
    assert given == [0.1, 0.2, 0.4]
    assert len(set(result.trace.loss[:, 0])) == 3


def test_a_start_by_sigma_has_its_default_where_the_algorithm_has_no_sigma():
    result = train(gl.adam(), lambda key, sigma=0.5: jnp.full(2, sigma), steps=1)
    assert result.trace.loss[0] == train(params=np.full(2, 0.5), steps=1).trace.loss[0]


def test_the_generator_that_jax_is_set_to_changes_nothing():
    expected = train(steps=20)
    with jax.default_prng_impl("rbg"):
        found = train(steps=20)
    np.testing.assert_array_equal(found.params, expected.params)


def test_chains_do_not_share_what_only_one_of_them_has_drawn():
    def draw(key):
        return {"x": START, "mask": jax.random.bernoulli(key, 0.5, (20,))}

    with pytest.raises(ValueError, match="params must have the same untrained numbers in every chain, got"):
        gl.train(MC, lambda params: loss(params["x"]), draw, steps=1, chains=2)


def test_what_is_not_trained_comes_back_as_the_callers_own():
    mask = np.array([True, False])
    found = gl.train(MC, lambda params: loss(params["x"]), {"x": START, "mask": mask}, steps=1).params["mask"]
    found[0] = False  # neither read-only nor the array that went in
    assert mask.tolist() == [True, False]


class Line:
    """A model that holds its weights and can be called: a pytree, not a function that draws one."""

    def __init__(self, w):
        self.w = w

    def __call__(self, x):
        return self.w * x


jax.tree_util.register_pytree_node(Line, lambda line: ([line.w], None), lambda _, leaves: Line(*leaves))


def line_loss(line, batch):
    return jnp.mean((line(batch[0]) - batch[1]) ** 2)


@pytest.mark.parametrize("array", [jnp.zeros(3), np.zeros(3, np.float32)])
def test_a_model_of_one_array_is_not_compared_with_that_array(array):
    assert gl.train(MC, lambda line: jnp.sum((line.w - 1) ** 2), Line(array), steps=5).params.w.shape == (3,)


def test_a_model_that_can_be_called_is_a_tree_of_parameters():
    theta = np.linspace(0, 1, 10, dtype=np.float32)
    result = gl.train(MC, line_loss, Line(jnp.zeros(())), data=(theta, 2 * theta), steps=500)
    assert isinstance(result.params, Line)
    # At zero temperature moves of 0.1 find the minimum to within a few times 0.1/500.
    assert abs(result.params.w - 2) < 0.01


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_precision_may_be_asked_for(precision):
    result = train(precision=precision, steps=20)
    assert result.params.dtype == precision
    assert result.state.sigma.dtype == precision
    assert (result.params * 1).dtype == precision  # JAX outside of its mode would cut float64 down
    assert float(np.max(np.abs(result.params - 1))) == result.loss
    assert not jax.config.jax_enable_x64  # the mode of JAX is left alone


def wide(params):
    """A loss that is float64 where JAX is in that mode, whatever its parameters are."""
    return jnp.max(jnp.abs(params - 1)) * jnp.linspace(0, 1, 3)[2]


def test_the_mode_of_jax_that_the_caller_has_set_holds_in_every_thread():
    with jax.enable_x64(True):
        result = gl.train(MC, wide, START, steps=5)
    assert result.params.dtype == np.float32
    assert result.state.loss.dtype == np.float64


def test_a_seed_beyond_32_bits_is_another_one_in_every_mode_of_jax():
    small, large = (train(seed=seed, steps=20).params for seed in (5, 2**33 + 5))
    assert not np.array_equal(small, large)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(train(seed=2**33 + 5, steps=20).params, large)


def test_a_chain_ends_at_the_record_at_which_it_reaches_its_target():
    whole = train()
    target = float(whole.trace.loss[60])
    first = int(np.argmax(whole.trace.loss <= target))
    result = train(target_loss=target)
    assert result.stopped_by == "target"
    assert result.steps == first <= 60
    assert result.loss == whole.trace.loss[first]
    assert result.evaluations == first + 1
    # The loss is looked at when a record is taken.
    assert train(target_loss=target, record_every=50).steps == next(t for t in range(first, 201) if is_record(t, 50))


def test_metrics_are_in_the_trace_and_in_the_result():
    result = train(metrics=metrics)
    np.testing.assert_array_equal(result.trace.distance, result.trace.loss)
    assert result.metrics == {"distance": result.loss, "first": float(result.params[0])}
    several = train(metrics=metrics, chains=2)
    assert several.trace.first.shape == (2, 201)
    np.testing.assert_array_equal(several.metrics["first"], several.params[:, 0])


@pytest.mark.parametrize("target", ["first >= 0.5", "distance <= 1.1"])
def test_a_chain_ends_when_a_metric_reaches_its_target(target):
    result = train(metrics=metrics, target_metric=target)
    assert result.stopped_by == "target"
    name, sense, value = target.split()
    reached = result.trace[name] >= float(value) if sense == ">=" else result.trace[name] <= float(value)
    assert not reached[1:-1].any()
    assert reached[-1]
    assert 1 < result.steps < 200


@pytest.mark.parametrize("is_double", [False, True])
def test_a_metric_in_float32_that_is_at_its_target_is_there(is_double):
    """0.9 in float32 is a little less than in float64, in which targets are kept where JAX computes in it."""
    with jax.enable_x64(is_double):
        result = train(metrics=lambda x: {"share": jnp.float32(0.9)}, target_metric="share >= 0.9")
    assert (result.stopped_by, result.steps) == ("target", 1)


def test_metrics_may_look_at_test_data():
    result = gl.train(
        MC, line_loss, Line(jnp.zeros(())), data=(np.ones(4), np.ones(4)), steps=5, test=np.array([3.0]),
        metrics=lambda line, test: {"output": line(test)[0]},
    )  # fmt: skip
    np.testing.assert_allclose(result.metrics["output"], 3 * result.params.w, rtol=1e-6)  # one float32 product


def test_a_time_budget_stops_the_run_between_chunks(monkeypatch):
    monkeypatch.setattr(session, "ROUND_SECONDS", 0.01)
    result = train(steps=2_000_000_000, time_budget=0.5, record_every=1000)
    assert result.stopped_by == "time"
    assert 0 < result.steps < 2_000_000_000
    # The budget, a chunk of about 0.01 s that may come four times as long, and a busy machine.
    assert result.seconds < 5


def test_the_time_of_a_callback_counts_too(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(session.time, "perf_counter", lambda: clock[0])

    def slow(numbers):
        clock[0] += 10

    result = train(steps=1000, time_budget=35.0, callback=slow)
    assert result.stopped_by == "time"
    assert clock[0] == 40  # the first call that ends beyond the budget


def explosive(params):
    return jnp.sum(params**4)


def test_a_gradient_that_explodes_is_told():
    result = gl.train(gl.gradient_descent(10.0), explosive, jnp.ones(2), steps=100, record_every=1)
    assert result.stopped_by == "diverged"
    assert result.steps < 100
    assert "learning rate" in result.advice


def test_compilation_is_reported_apart():
    def fresh(params):
        return jnp.sum(params**2)

    result = gl.train(MC, fresh, START, steps=10)
    assert result.compile_seconds > 0.01
    assert result.seconds < result.compile_seconds  # ten steps take microseconds


def rosenbrock(x):
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


def test_amc_goes_down_the_rosenbrock_valley_and_momentum_takes_it_further():
    """From (-2, 2), sigma_0 = 1e-3, 10,000 steps. Paper: Fig. 3. The minimum is 0 at (1, 1), the start 409."""
    start = np.array([-2.0, 2.0])
    plain, driven = (
        gl.train(gl.amc(sigma=1e-3, epsilon=epsilon, n_s=20), rosenbrock, start, steps=10_000, chains=8)
        for epsilon in (1e-4, 0.1)
    )
    assert plain.trace.loss[0, 0] == 409
    assert np.all(plain.loss < 10)  # in the valley
    away = [np.linalg.norm(np.asarray(result.params) - 1, axis=1) for result in (plain, driven)]
    assert np.median(away[1]) < 0.5 * np.median(away[0])
    assert np.median(driven.loss) < 0.5 * np.median(plain.loss)


def two(params, batch):
    return loss(params)


def infinite(params):
    return jnp.sum(params**2) / 0.0


DATA = np.ones((4, 2), np.float32)
WHOLE = "must be a whole number from 1 to"
WRONG = [
    ({"steps": 0}, f"steps {WHOLE} .*, got 0"),
    ({"steps": True}, f"steps {WHOLE} .*, got True"),
    ({"steps": 10.0}, f"steps {WHOLE} .*, got 10.0"),
    ({"steps": 2**31}, f"steps {WHOLE} .*, got 2147483648"),
    ({"record_every": 0}, f"record_every {WHOLE} .*, got 0"),
    ({"seed": -1}, "seed must be a whole number from 0 to .*, got -1"),
    ({"seed": 0.5}, "seed must be a whole number from 0 to .*, got 0.5"),
    ({"precision": "float16"}, 'precision must be "float32" or "float64", got \'float16\''),
    ({"time_budget": 0}, "time_budget must be positive, got 0"),
    ({"time_budget": -1.0}, "time_budget must be positive, got -1.0"),
    ({"checkpoint_every": 0}, "checkpoint_every must be positive, got 0"),
    ({"target_metric": "accuracy"}, "target_metric must look like \"accuracy >= 0.9\", got 'accuracy'"),
    ({"target_metric": "first > 0.9"}, 'target_metric must look like "accuracy >= 0.9"'),
    ({"target_metric": "first >= high"}, 'target_metric must look like "accuracy >= 0.9"'),
    ({"target_metric": "first >= 0.9"}, r"target_metric must name a metric \(there is none\), got 'first'"),
    (
        {"target_metric": "accuracy >= 0.9", "metrics": metrics},
        r"target_metric must name a metric \(distance, first\), got 'accuracy'",
    ),
    ({"metrics": lambda p: {"loss": p[0]}}, "metrics must not be named as the trace's own step, .*, got 'loss'"),
    ({"select_every": 0, "chains": 2}, f"select_every {WHOLE}"),
    ({"select_every": 5}, "select_every needs at least 2 chains"),
    (
        {"select_every": 5, "chains": 2, "select_fraction": "few"},
        "select_fraction must be above 0 and at most 0.5, got 'few'",
    ),
    (
        {"select_every": 5, "chains": 2, "select_fraction": 0.7},
        "select_fraction must be above 0 and at most 0.5, got 0.7",
    ),
    ({"params": {"n": np.arange(3)}}, "params must hold at least one floating-point array, got none"),
    ({"params": np.zeros(0)}, "params must hold at least one floating-point"),
    ({"params": np.array([np.nan, 1.0])}, "the loss at the starting point is nan, and a chain cannot begin there: try"),
    ({"loss": infinite}, "the loss at the starting point is inf"),
    ({"metrics": 3}, "metrics must be a function, got 3"),
    ({"metrics": lambda p: {7: p[0]}}, r"metrics must be named by strings, got 7: write \{'7': ...\}"),
    ({"params": lambda: 3.0}, r"a function that draws the parameters must take a key; this one is \(\)"),
    (
        {"params": lambda key, sigma: 3.0, "algorithm": gl.adam()},
        r"by sigma must have a default for it, got \(key, sigma\): gradient descent and Adam have no sigma",
    ),
    ({"params": lambda a, b, sigma: a}, r"must take a key; this one is \(a, b, sigma\)"),
    ({"metrics": two}, r"metrics must take the arguments of metrics\(params\), since no test was given"),
    ({"mesh": 2}, r"mesh must be made by gl.mesh\(\), got 2"),
    ({"loss": two}, r"loss must take the arguments of loss\(params\), since no data was given"),
    ({"data": DATA}, r"loss must take the arguments of loss\(params, batch\), since data was given"),
    ({"loss": lambda p: p}, r"loss must return one number, got an array of shape \(2,\)"),
    ({"loss": lambda p: np.sin(p)[0]}, "loss must be written with jax.numpy so that it can be compiled"),
    ({"loss": two, "data": (DATA, np.ones(5))}, r"data must hold arrays of one common length, got \[4, 5\]"),
    ({"loss": two, "data": np.array(["a", "b"])}, "data must hold arrays of numbers, got one of type <U1"),
    ({"loss": two, "data": np.array([None])}, "data must hold arrays of numbers, got one of type object"),
    ({"loss": two, "data": np.array([0, 2**31])}, "whole numbers that fit int32, got 0 to 2147483648: give them as"),
    ({"chains": 2**16 + 1}, f"chains {WHOLE} 65536, got 65537"),
    ({"algorithm": gl.amc}, "algorithm must be made by gl.amc, gl.metropolis or the like, got <class"),
    ({"loss": two, "data": DATA, "batches": gl.minibatch(5)}, "size of a minibatch must be at most the 4 samples"),
    (
        {"loss": two, "data": DATA, "batches": gl.progressive(2, lambda params, batch: batch)},
        r"error must return one number, got an array of shape \(4, 2\): take a mean or a sum over the samples",
    ),
    ({"metrics": lambda p: {"a": "word"}}, "metrics must return a dict of real numbers, got a = 'word'"),
    ({"metrics": lambda p: {"a": None}}, "metrics must return a dict of real numbers, got a = None"),
    ({"metrics": lambda p: {"a": p[0] + 1j}}, "metrics must return a dict of real numbers, got a of complex"),
    ({"run": 3}, "run must be the path of a folder, got 3"),
    ({"overwrite": "no"}, "overwrite must be True or False, got 'no'"),
    (
        {"metrics": lambda p: {"a": float(p[0])}},
        "metrics must be written with jax.numpy so that it can be compiled; this one turns its arguments into plain",
    ),
    (
        {"algorithm": gl.amc(temperature=lambda n: 1.0 if n < 10 else 0.0)},
        "temperature must be written with jax.numpy so that it can be compiled",
    ),
    ({"algorithm": gl.amc(temperature=lambda n: jnp.ones(2))}, "temperature must return one number, got an array of"),
]


@settings
class Unnamed:
    """A kernel of a user's own that lacks what the engine needs."""

    def step(self, noise, state, evaluate, is_new_batch):
        raise AssertionError("made a step")


def test_a_kernel_that_lacks_a_part_is_refused():
    with pytest.raises(ValueError, match=r"^algorithm must have name, needs_gradient, draw, .*; Unnamed has no name$"):
        train(Unnamed())


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_wrong_use_is_refused_with_name_rule_and_value(wrong, message):
    given = {"algorithm": MC, "loss": loss, "params": START, "steps": 5} | wrong
    with pytest.raises(ValueError, match=message):
        gl.train(**given)


def test_that_a_folder_is_taken_is_known_before_anything_is_computed(tmp_path):
    gl.train(MC, loss, START, steps=1, run=tmp_path / "run")
    with pytest.raises(RunError, match=r"already holds a run: go on with gl\.resume in Python, or give"):
        gl.train(MC, lambda x: pytest.fail("computed in vain"), START, steps=1, run=tmp_path / "run")
