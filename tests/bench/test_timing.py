"""Turns, medians and ratios, with a clock of our own."""

import pytest

from gradless.bench import timing
from gradless.bench.timing import Spread, race, steps_for


@pytest.fixture
def clock(monkeypatch):
    """A clock that only `pass_time` moves."""
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def pass_time(seconds):
        now[0] += seconds

    return pass_time


def test_a_turn_has_the_steps_that_fill_it(clock):
    assert steps_for(lambda steps: clock(steps * 1e-3), 0.5) == 500
    assert steps_for(lambda steps: clock(steps * 2.0), 0.5) == 1


def test_what_costs_nothing_does_not_go_on_for_ever(clock):
    assert steps_for(lambda steps: None, 0.5) == timing.MAX_STEPS


def test_contestants_take_turns(clock):
    turns = []

    def runner(name, seconds):
        def run(steps):
            turns.append(name)
            clock(steps * seconds)

        return run

    found = race({"a": runner("a", 0.1), "b": runner("b", 0.4)}, rounds=3, turn_seconds=0.4)
    assert turns[-6:] == ["a", "b"] * 3
    assert found["a"].rounds == pytest.approx([0.1] * 3)
    assert found["b"].median == pytest.approx(0.4)


def test_a_ratio_is_taken_round_by_round():
    ratio = Spread((1.0, 4.0, 2.0)).over(Spread((2.0, 4.0, 8.0)))
    assert ratio.rounds == (0.5, 1.0, 0.25)
    assert (ratio.median, ratio.low, ratio.high) == (0.5, 0.25, 1.0)
