"""What signal norm costs per step, and how long a deep net takes to trace and compile: python -m bench.signal_norm"""

import time
from collections.abc import Callable

import gradless as gl
from gradless.bench.timing import interleaved, tell
from gradless.engine.plan import Plan
from gradless.engine.train import prepare
from gradless.problems import make_problem


def turns(
    title: str, problem: str, options: dict[str, int], steps: int, precision: str
) -> dict[str, Callable[[], None]]:
    """Return the same chain with signal norm off and on, each making `steps` steps a turn."""
    made = make_problem(problem, options)
    contestants: dict[str, Callable[[], None]] = {}
    for name, is_on in (("signal norm off", False), ("signal norm on", True)):
        began = time.perf_counter()
        algorithm = gl.amc(sigma=1e-2, epsilon=1e-2, n_s=100, signal_norm=is_on)
        plan = Plan(steps=10**9, precision=precision, record_every=10**6)
        session = prepare(algorithm, made.loss, made.init, plan, data=made.data)
        session.begin()
        session.advance_to(1)
        print(f"{title}, {name}: {time.perf_counter() - began:.1f} s to trace and compile")
        contestants[name] = lambda session=session: session.advance_to(session.chains[0].t + steps)  # type: ignore[misc]
    return contestants


if __name__ == "__main__":
    for title, problem, options, steps, precision in (
        ("MNIST 784-16-16-10, full batch, float32", "mnist", {}, 20, "float32"),
        ("step, depth 128, 1000 points, float32", "step", {"depth": 128}, 400, "float32"),
        ("step, depth 128, 1000 points, float64", "step", {"depth": 128}, 400, "float64"),
        ("digits 64-16-16-10, full batch, float32", "digits", {}, 1000, "float32"),
    ):
        tell(title, interleaved(turns(title, problem, options, steps, precision)), steps, "ms", "signal norm off")
