"""The three functions of one variable that the paper's small nets learn.

Each returns (theta, target), both float64 of shape (points, 1), with theta = linspace(0, 1, points), ends included.
"""

import numpy as np


def sine(points: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """sin(2 pi theta).

    Paper: Sec. II B. Claims: F2. A net of zero output has U = 0.4995 exactly, not 1/2: the two ends coincide.
    """
    theta = _grid(points)
    return theta, np.sin(2 * np.pi * theta)


def log_sine(points: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """ln(1 + 5 theta) + 0.1 sin(20 pi theta): a slow feature, learnt first, and a fast one.

    Paper: Sec. II C, Eq. (7). Claims: F4. The log term alone leaves U = 0.004995.
    """
    theta = _grid(points)
    return theta, log_term(theta) + 0.1 * np.sin(20 * np.pi * theta)


def log_term(theta: np.ndarray) -> np.ndarray:
    """ln(1 + 5 theta), the slow feature of `log_sine`, which the pseudo-loss U' of F4b compares with."""
    return np.log1p(5 * theta)


def step(points: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """1/2 where 1/2 < theta < 3/4, and 0 elsewhere.

    Paper: Sec. II E. Claims: F6. A net of zero output has U = 1/16, the best constant 3/64.
    """
    theta = _grid(points)
    return theta, np.where((theta > 1 / 2) & (theta < 3 / 4), 0.5, 0.0)


def _grid(points: int) -> np.ndarray:
    if int(points) != points or points < 2:
        raise ValueError(f"points must be a whole number, 2 or more, got {points}")
    return np.linspace(0, 1, int(points))[:, None]
