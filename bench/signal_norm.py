"""What signal norm costs per step, and how long a deep net takes to trace and compile: python -m bench.signal_norm."""

import time

import gradless as gl
from bench.timing import interleaved, tell
from gradless.engine.session import Session
from gradless.engine.train import Plan, prepare
from gradless.problems import make_problem


def session(problem: str, options: dict, steps: int, signal_norm: bool, precision: str) -> Session:
    """Return a session of aMC whose chain has begun."""
    made = make_problem(problem, options)
    algorithm = gl.amc(sigma=1e-2, epsilon=0.0, n_s=100, signal_norm=signal_norm)
    plan = Plan(steps=10**9, precision=precision, record_every=10**6)
    ready = prepare(algorithm, made.loss, made.init, plan, data=made.data)
    ready.begin()
    return ready


def compare(title: str, problem: str, options: dict, steps: int, precision: str) -> None:
    """Time the same chain with signal norm off and on."""
    turns = {}
    for name, is_on in (("signal norm off", False), ("signal norm on", True)):
        began = time.perf_counter()
        ready = session(problem, options, steps, is_on, precision)
        chain = ready.chains[0]
        with_mode = ready._advance

        def turn(chain=chain, with_mode=with_mode) -> None:  # type: ignore[no-untyped-def]
            with_mode(chain.t + steps)(chain)

        chain_ready = turn
        chain_ready()
        print(f"{title}, {name}: {time.perf_counter() - began:.1f} s to load, trace, compile and make {steps} steps")
        turns[name] = turn
    tell(title, interleaved(turns), steps, "ms", "signal norm off")


if __name__ == "__main__":
    compare("MNIST 784-16-16-10, full batch, float32", "mnist", {}, 20, "float32")
    compare("step, depth 128, 1000 points, float32", "step", {"depth": 128}, 300, "float32")
    compare("step, depth 128, 1000 points, float64", "step", {"depth": 128}, 300, "float64")
    compare("digits 64-16-16-10, float32", "digits", {}, 300, "float32")
