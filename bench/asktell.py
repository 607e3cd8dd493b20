"""What a chain that asks and is told costs beside the evaluations, in microseconds per step: python -m bench.asktell"""

import statistics
import time

import numpy as np

import gradless as gl

STEPS, ROUNDS = 500, 5


def microseconds(size: int, loss: float) -> float:
    """Return the median time of a step in which every loss told is `loss`; that of the start is 0."""
    opt = gl.AskTell(np.zeros(size), gl.amc(sigma=1e-3, epsilon=1e-2))
    opt.ask()
    opt.tell(0.0)
    times = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        for _ in range(STEPS):
            opt.ask()
            opt.tell(loss)
        times.append((time.perf_counter() - began) / STEPS * 1e6)
    return statistics.median(times[1:])  # the first round compiles


if __name__ == "__main__":
    for size in (2, 100, 1000, 10_000):
        rejected, accepted = microseconds(size, 1.0), microseconds(size, 0.0)
        print(f"{size:>6} parameters: {rejected:6.0f} us a rejected step, {accepted:6.0f} us an accepted one")
