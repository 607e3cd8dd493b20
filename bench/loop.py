"""What the loop itself costs, against the same algorithm in NumPy: python -m bench.loop"""

import numpy as np

import gradless as gl
from gradless.bench.timing import interleaved, tell

STEPS = 200_000
NUMPY_STEPS = 20_000


def rosenbrock(x):  # type: ignore[no-untyped-def]
    """The loss, for JAX and NumPy alike."""
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


def numpy_amc(steps: int, sigma: float = 1e-3, epsilon: float = 1e-2, n_s: int = 20) -> float:
    """Sec. III A as one would write it in NumPy."""
    rng = np.random.default_rng(0)
    x, mu, n_cr = np.array([-2.0, 2.0]), np.zeros(2), 0
    loss = rosenbrock(x)
    for _ in range(steps):
        eps = mu + sigma * rng.standard_normal(2)
        x_new = x + eps
        loss_new = rosenbrock(x_new)
        if np.isfinite(loss_new) and loss_new <= loss:
            x, loss, n_cr = x_new, loss_new, 0
            mu = mu + epsilon * (eps - mu)
        else:
            n_cr += 1
            if n_cr == n_s:
                n_cr, sigma, mu = 0, 0.95 * sigma, np.zeros(2)
    return float(loss)


def numpy_loop() -> None:
    """A turn of the NumPy loop; it is slow, so it has fewer steps."""
    numpy_amc(NUMPY_STEPS)


def compiled(precision: str = "float64") -> None:
    """The same number of steps through gl.train, traces and all."""
    start = np.array([-2.0, 2.0])
    gl.train(gl.amc(sigma=1e-3, epsilon=1e-2, n_s=20), rosenbrock, start, steps=STEPS, precision=precision)


def compiled_single() -> None:
    """The same in float32."""
    compiled("float32")


def chains() -> None:
    """Ten chains at once."""
    gl.train(gl.amc(sigma=1e-3, epsilon=1e-2, n_s=20), rosenbrock, np.array([-2.0, 2.0]), steps=STEPS // 10, chains=10)


if __name__ == "__main__":
    seconds = interleaved(
        {"NumPy": numpy_loop, "gl.train": compiled, "gl.train, float32": compiled_single, "gl.train, 10 chains": chains}
    )
    seconds["NumPy"] = [value * STEPS / NUMPY_STEPS for value in seconds["NumPy"]]
    tell("Rosenbrock, aMC, float64 unless said, per step of one chain", seconds, STEPS, "us", "NumPy")
