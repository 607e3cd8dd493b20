"""What is measured of a workload: the parts add up, the laws are found, the memory is that of another process."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from gradless.bench import measure as module
from gradless.bench.contestants import CONTESTANTS, Gradless, started
from gradless.bench.growth import Law, exponent, laws, measure_growth
from gradless.bench.memory import held, held_by_case, peak_megabytes
from gradless.bench.roofline import Machine
from gradless.bench.split import LossAlone, NoiseAlone, Split, draw_again, evaluate_again
from gradless.bench.timing import Spread
from gradless.bench.workloads import Workload, tiny
from gradless.engine.program import key_steps
from gradless.engine.stepping import block_length
from gradless.problems import make_problem

MACHINE = Machine(1e11, 1e10, 1e9)


class Absent(Gradless):
    name = "absent"

    def missing(self):
        return "pip install absent"


class NotForIt(Gradless):
    name = "not-for-it"

    def prepare(self, workload):
        raise NotImplementedError("needs a net")


def test_the_parts_of_a_step_add_up():
    split = Split(total=5.0, noise=1.0, loss=3.5)
    assert split.noise + split.loss + split.rest == split.total


def test_all_of_a_workload_is_measured(monkeypatch):
    monkeypatch.setattr(module, "peak_megabytes", lambda make, name: 123.0)
    told = []
    law = Law("things", (1, 10), lambda size: lambda steps: None)
    found = module.measure(
        tiny,
        "W3",
        [*CONTESTANTS, Absent(), NotForIt()],
        MACHINE,
        rounds=2,
        turn_seconds=1e-3,
        laws=[law],
        told=told.append,
    )
    assert list(found.seconds) == ["gradless", "jax-scan", "torch-eager"]
    assert found.absent == {"absent": "not installed: pip install absent", "not-for-it": "needs a net"}
    assert all(len(spread.rounds) == 2 and spread.low > 0 for spread in found.seconds.values())
    assert found.split.total == found.seconds["gradless"].median
    assert found.ratio("absent") is None
    table = json.loads(json.dumps(found.to_json()))
    assert table["ratio_to"]["jax-scan"]["rounds"] == list(found.ratio("jax-scan").rounds)
    assert table["split"]["total"] == pytest.approx(sum(table["split"][part] for part in ("noise", "loss", "rest")))
    assert table["growth"][0]["sizes"] == [1, 10]
    assert table["peak_megabytes"] == 123.0
    assert "round 2 of 2" in told


def test_the_noise_alone_is_the_noise_of_the_steps():
    session = started(tiny("W3"))
    alone, key = NoiseAlone(session), session.chains[0].key
    block = block_length(alone.x)
    drawn = draw_again(alone.algorithm, key, alone.x, 2 * block).normal  # of the last block: steps `block` and on
    for place in (0, block - 1):
        expected = alone.algorithm.draw(jax.random.fold_in(key_steps(key), block + place), alone.x).normal
        np.testing.assert_array_equal(drawn[place], expected)


@pytest.mark.parametrize("name", ["W2", "W4"])
def test_the_loss_alone_is_the_loss(name):
    session = started(tiny(name))
    alone = LossAlone(session)
    assert alone.per_step == (2 if name == "W4" else 1)
    once, thrice = (evaluate_again(alone.program, alone.x, alone.data, times) for times in (1, 3))
    np.testing.assert_allclose(thrice.loss, once.loss, rtol=1e-6)
    if name == "W2":  # on a full batch it is U at the start
        np.testing.assert_allclose(once.loss, session.chains[0].carry.state.loss, rtol=1e-6)


@pytest.mark.parametrize("power", [0.0, 1.0, 1.5])
def test_the_exponent_of_a_known_law(power):
    sizes = [10, 100, 1000]
    assert exponent(sizes, [3 * size**power for size in sizes]) == pytest.approx(power, abs=1e-12)


def test_growth_is_fitted_to_the_medians(monkeypatch):
    times = {"1": Spread((1.0, 2.0, 9.0)), "10": Spread((20.0, 20.0, 20.0))}
    monkeypatch.setattr("gradless.bench.growth.race", lambda *_: times)
    growth = measure_growth(Law("data", (1, 10), lambda size: lambda steps: None), 3, 0.1, print)
    assert growth.exponent == pytest.approx(1.0)


def test_parameters_data_depth_and_chains_grow_by_ten():
    grown = {law.what: law.sizes for name in ("W1", "W2", "W3", "W4", "W5", "W6") for law in laws(name)}
    assert list(grown) == ["data", "depth", "chains", "parameters"]
    for sizes in grown.values():
        assert sizes[-1] >= 9.8 * sizes[0]
    assert grown["parameters"][-1] == 1_004_001


@pytest.mark.soak
def test_mu_and_lambda_are_each_seen_in_what_a_chain_holds():
    """On a net of 1.2e4 parameters and few samples; what a vector more costs is at least that vector."""
    cases = held_by_case(tiny("W6"))
    assert cases["with mu"].vectors >= cases["epsilon 0"].vectors + 1
    assert cases["with lambda"].vectors >= cases["epsilon 0"].vectors + 1
    # Proposals are looked at one after the other, and made again when they are accepted: nothing is kept of them.
    assert cases["speculating 4 ahead"].vectors < cases["epsilon 0"].vectors + 2
    assert held(tiny("W3")).vectors > 1


def test_without_mu_a_chain_holds_two_vectors():
    """x and the proposal; the noise, as long as they are, is not held beyond the move."""
    made = make_problem("sine", {"width": 100, "points": 32})
    workload = Workload("sine", "minibatches", made, {"sigma": 1e-2, "epsilon": 0.0}, batch=4)
    assert held(workload).vectors < 2.3


def test_the_peak_is_that_of_a_new_process():
    ballast = np.ones(300_000_000 // 8)
    here = ballast.nbytes / 1e6
    peak = peak_megabytes(tiny, "W3")
    # Python, NumPy and JAX alone take more than 100 MB and less than what this process holds on top of them.
    assert 100 < peak < _resident() - here / 2


def _resident():
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6
