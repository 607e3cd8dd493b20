"""What a fit of the scikit-learn estimators costs by its loss and precision: python -m bench.estimators"""

import math
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler

from gradless.bench.timing import interleaved, tell
from gradless.sklearn import MCClassifier

STEPS = 1000


def compiled(y: Any, p: Any) -> Any:
    """The 0-1 error, as JAX can compile it."""
    return (p.argmax(axis=1) != y).mean()


def called(y: Any, p: Any) -> float:
    """The same, but a plain number, which JAX cannot follow."""
    return float((p.argmax(axis=1) != y).mean())


def turn(x: np.ndarray, y: np.ndarray, loss: Any) -> Any:
    """Return one fit of a fixed number of steps."""
    net = MCClassifier(loss=loss, max_iter=STEPS, n_iter_no_change=math.inf, random_state=0)
    return lambda: net.fit(x, y)


if __name__ == "__main__":
    x, y = load_digits(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    contestants = {
        "cross entropy, float64": turn(x, y, "cross_entropy"),
        "cross entropy, float32": turn(x.astype(np.float32), y, "cross_entropy"),
        "a compiled function, float64": turn(x, y, compiled),
        "a function called in Python, float64": turn(x, y, called),
    }
    tell("digits, 64-32-10, all 1797", interleaved(contestants, rounds=3), STEPS, "us", "cross entropy, float64")
