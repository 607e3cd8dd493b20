"""A chain asked and told: the moves of gl.train, whatever the order of the answers."""

import copy
import json
import math
import pickle
import random
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.kernels import Metropolis
from gradless.records import DamagedError, RunError, tensor_file
from gradless.settings import settings

STEPS = 120
X0 = np.linspace(-1, 1, 5)


def bumpy(x):
    return jnp.sum((x - 1) ** 2) + jnp.sum(jnp.sin(3 * x))


compiled = jax.jit(bumpy)


def loss(x):
    with jax.enable_x64(True):
        return float(compiled(x))


ALGORITHMS = {
    "mc": gl.metropolis(sigma=0.1),
    "mc annealed": gl.metropolis(sigma=0.3, temperature=gl.anneal(1.0, 0.01, 50.0)),
    "amc epsilon": gl.amc(sigma=0.3, epsilon=0.1, n_s=3),
    "amc temperature": gl.amc(sigma=0.3, epsilon=-0.1, n_s=3, temperature=0.2),
}
AMC = ALGORITHMS["amc epsilon"]


def drive(opt, k=None, until=STEPS, fun=loss):
    while opt.step < until:
        if k is None:
            opt.tell(fun(opt.ask()))
        else:
            opt.tell([fun(x) for x in opt.ask(min(k, until - opt.step))])
    return opt


@pytest.mark.parametrize("k", [None, 4, 40])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_moves_are_those_of_train_bit_for_bit(name, k):
    trained = gl.train(ALGORITHMS[name], bumpy, X0, steps=STEPS, seed=4)
    opt = drive(gl.AskTell(X0, ALGORITHMS[name], seed=4), k)
    np.testing.assert_array_equal(opt.x, trained.params)
    assert opt.x.dtype == np.float64
    assert (opt.loss, opt.sigma, opt.accepted) == (trained.loss, trained.sigma, trained.acceptance * STEPS)
    assert 0 < opt.accepted < STEPS
    assert (opt.wasted > 0) == (k is not None)
    assert opt.evaluations == 1 + STEPS + opt.wasted


def test_a_float32_start_stays_float32_and_its_losses_keep_their_digits():
    x0 = X0.astype(np.float32)
    with jax.enable_x64(True):
        trained = gl.train(AMC, lambda x: bumpy(x).astype(jnp.float64), x0, steps=STEPS)
    opt = drive(gl.AskTell(x0, AMC))
    assert opt.x.dtype == np.float32
    np.testing.assert_array_equal(opt.x, trained.params)
    tiny = gl.AskTell(np.float32([1.0]), AMC)
    tiny.ask()
    tiny.tell(1.0)
    x = tiny.ask()
    tiny.tell(1.0 + 1e-12)  # a tie in float32, a rejection in float64
    assert tiny.accepted == 0
    assert x.dtype == np.float32


def test_blocks_of_noise_and_segments_end_where_they_may():
    """2000 numbers: noise comes in blocks of 4 steps, and a branch of 13 steps spans several."""
    x0 = np.linspace(0, 1, 2000)
    algorithm = gl.amc(sigma=1e-3, epsilon=0.1, n_s=2)
    trained = gl.train(algorithm, bumpy, x0, steps=40)
    for k in (None, 13):
        opt = drive(gl.AskTell(x0, algorithm), k, until=40)
        np.testing.assert_array_equal(opt.x, trained.params)
        assert opt.sigma == trained.sigma
    assert 0 < opt.accepted < 40


def test_answers_may_come_in_any_order():
    whole, moments = drive(gl.AskTell(X0, AMC)), random.Random(0)
    opt = gl.AskTell(X0, AMC)
    opt.ask()
    opt.tell(loss(X0))
    known = {}
    while opt.step < STEPS:
        points = opt.ask(4)
        known |= dict(zip(opt.tickets, points, strict=True))
        ticket = moments.choice(sorted(known))  # perhaps one that was thrown away meanwhile
        opt.tell(loss(known.pop(ticket)), ticket)
    whole = drive(whole, until=opt.step)  # answers that had been waiting may have led further
    np.testing.assert_array_equal(opt.x, whole.x)
    assert opt.sigma == whole.sigma
    assert opt.wasted > 0


def test_the_first_ask_is_the_start_and_asking_again_changes_nothing():
    opt = gl.AskTell([[1, 2], [3, 4]])
    np.testing.assert_array_equal(opt.ask(), [[1.0, 2.0], [3.0, 4.0]])
    assert opt.ask(5).shape == (1, 2, 2)
    opt.tell([3.0])
    first, again = opt.ask(), opt.ask()
    np.testing.assert_array_equal(first, again)
    first[:] = 0  # the caller's own
    np.testing.assert_array_equal(opt.ask(3)[0], again)
    assert again.dtype == np.float64


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_a_rejection(bad):
    opt = gl.AskTell(X0, AMC)
    opt.ask()
    opt.tell(1.0)
    opt.ask()
    opt.tell(bad)
    assert (opt.accepted, opt.nonfinite, opt.step) == (0, 1, 1)
    opt.ask(2)
    opt.tell([bad, 0.5])
    assert (opt.accepted, opt.nonfinite, opt.loss) == (1, 2, 0.5)


def test_a_chain_is_printed_in_a_line():
    """Whatever the number of its parameters, and before the first loss too."""
    chain = gl.AskTell(np.zeros(10_000), gl.amc(sigma=0.5))
    assert repr(chain) == "AskTell(step 0, loss nan, best nan, sigma 0.5)"
    for value in (2.0, 3.0, 1.0, math.nan):
        chain.ask()
        chain.tell(value)
    assert repr(chain) == "AskTell(step 3, loss 1, best 1, sigma 0.5)"


def test_the_best_point_is_kept_at_a_temperature(tmp_path):
    opt = gl.AskTell([3.0], gl.metropolis(sigma=1.0, temperature=100.0))
    seen = []
    while opt.step < 200:
        opt.tell(float(opt.ask()[0] ** 2 + 1))
        seen.append((opt.loss, opt.x[0]))
    assert opt.best.loss == min(seen)[0] == opt.best.x[0] ** 2 + 1
    assert opt.loss > opt.best.loss
    opt.save(tmp_path / "chain")
    loaded = gl.AskTell.load(tmp_path / "chain")
    np.testing.assert_array_equal(loaded.best.x, opt.best.x)
    assert (loaded.best.loss, loaded.loss) == (opt.best.loss, opt.loss)


def test_a_lucky_value_does_not_stop_a_chain_that_evaluates_again():
    def run(**settings):
        opt = gl.AskTell([1.0], gl.metropolis(sigma=0.1), **settings)
        opt.ask()
        opt.tell(-5.0)  # luck: the loss is x^2
        while opt.step < 50:
            opt.tell([float(x[0] ** 2) for x in opt.ask(3)])
        return opt

    assert run().accepted == 0
    freed = run(reevaluate_every=10)
    assert freed.accepted > 0
    assert freed.best.loss == freed.loss == freed.x[0] ** 2


def test_evaluating_again_fails_quietly_and_happens_when_it_should():
    opt = gl.AskTell([1.0], gl.metropolis(sigma=0.1), reevaluate_every=2)
    opt.ask()
    opt.tell(1.0)
    opt.ask(6)
    assert [(t.step, t.kind) for t in opt.tickets] == [
        (0, "move"),
        (1, "move"),
        (2, "again"),
        (2, "move"),
        (3, "move"),
        (4, "again"),
    ]
    opt.tell([2.0, 2.0, None, 2.0, 2.0, 0.25])
    assert (opt.loss, opt.step) == (1.0, 4)  # the failure changed nothing; the move of step 4 is still to come
    opt.ask()
    opt.tell(0.5)  # judged against 0.25
    assert (opt.loss, opt.accepted) == (0.25, 0)


def test_a_temperature_that_reads_a_changed_value_is_another_temperature():
    level = 0.0
    algorithm = gl.amc(sigma=0.1, n_s=float("inf"), temperature=lambda n: level + 0.0 * n)

    def accepted():
        return drive(gl.AskTell(X0, algorithm, seed=1), until=50).accepted

    assert accepted() < 50
    level = 1e9
    assert accepted() == 50


def pickled(opt):
    return pickle.loads(pickle.dumps(opt))  # noqa: S301, as joblib and others do with what they are given


def through_a_file(opt, folder):
    opt.save(folder / "chain")
    return gl.AskTell.load(folder / "chain")


@pytest.mark.parametrize(
    "again",
    [through_a_file, lambda opt, _: pickled(opt), lambda opt, _: copy.deepcopy(opt)],
    ids=["file", "pickle", "copy"],
)
@pytest.mark.parametrize("name", ["mc annealed", "amc epsilon"])
def test_a_saved_chain_goes_on_as_if_never_stopped(name, again, tmp_path):
    whole = drive(gl.AskTell(X0, ALGORITHMS[name], seed=2, bounds=(-1.5, 2)))
    opt = gl.AskTell(X0, ALGORITHMS[name], seed=2, bounds=(-1.5, 2))
    for until in (0, 1, 50, 51, 90):
        opt = drive(opt, until=until)
        points = opt.ask(3)
        if opt.step:
            opt.tell(loss(points[2]), opt.tickets[2])  # before its turn
        opt = again(opt, tmp_path)
        opt.tell(loss(points[0]), opt.tickets[0])  # asked for before, told after
    opt = drive(opt)
    np.testing.assert_array_equal(opt.x, whole.x)
    assert (opt.loss, opt.sigma, opt.step, opt.accepted) == (whole.loss, whole.sigma, STEPS, whole.accepted)
    assert opt.best.loss == whole.best.loss


def test_a_chain_goes_on_in_another_process(tmp_path):
    path = tmp_path / "chain"
    gl.AskTell([1.0, 2.0], gl.amc(sigma=0.1)).save(path)
    script = f"""
import gradless as gl
opt = gl.AskTell.load({str(path)!r})
for _ in range(6):
    opt.tell(float((opt.ask() ** 2).sum()))
opt.save({str(path)!r})
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    here = gl.AskTell([1.0, 2.0], gl.amc(sigma=0.1))
    drive(here, until=5, fun=lambda x: float((x**2).sum()))
    there = gl.AskTell.load(path)
    assert there.step == 5
    np.testing.assert_array_equal(here.ask(), there.ask())


def test_a_ticket_that_was_never_given_out_does_not_begin_a_chain():
    opt = gl.AskTell([1.0])
    opt.ask()
    with pytest.raises(ValueError, match="a loss must answer what is asked for"):
        opt.tell(1.0, (-9, 0, "move"))


def test_bounds_of_two_numbers_come_back_as_they_were(tmp_path):
    opt = gl.AskTell([5.0, 25.0], bounds=[(0.0, 10.0), (20.0, 30.0)])
    opt.save(tmp_path / "chain")
    np.testing.assert_array_equal(gl.AskTell.load(tmp_path / "chain").bounds, ([0.0, 20.0], [10.0, 30.0]))


def test_as_many_points_as_can_be_asked_for_are_kept_in_a_file(tmp_path):
    opt = gl.AskTell([1.0])
    opt.ask()
    opt.tell(1.0)
    opt.ask(30_000)
    opt.tell(2.0, opt.tickets[1])
    again = through_a_file(opt, tmp_path)
    assert again.tickets == opt.tickets
    for one in (opt, again):
        one.tell(3.0, one.tickets[0])
    assert (again.step, again.wasted) == (opt.step, opt.wasted) == (2, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": None},
        {"counts": 3},
        {"loss": "a"},
        {"seed": "a"},
        {"is_one": True, "counts": {}},
        {"reevaluate_every": 0.5},
    ],
    ids=str,
)
def test_a_file_that_holds_no_chain_is_refused_in_a_line(tmp_path, change):
    opt = gl.AskTell([1.0, 2.0])
    opt.save(tmp_path / "chain")
    file = tensor_file.read(tmp_path / "chain")
    meta = json.loads(file.text["meta"]) | change
    tensor_file.write(tmp_path / "chain", file.tensors(), file.text | {"meta": json.dumps(meta)})
    with pytest.raises(DamagedError, match="chain cannot be read: what it holds is no chain"):
        gl.AskTell.load(tmp_path / "chain")
    meta = json.loads(file.text["meta"])
    tensor_file.write(tmp_path / "chain", file.tensors() | {"best": np.ones(5)}, file.text | {"meta": json.dumps(meta)})
    with pytest.raises(DamagedError, match="chain cannot be read: what it holds is no chain"):
        gl.AskTell.load(tmp_path / "chain")


def test_files_are_checked(tmp_path):
    path = tmp_path / "chain"
    with pytest.raises(RunError, match="chain cannot be read: No such file"):
        gl.AskTell.load(path)
    gl.AskTell([1.0]).save(path)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DamagedError, match="checksum"):
        gl.AskTell.load(path)
    opt = gl.AskTell([1.0], gl.amc(temperature=lambda n: 1.0 / (n + 1)))
    with pytest.raises(ValueError, match=r"temperature must be a number or gl\.anneal to be saved"):
        opt.save(path)
    with pytest.raises(RunError, match="nowhere/chain cannot be written: No such file"):
        gl.AskTell([1.0]).save(tmp_path / "nowhere" / "chain")
    for folder in (".", "", tmp_path):
        with pytest.raises(RunError, match=r"cannot be written: (it is a folder|Is a directory)"):
            gl.AskTell([1.0]).save(folder)


@settings
class Own(Metropolis):
    name = "own"


def test_a_kernel_of_one_s_own_is_pickled_and_not_saved(tmp_path):
    opt = gl.AskTell([1.0], Own(sigma=0.5))
    np.testing.assert_array_equal(pickled(opt).ask(), opt.ask())
    with pytest.raises(ValueError, match=r"algorithm must be in gradless.kernels.ALGORITHMS to be saved, got 'own'"):
        opt.save(tmp_path / "chain")


def test_a_long_double_start_is_taken_in_float64():
    assert gl.AskTell(np.ones(2, np.longdouble)).ask().dtype == np.float64


def test_wrong_use_is_one_clear_line():
    opt = gl.AskTell([1.0, 2.0])
    with pytest.raises(ValueError, match="tell must follow ask: nothing is asked for"):
        opt.tell(1.0)
    opt.ask()
    for bad in (None, math.nan, math.inf, 10**400, -(10**400)):
        with pytest.raises(ValueError, match="the loss of the starting point must be finite"):
            opt.tell(bad)
    for bad in ("low", "3.0", [1.0, 2.0], 1j, {}):
        with pytest.raises(TypeError, match="a loss must be one real number or None, got"):
            opt.tell(bad)
    opt.tell(np.array([5.0]))  # one number, though in an array
    with pytest.raises(ValueError, match="tell must follow ask"):
        opt.tell(1.0)
    opt.ask(3)
    with pytest.raises(ValueError, match="losses must be as many as the points asked for, 3, got 2"):
        opt.tell([9.0, 9.0])
    first, second, _ = opt.tickets
    opt.tell(9.0, second)
    with pytest.raises(ValueError, match="losses must answer a whole ask"):
        opt.tell([9.0, 9.0, 9.0])
    with pytest.raises(ValueError, match=r"a loss must answer what is asked for, got one for \(-1, 1, 'move'\)"):
        opt.tell(9.0, list(second))
    with pytest.raises(ValueError, match="a loss must answer what is asked for"):
        opt.tell(9.0, (-1, 7, "move"))
    with pytest.raises(ValueError, match=r"ticket must be one of opt\.tickets, got 3"):
        opt.tell(9.0, 3)
    assert opt.step == 0
    opt.tell(9.0, first)
    assert opt.step == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"algorithm": gl.adam()}, "adam needs gradients"),
        ({"algorithm": gl.amc(signal_norm=True)}, "signal_norm must be off"),
        ({"algorithm": "amc"}, "algorithm must be made by gl.amc or gl.metropolis, got 'amc'"),
        ({"algorithm": gl.amc(sigma=np.array([0.1, 0.2]))}, "sigma must be one number"),
        ({"algorithm": gl.amc(sigma=[0.1, 0.2])}, "sigma must be one number"),
        ({"algorithm": gl.amc(temperature=lambda n: math.exp(-n))}, "temperature must"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"x0": []}, "x0 must hold at least one number"),
        ({"x0": [math.nan]}, "x0 must hold .* only finite"),
        ({"x0": ["a"]}, "x0 must be an array of real numbers"),
        ({"x0": [1j]}, "x0 must be an array of real numbers"),
        ({"reevaluate_every": 0}, "reevaluate_every must be a whole number"),
        ({"bounds": (2, 3)}, r"x0 must lie within the bounds, got 1.0 outside of \[2.0, 3.0\] at place 0"),
        ({"bounds": (3, 2)}, "bounds must have low <= high"),
        ({"bounds": [(0, 1), (0, 1), (0, 1)]}, r"bounds must be \(low, high\), or a pair for each of the 2"),
        ({"bounds": 3}, "bounds must be"),
    ],
)
def test_wrong_settings_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        gl.AskTell(**{"x0": [1.0, 2.5], **arguments})


def test_what_the_chain_keeps_cannot_be_written_into(tmp_path):
    opt = gl.AskTell(np.array([3.0, 4.0]), gl.metropolis(sigma=0.1))
    opt.ask()[:] = 0
    opt.tell(1.0)
    opt.save(tmp_path / "chain")
    for chain in (opt, gl.AskTell.load(tmp_path / "chain")):
        for kept in (chain.x, chain.best.x):
            with pytest.raises(ValueError, match="read-only"):
                kept[:] = 0
        np.testing.assert_array_equal(chain.best.x, [3.0, 4.0])


@pytest.mark.parametrize("num", [1, 2, 3])
def test_bounds_may_be_two_arrays_whatever_the_number_of_parameters(num):
    low, high = np.arange(num), np.arange(num) + 10.0
    opt = gl.AskTell(low + 1.0, bounds=(low, high))
    np.testing.assert_array_equal(opt.bounds, (low, high))
