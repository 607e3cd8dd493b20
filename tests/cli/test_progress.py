"""What the line of progress says of the last moments."""

import math

import numpy as np
import pytest

from gradless.cli import progress


def test_pace_and_acceptance_are_those_of_the_last_moments(monkeypatch):
    now = iter([10.0, 11.0, 13.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    recent = progress.Recent()
    recent.update(0, np.zeros((2, 0), bool))
    assert math.isnan(recent.acceptance(0))
    recent.update(4, np.array([[1, 0, 0, 0], [1, 1, 1, 1]], bool))
    assert (recent.pace, recent.acceptance(0), recent.acceptance(1)) == (4.0, 0.25, 1.0)
    recent.update(6, np.array([[1, 1], [0, 0]], bool))
    assert (recent.pace, recent.acceptance(0)) == (2.0, 0.5)
    assert recent.acceptance(1) == pytest.approx(4 / 6)
