"""What many chains cost against one, and progressive batches against the full batch: python -m bench.chains"""

import numpy as np

import gradless as gl
from gradless.bench.timing import interleaved, tell
from gradless.engine.plan import Plan
from gradless.engine.session import Session
from gradless.engine.train import prepare
from gradless.problem import Problem
from gradless.problems import make_problem
from gradless.runs import parse_batch
from gradless.types import Algorithm


def started(made: Problem, algorithm: Algorithm, num_chains: int, precision: str) -> Session:
    """Return a session whose chains have begun."""
    plan = Plan(steps=10**9, chains=tuple(range(num_chains)), precision=precision, record_every=10**6)
    session = prepare(algorithm, made.loss, made.init, plan, data=made.data)
    session.begin()
    return session


def race(
    title: str, made: Problem, one: Algorithm, many: Algorithm, num_chains: int, steps: int, precision: str
) -> None:
    """Time one chain against many, both on all cores."""
    sessions = {
        "1 chain": started(made, one, 1, precision),
        f"{num_chains} chains": started(made, many, num_chains, precision),
    }
    turns = {name: (lambda s=s: s.advance_to(s.chains[0].t + steps)) for name, s in sessions.items()}
    tell(title, interleaved(turns, rounds=3), steps, "ms", "1 chain")


def to_target(batch: str) -> None:
    """Train MNIST to 90% test accuracy and print what it took."""
    made = make_problem("mnist", {})
    batches = parse_batch(batch, made)
    result = gl.train(
        gl.amc(sigma=1e-2, n_s=20, signal_norm=True),
        made.loss,
        made.init,
        data=made.data,
        test=made.test,
        metrics=made.metrics,
        batches=batches,
        steps=100_000,
        record_every=50,
        target_metric="accuracy >= 0.9",
    )
    words = f"{result.metrics['accuracy']:.3f} after {result.steps} steps, {result.samples:.3g} samples"
    print(f"  {batch:16s} {words}, {result.seconds:.0f} s and {result.compile_seconds:.0f} s to compile")


if __name__ == "__main__":
    mnist, deep = make_problem("mnist", {}), make_problem("step", {"depth": 64})
    amc = gl.amc(sigma=1e-2, epsilon=1e-2, n_s=100, signal_norm=True)
    race("step, depth 64, float64", deep, amc, amc, 10, 200, "float64")
    sweep = gl.metropolis(sigma=np.geomspace(1e-4, 1e-1, 30))
    race("MNIST, full batch, MC of 30 different sigma", mnist, gl.metropolis(sigma=2e-3), sweep, 30, 4, "float32")
    print("MNIST to 90% test accuracy, aMC with signal norm")
    for batch in ("progressive:500", "full"):
        to_target(batch)
