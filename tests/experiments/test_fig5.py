"""Fig. 5: verdicts on hand-made tables, and the whole of it at smoke scale where MNIST can be had."""

import dataclasses
import shutil

import jax
import numpy as np
import pytest

from gradless.data import mnist
from gradless.data.store import DataUnavailable
from gradless.experiments import fig5
from gradless.experiments.claims import FAIL, NOT_DECIDED, PASS
from gradless.experiments.fig5.regimes import AROUND, steepest
from gradless.experiments.fig5.running import save_large
from gradless.experiments.fig5.settings import AGAIN, KINDS, LARGE, LN2
from gradless.experiments.tables import read_table, write_table
from gradless.experiments.workshop import Workshop


@pytest.fixture(autouse=True)
def _short_programs(monkeypatch):
    """One turn of the loop over time is enough here, and eight take long to compile."""
    monkeypatch.setattr("gradless.models.rnn.UNROLL", 1)


def save_tables(
    out,
    *,
    gradient_loss=LN2,
    accuracy=0.998,
    jump=1000.0,
    start=0.02,
    explosion=5.0,
    shrink=1,
    steps=40_000,
    steps_amc=100_000,
    steps_again=1_000,
):
    """Write what a run might have found; the defaults are the paper's."""
    rows = []
    for i in range(100):
        has_left = i >= 60
        amc = {"loss": 0.02 if has_left else LN2 * 1.001, "accuracy": accuracy if has_left else 0.5}
        norm = 1e-3 * (jump if has_left else 1.0)
        rows.append({"algorithm": "aMC", "step": steps_amc * (i + 1) / 100, **amc, "gradient_norm": norm})
        for kind in ("GD", "Adam"):
            other = {"loss": gradient_loss, "accuracy": 0.5, "gradient_norm": float("nan")}
            rows.append({"algorithm": kind, "step": steps * (i + 1) / 100, **other})
    write_table(out / "training.csv", rows)
    sizes = {"shrink": shrink, "batch": 1500, "hidden": 64}
    write_table(
        out / "runs.csv",
        [{"algorithm": k, "steps": steps_amc if k == "aMC" else steps, **sizes} for k in KINDS],
    )
    again = [
        {"algorithm": name, "step": step, "loss": loss}
        for name in AGAIN
        for step, loss in ((0, start), (steps_again, explosion))
    ]
    write_table(out / "from-large-gradients.csv", again)


def outcomes(out, scale="paper"):
    verdicts = fig5.check(out, scale)
    assert [verdict.claim for verdict in verdicts] == ["F5a", "F5b", "F5c", "F5c"]
    return [verdict.outcome for verdict in verdicts]


def test_the_papers_own_results_pass(tmp_path):
    save_tables(tmp_path)
    assert outcomes(tmp_path) == [PASS] * 4


def test_a_gradient_that_is_no_number_changes_nothing(tmp_path):
    save_tables(tmp_path)
    rows = read_table(tmp_path / "training.csv")
    late = [row for row in rows if row["algorithm"] == "aMC"][70]
    write_table(
        tmp_path / "training.csv", [row | {"gradient_norm": float("nan")} if row is late else row for row in rows]
    )
    assert outcomes(tmp_path) == [PASS] * 4


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"gradient_loss": 0.98 * LN2}, [FAIL, PASS, PASS, PASS]),
        ({"accuracy": 0.99}, [PASS, FAIL, PASS, PASS]),
        ({"jump": 20.0}, [PASS, PASS, FAIL, PASS]),
        ({"explosion": 0.03}, [PASS, PASS, PASS, FAIL]),
        ({"start": 0.75, "explosion": 0.7}, [PASS, PASS, PASS, FAIL]),  # above ln 2, but not by rising
        ({"start": 0.75, "explosion": 5.0}, [PASS] * 4),
        ({"explosion": float("nan")}, [PASS] * 4),
    ],
)
def test_other_results_fail(tmp_path, found, expected):
    save_tables(tmp_path, **found)
    assert outcomes(tmp_path) == expected


def test_a_smaller_problem_or_a_shorter_run_decides_nothing_it_cannot(tmp_path):
    save_tables(tmp_path, shrink=2)
    assert outcomes(tmp_path) == [NOT_DECIDED] * 4
    save_tables(tmp_path)
    assert outcomes(tmp_path, "quick") == [NOT_DECIDED] * 4
    save_tables(tmp_path, steps=1_000)  # of GD and Adam, which may yet learn
    assert outcomes(tmp_path) == [NOT_DECIDED, PASS, PASS, PASS]
    save_tables(tmp_path, accuracy=0.99, jump=20.0, steps_amc=1_000)  # of aMC, which may yet get there
    assert outcomes(tmp_path)[1:3] == [NOT_DECIDED, NOT_DECIDED]
    save_tables(tmp_path, accuracy=0.99, steps_amc=1_000)  # its gradient may yet shrink
    assert outcomes(tmp_path)[2] == NOT_DECIDED
    save_tables(tmp_path, explosion=0.03, steps_again=100)  # of GD without clipping, which may yet explode
    assert outcomes(tmp_path)[3] == NOT_DECIDED
    save_tables(tmp_path, explosion=5.0, steps_again=100)
    assert outcomes(tmp_path)[3] == PASS


def test_what_is_still_learning_or_has_not_begun_is_not_decided(tmp_path):
    save_tables(tmp_path, accuracy=0.99)
    rows = read_table(tmp_path / "training.csv")
    better = [row | {"accuracy": 0.993} if row["step"] == 99_000 else row for row in rows]
    write_table(tmp_path / "training.csv", better)  # its best lies in the last quarter
    assert outcomes(tmp_path) == [PASS, NOT_DECIDED, PASS, PASS]
    flat = [row | {"loss": LN2, "gradient_norm": 1e-3} if row["algorithm"] == "aMC" else row for row in rows]
    write_table(tmp_path / "training.csv", flat)  # it never left the plateau: there is one regime to be seen
    assert outcomes(tmp_path)[2:] == [NOT_DECIDED, NOT_DECIDED]


@pytest.fixture(scope="module")
def mnist_is_here():
    try:
        mnist.load()
    except DataUnavailable as error:
        pytest.skip(str(error).splitlines()[0])


def test_the_norm_is_that_of_the_gradient(mnist_is_here):
    problem = fig5.recurrent(hidden=2, shrink=7, with_norm=True)
    params = problem.init(jax.random.key(0))
    few = jax.tree.map(lambda rows: rows[:10], problem.test)
    norm = float(problem.metrics(params, few)["gradient_norm"])
    # The slope of the loss along its own gradient is the gradient's norm; central differences in float32 with a step h
    # err by about 1e-7 / h = 1e-5 from rounding and h^2 = 1e-4 from curvature, relative to numbers of order one.
    some = jax.tree.map(lambda rows: rows[:256], problem.data)
    gradient = jax.grad(problem.loss)(params, some)
    up, down = (
        jax.tree.map(lambda x, g: x + sign * 1e-2 / norm * g, params, gradient)  # noqa: B023
        for sign in (1, -1)
    )
    slope = float(problem.loss(up, some) - problem.loss(down, some)) / 2e-2
    assert norm > 1e-3
    assert slope == pytest.approx(norm, rel=2e-2)


def test_smoke_scale_runs_redraws_and_goes_on_from_its_tables(tmp_path, mnist_is_here, first_asked_for):
    scale = fig5.SCALES["smoke"]
    fig5.run(tmp_path, scale, Workshop(tmp_path, lambda words: None))
    rows = read_table(tmp_path / "training.csv")
    assert {row["algorithm"] for row in rows} == set(KINDS)
    assert [row["step"] for row in rows if row["algorithm"] == "GD"] == list(range(scale.steps_gradient + 1))
    assert all(row["gradient_norm"] > 0 for row in rows if row["algorithm"] == "aMC")
    assert outcomes(tmp_path, "smoke") == [NOT_DECIDED] * 4
    (picture,) = fig5.draw(tmp_path)
    picture.unlink()
    fig5.draw(tmp_path)  # from the files alone
    assert picture.stat().st_size > 10_000
    assert picture.with_suffix(".svg").exists()
    tables = {path: path.read_text() for path in tmp_path.glob("*.csv")}
    for name in ("aMC", "GD"):
        shutil.rmtree(tmp_path / "runs" / name)
    assert first_asked_for(fig5, tmp_path, scale) is None
    assert {path: path.read_text() for path in tables} == tables
    again = dataclasses.replace(scale, steps_again=2, steps_large=40)
    assert first_asked_for(fig5, tmp_path, again) is None  # aMC has never left the plateau
    np.save(tmp_path / LARGE, np.zeros(3))
    write_path(tmp_path, norms=[1.0] * 60, is_over=1)
    assert first_asked_for(fig5, tmp_path, again) == "GD without clipping"
    write_path(tmp_path, norms=[1.0] * 60, is_over=0)
    assert first_asked_for(fig5, tmp_path, scale) == "aMC"
    assert first_asked_for(fig5, tmp_path, again) == "GD without clipping"  # before aMC, which takes longer
    (tmp_path / LARGE).unlink()
    assert first_asked_for(fig5, tmp_path, again) == "aMC"  # whose stored run is gone


def write_path(out, norms, is_over):
    """Write a path of aMC in place of what training.csv has of it: on the plateau at first, then off it."""
    rows = [row for row in read_table(out / "training.csv") if row["algorithm"] != "aMC"]
    write_table(out / "training.csv", [*path_of(norms, is_over), *rows])


def path_of(norms, is_over=0, every=1):
    same = {"algorithm": "aMC", "accuracy": 0.5, "acceptance": 0.5, "sigma": 1e-3, "is_over": is_over}
    plateau = [{"loss": LN2, "gradient_norm": 1e-3}] * 5
    rows = [*plateau, *({"loss": 0.1, "gradient_norm": norm} for norm in norms)]
    return [{**same, "step": every * place, **row} for place, row in enumerate(rows)]


def test_the_large_gradients_are_where_their_running_median_is_largest():
    scale = dataclasses.replace(fig5.SCALES["smoke"], steps_large=4000, record_every=100)
    # A hill about the 20th record off the plateau, the 25th of all, a jump elsewhere, and a higher hill beyond the
    # 40 records that are looked at. Every window that holds the hill's 11 highest records has the same median.
    hill = range(100 * (25 - AROUND), 100 * (25 + AROUND) + 1)
    norms = [10 - abs(place - 20) / 4 for place in range(80)]
    norms[5], norms[60:] = 1e6, [100.0] * 20
    assert steepest(path_of(norms, every=100), scale) in hill
    norms[19] = float("nan")  # it overflowed on its way
    assert steepest(path_of(norms, every=100), scale) in hill
    gone = [*norms[:25], *[float("nan")] * 25, *norms[50:]]  # whole windows of them
    assert steepest(path_of(gone, every=100), scale) in hill
    # A run that is stopped before all of that has been seen cannot say; one that has ended has no more to say.
    seen = 40 + AROUND
    assert steepest(path_of(norms[:seen], every=100), scale) is not None
    assert steepest(path_of(norms[: seen - 1], every=100), scale) is None
    assert steepest(path_of(norms[: seen - 1], is_over=1, every=100), scale) is not None
    assert steepest(path_of([], is_over=1), scale) is None  # it never left the plateau


def test_the_net_with_large_gradients_is_that_of_the_path(tmp_path, mnist_is_here, monkeypatch):
    scale = dataclasses.replace(fig5.SCALES["smoke"], steps_gradient=1, steps_large=6)
    monkeypatch.setattr("gradless.experiments.fig5.regimes.AROUND", 0)
    # On so short a path the loss stays near ln 2: the first half of it is called the plateau.
    half = lambda rows: np.asarray([row["step"] < 6 for row in rows])  # noqa: E731
    monkeypatch.setattr("gradless.experiments.fig5.regimes._is_on_plateau", half)
    fig5.run(tmp_path, scale, Workshop(tmp_path, lambda words: None))
    told = []
    options = {"hidden": scale.hidden, "shrink": scale.shrink, "with_norm": True}
    assert save_large(tmp_path, scale, options, told.append)
    rows = [row for row in read_table(tmp_path / "training.csv") if row["algorithm"] == "aMC"]
    largest = max(rows[6:12], key=lambda row: row["gradient_norm"])
    assert f"step {largest['step']}" in told[0]
    begun = fig5.recurrent(**options, start=str(tmp_path / LARGE))
    # In float32, summed in another order outside the compiled loop: some 1e-7 a term of 256 x 49, so 1e-4 is far away.
    norm = float(begun.metrics(begun.init, jax.tree.map(lambda rows: rows[:10], begun.test))["gradient_norm"])
    assert norm == pytest.approx(largest["gradient_norm"], rel=1e-4)


def test_gradient_descent_goes_on_from_a_file(tmp_path, mnist_is_here):
    start = fig5.recurrent(hidden=2, shrink=7)
    x = np.linspace(-1, 1, sum(np.size(leaf) for leaf in jax.tree.leaves(start.init(jax.random.key(0)))))
    np.save(tmp_path / "x.npy", x.astype(np.float32))
    begun = fig5.recurrent(hidden=2, shrink=7, start=str(tmp_path / "x.npy"))
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(begun.init)])
    np.testing.assert_array_equal(flat, x.astype(np.float32))
    assert dataclasses.replace(begun, init=start.init).steps == start.steps
