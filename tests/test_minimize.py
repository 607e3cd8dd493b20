"""gl.minimize and the scipy method: results in scipy's form, and the same chain for every number of workers."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, rosen
from scipy.optimize import minimize as scipy_minimize

import gradless as gl

START = [-2.0, 2.0]
SETTINGS = {"sigma": 0.1, "epsilon": 0.05, "n_s": 20}


def same_chain(one, many):
    np.testing.assert_array_equal(one.x, many.x)
    names = ("fun", "nit", "sigma", "acceptance", "message")
    return [one[name] for name in names] == [many[name] for name in names]


def test_rosenbrock_from_the_papers_start():
    """5000 evaluations bring sigma from 0.1 to about 1e-6, and x within a few sigma of (1, 1): the floor is 1e-4."""
    result = gl.minimize(rosen, START, maxfev=5000, seed=1, **SETTINGS)
    assert np.abs(result.x - 1).max() < 1e-4
    assert result.fun == rosen(result.x)
    assert (result.nfev, result.nit, result.wasted, result.nonfinite) == (5000, 4999, 0, 0)
    assert (result.success, result.status) == (False, 1)
    assert result.message == "the largest number of evaluations is reached"
    assert 0 < result.acceptance < 1
    assert result.sigma < 1e-4


def test_the_chain_is_that_of_ask_and_tell():
    result = gl.minimize(rosen, START, maxfev=101, algorithm=gl.metropolis(sigma=0.2, temperature=50.0), seed=3)
    opt = gl.AskTell(START, gl.metropolis(sigma=0.2, temperature=50.0), seed=3)
    while opt.step < 100:
        opt.tell(rosen(opt.ask()))
    np.testing.assert_array_equal(result.x, opt.best.x)
    assert opt.best.loss < opt.loss


def test_what_ends_it():
    assert gl.minimize(rosen, START, target=0.5, **SETTINGS).message == "the target is reached"
    reached = gl.minimize(rosen, START, xtol=0.09, **SETTINGS)
    assert (reached.success, reached.message) == (True, "sigma has fallen below xtol")
    assert 0.09 * 0.95 <= reached.sigma < 0.09
    frozen = gl.minimize(lambda x: abs(x[0] - 1), [1.0], sigma=1e-15, n_s=1, maxfev=500)
    assert (frozen.success, frozen.message) == (True, "sigma has fallen below what floating point can resolve")
    by_steps = gl.minimize(rosen, START, maxiter=7, **SETTINGS)
    assert (by_steps.nit, by_steps.status, by_steps.nfev) == (7, 2, 8)
    assert gl.minimize(rosen, START, maxfev=1).nit == 0
    at_start = gl.minimize(lambda x: 0.0, [1.0], target=0.0)
    assert (at_start.nit, at_start.nfev, at_start.success) == (0, 1, True)


def test_a_function_that_stops_an_iteration_is_told_so():
    with pytest.raises(RuntimeError, match="fun must return a number, it raised StopIteration"):
        gl.minimize(lambda x: next(iter([])), START)


def test_the_evaluations_of_very_many_numbers_are_limited_too():
    assert gl.minimize(lambda x: 0.0, np.zeros(2**31 // 1000 + 1, np.float16), target=0.0).nfev == 1


@pytest.mark.parametrize("form", ["result", "point"])
def test_the_callback_sees_every_step_and_may_stop(form):
    seen = []

    def by_result(intermediate_result):
        seen.append(intermediate_result.fun)
        if len(seen) == 12:
            raise StopIteration

    def by_point(xk):
        seen.append(rosen(xk))
        if len(seen) == 12:
            raise StopIteration

    result = gl.minimize(rosen, START, callback=by_result if form == "result" else by_point, **SETTINGS)
    assert (result.nit, result.status, result.success) == (12, 99, False)
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == result.fun


@pytest.mark.parametrize("bounds", [Bounds([-3, 0], [0.5, np.inf]), [(-3, 0.5), (0, None)]])
def test_bounds_hold_and_the_minimum_at_a_wall_is_found(bounds):
    points = []

    def watched(x):
        points.append(x.copy())
        return rosen(x)

    result = gl.minimize(watched, START, bounds=bounds, maxfev=2000, **SETTINGS)
    points = np.array(points)
    assert (points >= [-3, 0]).all()
    assert (points[:, 0] <= 0.5).all()
    assert abs(result.fun - 0.25) < 1e-4  # at (1/2, 1/4)


def test_any_shape_and_more_arguments():
    def bowl(x, a, b):
        return ((a * x - b) ** 2).sum()

    result = gl.minimize(bowl, np.ones((2, 3)), args=(2.0, 3.0), sigma=0.1, n_s=10, maxfev=1000)
    assert result.x.shape == (2, 3)
    assert result.fun < 1e-2  # from 6
    assert gl.minimize(lambda x, a: a * x[0] ** 2, [1.0], args=3.0, maxfev=2).nfev == 2


def test_it_is_a_method_of_scipy():
    options = {**SETTINGS, "maxfev": 400, "seed": 5}
    found = scipy_minimize(rosen, START, method=gl.scipy_method, bounds=[(-3, 3)] * 2, tol=1e-3, options=options)
    ours = gl.minimize(rosen, START, bounds=(-3, 3), xtol=1e-3, **options)
    assert same_chain(found, ours)
    seen = []
    scipy_minimize(rosen, START, method=gl.scipy_method, callback=seen.append, options={"maxiter": 3})
    assert np.shape(seen) == (3, 2)


def test_scipys_disp_prints_how_it_ended(capsys):
    for disp in (False, True):
        scipy_minimize(rosen, START, method=gl.scipy_method, options={"maxiter": 3, "sigma": 1e-9, "disp": disp})
    said = f"the largest number of steps is reached: {rosen(START):.6g} after 3 steps, 4 evaluations\n"
    assert capsys.readouterr().out == said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"jac": lambda x: x}, "jac must not be given: this method uses no derivatives"),
        ({"jac": True}, "jac must not be given"),
        ({"hess": lambda x: x}, "hess must not be given"),
        ({"constraints": LinearConstraint(np.eye(2), 0, 1)}, "constraints must not be given"),
        ({"constraints": [{"type": "eq", "fun": rosen}]}, "constraints must not be given"),
        ({"options": {"gtol": 1}}, "options must be among .* got gtol"),
    ],
)
def test_what_scipy_may_ask_in_vain(arguments, words):
    with pytest.raises(ValueError, match=words):
        scipy_minimize(rosen, START, method=gl.scipy_method, **arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"fun": 3}, "fun must be a function, got 3"),
        ({"maxfev": 0}, "maxfev must be a whole number from 1"),
        ({"ahead": 100_000}, "ahead must be a whole number from 1 to 65536, got 100000"),
        ({"target": "low"}, "target must be a number, got 'low'"),
        ({"xtol": -1}, "xtol must be positive, got -1"),
        ({"workers": 0}, "workers must be a whole number of at least 1, or have a map, got 0"),
        (
            {"workers": 2},
            "fun and args must be fit to be sent to worker processes, got .*<lambda>: define it at the top",
        ),
        ({"algorithm": gl.amc(), "sigma": 0.1}, "sigma must be a setting of the algorithm"),
        ({"fun": lambda x: np.nan}, "the loss of the starting point must be finite, got nan"),
    ],
)
def test_wrong_use_is_one_clear_line(arguments, words):
    with pytest.raises(ValueError, match=words):
        gl.minimize(**{"fun": lambda x: 0.0, "x0": START, **arguments})


def test_an_error_in_fun_comes_out_as_it_is():
    def broken(x):
        raise ZeroDivisionError("in fun")

    with pytest.raises(ZeroDivisionError, match="in fun") as caught:
        gl.minimize(broken, START)
    assert caught.traceback[-1].name == "broken"


class Counted:
    """rosen, and how often it was called."""

    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return rosen(x)


@pytest.mark.parametrize("ahead", [2, 7])
def test_evaluations_ahead_do_not_change_the_chain(ahead):
    one = gl.minimize(rosen, START, maxfev=150, **SETTINGS)
    with ThreadPoolExecutor(2) as threads:
        for workers in (threads, threads.map):
            counted = Counted()
            many = gl.minimize(counted, START, maxfev=150, workers=workers, ahead=ahead, **SETTINGS)
            assert same_chain(one, many)
            assert many.wasted > 0
            assert 150 <= counted.calls <= many.nfev == 150 + many.wasted  # some were thrown away before their turn


@pytest.mark.parametrize("workers", [1, map])
def test_one_worker_evaluates_nothing_in_vain(workers):
    counted = Counted()
    result = gl.minimize(counted, START, maxfev=50, workers=workers, ahead=8, **SETTINGS)
    assert (counted.calls, result.nfev, result.wasted) == (50, 50, 0)


def test_an_error_in_a_proposal_that_is_thrown_away_is_not_raised():
    """Two moves are accepted; of those behind them, evaluated at the same time, one each raises."""
    begun = []

    def edgy(x):
        begun.append(x[0])
        time.sleep(0.05)  # until all three are begun
        if x[0] > 3.02:
            raise ArithmeticError(x[0])
        return x[0]

    with ThreadPoolExecutor(3) as threads:
        result = gl.minimize(edgy, [3.0], sigma=0.1, maxiter=2, workers=threads, ahead=3, seed=0)
    assert (result.nit, result.acceptance, result.nfev, result.wasted) == (2, 1.0, 7, 4)
    assert result.x[0] < 3.0
    assert max(begun) > 3.02


SCRIPT = """
import multiprocessing, os, sys, time
import numpy as np
import gradless as gl

def slow(x):
    time.sleep(0.002)
    return float(np.sum(x ** 2))

def broken(x):
    if x[0] != 1:
        raise ZeroDivisionError("in a worker")
    return 1.0

def crashing(x):
    if x[0] != 1:
        os._exit(3)
    return 1.0

def endless(x):
    if x[0] != 1:
        print("going", os.getpid(), flush=True)
        time.sleep(1000)
    return 1.0

def none_left():
    # The executor's own thread collects the ended processes too; it may be between collecting one and saying so.
    end = time.monotonic() + 10
    while multiprocessing.active_children() and time.monotonic() < end:
        time.sleep(0.01)
    return not multiprocessing.active_children()
"""
MAIN = SCRIPT + '\nif __name__ == "__main__":\n    '


def python(tmp_path, text, **settings):
    Path(tmp_path, "script.py").write_text(text)
    return subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, **settings
    )


def test_processes_make_the_same_chain_and_leave_nothing_behind(tmp_path):
    lines = """one = gl.minimize(slow, [1.0, 2.0], maxfev=40, sigma=0.1)
    two = gl.minimize(slow, [1.0, 2.0], maxfev=40, sigma=0.1, workers=2)
    assert (one.x == two.x).all() and one.nit == two.nit and two.wasted > 0
    assert none_left()
    try:
        gl.minimize(broken, [1.0, 2.0], workers=2)
    except ZeroDivisionError as error:
        assert 'raise ZeroDivisionError("in a worker")' in str(error.__cause__)
        assert none_left()
    try:
        gl.minimize(crashing, [1.0, 2.0], workers=2)
    except RuntimeError as error:
        print(error)
    print("done")"""
    done = python(tmp_path, MAIN + lines)
    assert done.returncode == 0, done.stderr
    told, last = done.stdout.splitlines()
    assert told.startswith("a worker process has ended: fun crashed it, or ")
    assert last == "done"


def test_a_script_without_a_guard_is_told_so(tmp_path):
    done = python(tmp_path, SCRIPT + "gl.minimize(slow, [1.0], workers=2)")
    assert done.returncode == 1
    assert "which then needs 'if __name__ == \"__main__\":'" in done.stderr.splitlines()[-1]


def is_running(pid):
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_its_parent(tmp_path, number):
    # A process in the background of a shell is told to ignore SIGINT; this one shall hear it wherever the tests run.
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    (tmp_path / "script.py").write_text(MAIN + hears + "gl.minimize(endless, [1.0], workers=2)")
    process = subprocess.Popen(
        [sys.executable, "script.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    workers = [int(process.stdout.readline().split()[1]) for _ in range(2)]
    process.send_signal(number)
    process.wait(60)
    assert process.returncode == -number
    until = time.monotonic() + 30
    while any(is_running(pid) for pid in workers):
        assert time.monotonic() < until
        time.sleep(0.05)
    process.communicate()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError("handle is closed"), pytest.raises(RuntimeError, match="a worker process has ended")),
        (BlockingIOError(11, "no more processes"), pytest.raises(BlockingIOError, match="no more processes")),
    ],
)
def test_a_crash_while_another_worker_is_started_is_told_as_any_other(monkeypatch, error, expected):
    """The executor closes its pipes when a process has crashed, also under one that is just being started."""

    def submit(*args):
        raise error

    monkeypatch.setattr("gradless.workers.ProcessPoolExecutor.submit", submit)
    with expected:
        gl.minimize(rosen, [1.0, 2.0], workers=2, maxfev=3)


def test_a_callback_is_a_function_and_one_without_a_signature_is_given_x():
    with pytest.raises(ValueError, match="callback must be a function, got 3"):
        gl.minimize(rosen, START, callback=3)
    assert gl.minimize(rosen, START, callback=max, maxiter=2).nit == 2


def test_a_wrong_tol_is_named_as_scipy_names_it():
    with pytest.raises(ValueError, match="tol must be positive, got 0"):
        scipy_minimize(rosen, START, method=gl.scipy_method, tol=0)
