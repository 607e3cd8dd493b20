"""Races: clocks of their own, the fastest first, whoever it is."""

import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

from gradless.bench import races
from gradless.bench.peers import scipy
from gradless.bench.peers.gradless import Training, ours
from gradless.bench.peers.peer import Peer
from gradless.bench.peers.task import Task
from gradless.bench.races import RACES, Race, hold, table
from gradless.data.store import DataUnavailable
from gradless.engine import loop
from gradless.engine.batches import FullBatch, Progressive
from gradless.kernels import AMC
from gradless.problem import Problem

X = np.linspace(-1, 1, 40)


def line(params, batch):
    return jnp.mean((batch[0] * params["slope"] + params["offset"] - batch[1]) ** 2)


def right(params, test):
    return {"score": 1 - line(params, test)}


START = {"slope": np.zeros(1), "offset": np.zeros(1)}
LINE = Problem(
    START, line, (X, 2 * X + 1), (X, 2 * X + 1), right, line, algorithms={"amc": {"sigma": 0.1}}, precision="float64"
)
OURS = ours("sigma 0.1", AMC(sigma=0.1, n_s=20))


class Clock:
    """Time that passes only where a contestant, or the judge, lets it pass."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    def process_time(self):
        return 2 * self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(races, "time", made)
    return made


def walker(clock, name, slope_per_second):
    """A contestant that makes a hundred evaluations a second and walks towards slope = 2 at a known speed."""

    def search(task):
        state = SimpleNamespace(evaluations=0, samples=0, compile_seconds=7.0)

        def advance(evaluations):
            state.evaluations += evaluations
            clock.now += evaluations / 100

        def params():
            clock.now += 5.0  # looking is not on anybody's clock
            return {"slope": np.full(1, slope_per_second * state.evaluations / 100), "offset": np.ones(1)}

        state.advance, state.params = advance, params
        return state

    return Peer(name, "gradless", "gradless", f"{slope_per_second} a second", search)


def test_the_fastest_comes_first_with_the_time_on_its_own_clock(clock):
    # score = 1 - mean(x^2) (2 - slope)^2 passes 0.99 at slope = 2 - sqrt(0.01 / mean(x^2)), some 1.83.
    there = 2 - np.sqrt(0.01 / np.mean(X**2))
    race = Race(lambda: LINE, "score >= 0.99", (walker(clock, "slow", 0.5), walker(clock, "quick", 1.0)))
    quick, slow = hold("line", race, limit=60)
    assert (quick.contestant, slow.contestant) == ("quick", "slow")
    for row, speed in ((quick, 1.0), (slow, 0.5)):
        assert row.reached
        # A turn is at most 0.2 s here, and the target may be met anywhere within the last one.
        assert there / speed <= row.seconds <= there / speed + 0.2
        assert row.cpu_seconds == pytest.approx(2 * row.seconds)
        assert row.compile_seconds == 7.0
        assert row.evaluations == pytest.approx(100 * row.seconds)
        assert row.value >= 0.99


def test_out_of_reach_it_ends_at_the_limit(clock):
    race = Race(lambda: LINE, "score >= 2", (walker(clock, "walker", 1.0),))
    (row,) = hold("line", race, limit=20)
    assert not row.reached
    assert 20 <= row.seconds <= 20 + 0.02 * 20  # the last turn is at most 2% of the time
    assert f"not in {row.seconds:.3g} s" in table([row])


def test_a_missing_peer_is_told_and_the_race_goes_on(clock):
    absent = Peer("absent", "no_such_library", "no-such-library", "", walker(clock, "", 1.0).search)
    large = Peer("small only", "gradless", "gradless", "", walker(clock, "", 1.0).search, largest=1)
    race = Race(lambda: LINE, "score >= 0.99", (absent, large, walker(clock, "walker", 1.0)))
    ran, *others = hold("line", race, limit=60)
    assert ran.reached
    assert [row.seconds for row in others] == [None, None]
    assert [row.note for row in others] == [
        "pip install no-such-library",
        "small only is for at most 1 parameters, got 2",
    ]
    assert "did not run: pip install no-such-library" in table([ran, *others])


def test_gradless_and_scipy_really_reach_a_target():
    race = Race(lambda: LINE, "loss <= 1e-3", (OURS, scipy.POWELL))
    rows = hold("line", race, limit=30)
    assert {row.contestant for row in rows} == {"gradless aMC", "SciPy Powell"}
    for row in rows:
        assert row.reached
        assert row.value <= 1e-3
        assert 0 < row.seconds < 30
        assert row.samples == 40 * row.evaluations > 0


@pytest.mark.soak
def test_a_growing_batch_is_compiled_before_the_clock_starts():
    batches = Progressive(5, line, threshold=0.05)
    training = Training(Task(LINE, "float64"), AMC(sigma=0.1, n_s=20), batches, chains=1)
    programs = loop.advance.usual._cache_size()
    training.advance(3000)
    (chain,) = training.session.chains
    assert len(chain.growths) == 3  # 5, 10, 20 and all 40 samples
    assert loop.advance.usual._cache_size() == programs
    # A step is one evaluation, and so is the look at each new batch, the first one included.
    assert training.evaluations == 3001 + 1 + 3
    ends = [*chain.growths, chain.t]
    steps = np.diff([0, *ends])
    assert training.samples == sum((steps + 1) * [5, 10, 20, 40])


def test_of_several_chains_the_best_is_handed_over():
    training = Training(Task(LINE, "float64"), AMC(sigma=0.1, n_s=20), FullBatch(), chains=3)
    training.advance(30)
    losses = [float(chain.carry.state.loss) for chain in training.session.chains]
    assert len(set(losses)) == 3
    with jax.enable_x64(True):
        assert float(line(training.params(), LINE.data)) == pytest.approx(min(losses), rel=1e-12)  # some ulp
    assert training.evaluations == 3 * (1 + 1 + 10)


def test_the_command_prints_a_table_and_writes_json(monkeypatch, tmp_path):
    monkeypatch.setitem(RACES, "line", Race(lambda: LINE, "loss <= 1e-2", (OURS,)))
    file = tmp_path / "rows.json"
    result = CliRunner().invoke(races.main, ["line", "--limit", "30", "--seed", "1", "--json", str(file)])
    assert result.exit_code == 0
    assert result.output.startswith("line: to loss <= 1e-2\n  gradless aMC")
    (row,) = json.loads(file.read_text())
    assert row["contestant"] == "gradless aMC"
    assert row["reached"] is True
    assert row["settings"] == "sigma 0.1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["marathon"], "there is no race 'marathon'"),
        (["sine", "--limit", "-1"], "limit must be positive, got -1.0"),
        (["sine", "--json", "no/such/folder.json"], "no/such/folder.json"),
    ],
)
def test_wrong_use_is_refused_before_anything_runs(arguments, words):
    result = CliRunner().invoke(races.main, arguments)
    assert result.exit_code == 2
    assert words in result.output


def test_a_wrong_name_leaves_no_file(tmp_path):
    file = tmp_path / "rows.json"
    assert CliRunner().invoke(races.main, ["marathon", "--json", str(file)]).exit_code == 2
    assert not file.exists()


def test_without_data_there_is_no_race_and_no_stack_trace(monkeypatch):
    def make():
        raise DataUnavailable("MNIST is not on this machine")

    monkeypatch.setitem(RACES, "line", Race(make, "loss <= 1e-2", (OURS,)))
    result = CliRunner().invoke(races.main, ["line"])
    assert (result.exit_code, result.output.splitlines()[-1]) == (2, "Error: MNIST is not on this machine")


@pytest.mark.parametrize("name", RACES)
def test_gradless_takes_part_in_every_race(name):
    assert RACES[name].entries[0].name == "gradless aMC"
