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
from gradless.experiments.tables import read_table, write_table
from gradless.experiments.workshop import Workshop

LN2 = fig5.LN2


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
        [{"algorithm": k, "steps": steps_amc if k == "aMC" else steps, **sizes} for k in fig5.KINDS],
    )
    again = [
        {"algorithm": name, "step": step, "loss": loss}
        for name in fig5.AGAIN
        for step, loss in ((0, 0.02), (steps_again, explosion))
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
    assert {row["algorithm"] for row in rows} == set(fig5.KINDS)
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
    again = dataclasses.replace(scale, steps_again=2)
    assert first_asked_for(fig5, tmp_path, again) == "GD without clipping"
    write_table(tmp_path / "training.csv", [row | {"is_over": int(row["algorithm"] != "GD")} for row in rows])
    assert first_asked_for(fig5, tmp_path, scale) == "GD"
    assert first_asked_for(fig5, tmp_path, again) == "GD without clipping"  # before GD, which takes long
    (tmp_path / fig5.END).unlink()  # it starts where aMC has ended
    assert first_asked_for(fig5, tmp_path, again) == "aMC"


def test_gradient_descent_goes_on_where_amc_has_ended(tmp_path, mnist_is_here):
    start = fig5.recurrent(hidden=2, shrink=7)
    x = np.linspace(-1, 1, sum(np.size(leaf) for leaf in jax.tree.leaves(start.init(jax.random.key(0)))))
    np.save(tmp_path / "x.npy", x.astype(np.float32))
    begun = fig5.recurrent(hidden=2, shrink=7, start=str(tmp_path / "x.npy"))
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(begun.init)])
    np.testing.assert_array_equal(flat, x.astype(np.float32))
    assert dataclasses.replace(begun, init=start.init).steps == start.steps
