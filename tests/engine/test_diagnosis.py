"""When a run goes badly, one line says why."""

from types import SimpleNamespace

import numpy as np
import pytest

import gradless as gl
from gradless.engine.diagnosis import advice
from gradless.engine.program import DIVERGED, GOING


def session(losses, acceptance=0.2, algorithm=None, batches=None, is_frozen=False, status=GOING, **more):
    """Return a stand-in for a session with these records."""
    rows = [{"loss": loss, "acceptance": acceptance, "is_frozen": is_frozen, "sigma": 1.0} for loss in losses]
    rows[-1]["sigma"] = more.pop("sigma", 1.0)
    rows[0]["acceptance"] = float("nan") if np.ndim(acceptance) == 0 else [float("nan")] * len(acceptance)
    chain = SimpleNamespace(algorithm=algorithm or gl.metropolis(), status=status)
    work = SimpleNamespace(batches=batches or gl.full_batch())
    usual = {"chains": [chain], "rows": rows, "work": work, "t": 1000, "stopped_by": "steps", "dtype": "float32"}
    return SimpleNamespace(**usual | more)


NAN = float("nan")
FALLING = np.linspace(1, 0.1, 20).tolist()
STILL = np.linspace(1, 0.99, 20).tolist()
NOISY = (0.5 + np.tile([0.1, -0.1], 10) - np.linspace(0, 0.01, 20)).tolist()


@pytest.mark.parametrize(
    ("badly", "words"),
    [
        (session(FALLING, acceptance=1e-3), "acceptance has come to 0.10%: sigma is too large; lower it"),
        (session(STILL, acceptance=0.0, algorithm=gl.amc()), "sigma is too large; aMC lowers it by itself"),
        (session(STILL, acceptance=0.0, algorithm=gl.amc(), sigma=0.02), "sigma is too large"),
        (
            session(STILL, acceptance=0.0, algorithm=gl.amc(), sigma=1e-5),
            "sigma has shrunk to 1.0e-05: x sits at",
        ),
        (
            session(STILL, acceptance=0.49),
            "acceptance has come to 49% and the loss has hardly fallen: sigma is too small",
        ),
        (session(FALLING, is_frozen=True), "frozen: sigma has fallen below what float32 can resolve"),
        (session(FALLING, is_frozen=True), "use float64, a larger n_s"),
        (session(FALLING, is_frozen=True, dtype="float64"), "use a larger n_s"),  # there is nothing finer
        (session(STILL, algorithm=gl.gradient_descent(), is_frozen=True), "the gradient has vanished: try aMC"),
        (session(NOISY, batches=gl.minibatch(2)), "varies more from minibatch to minibatch than it falls"),
        (
            session(FALLING, algorithm=gl.adam(), status=DIVERGED),
            "no longer a number: lower the learning rate or clip",
        ),
        (
            session([0.5, NAN, 0.4], batches=gl.minibatch(2)),
            "not a number on some of the minibatches, where every move is rejected: look for NaN in the data",
        ),
        (session([[1.0, 1.0]] * 5, acceptance=[0.0, 0.001]), "sigma is too large"),
        (session([[1.0, 1.0]] * 5, is_frozen=[False, True]), "frozen"),
    ],
)
def test_a_run_that_goes_badly_is_told_why(badly, words):
    assert words in advice(badly)


@pytest.mark.parametrize(
    "well",
    [
        session(FALLING),
        session(FALLING, acceptance=0.49),  # fast enough
        session(STILL, acceptance=0.2),
        session(FALLING, batches=gl.minibatch(2)),
        session(NOISY),  # not from minibatches
        session(FALLING, algorithm=gl.adam()),
        # The second chain has ended at its target, and its records show NaN from there on.
        session([[loss, NAN] for loss in FALLING], acceptance=[0.2, NAN], is_frozen=[False, False]),
        session([1.0], acceptance=0.0),  # too early to tell
        session(STILL, acceptance=0.0, t=100),
        session(STILL, acceptance=0.49, stopped_by="target"),  # it is where it was to go
    ],
)
def test_a_run_that_goes_well_is_left_alone(well):
    assert advice(well) is None
