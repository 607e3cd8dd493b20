"""Which sigma? Short trial chains over a grid, all in one call, and the best of them."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradless.engine.train import check_algorithm, train
from gradless.types import Algorithm, Loss

GRID = tuple(np.logspace(-4, 0, 9).tolist())


@dataclass(frozen=True)
class Tuning:
    """What was tried and what came of it.

    sigma: the best.
    sigmas: all that were tried.
    losses: of each, the mean over the second half of the trial's records.
    acceptances: of each, the share of accepted steps.
    steps: of each trial.
    """

    sigma: float
    sigmas: np.ndarray
    losses: np.ndarray
    acceptances: np.ndarray
    steps: int


def tune_sigma(
    algorithm: Algorithm,
    loss: Loss,
    params: Any,
    *,
    data: Any = None,
    sigmas: Any = GRID,
    steps: int = 500,
    **settings: Any,
) -> Tuning:
    """Train one short chain per sigma and return the sigma whose loss is lowest; the rest is as in `gl.train`.

    The loss is averaged over the second half of the trial, so that a lucky minibatch at its end does not decide.

    algorithm: `gl.amc(...)` or `gl.metropolis(...)`; its sigma is not used.
    loss, params, data: as in `gl.train`.
    sigmas: those to be tried.
    steps: of each trial.
    settings: any other argument of `gl.train` except `chains`: there is one chain for each sigma.
    """
    check_algorithm(algorithm)
    if not hasattr(algorithm, "sigma"):
        raise ValueError(f"sigma can be tuned for Monte Carlo algorithms, got {algorithm.name}")
    if "chains" in settings:
        raise ValueError(f"chains must not be given: there is one for each sigma, got {settings['chains']!r}")
    sigmas = np.atleast_1d(np.asarray(sigmas, dtype=float))
    trial = dataclasses.replace(algorithm, sigma=sigmas)  # type: ignore[type-var]
    result = train(trial, loss, params, data=data, steps=steps, chains=len(sigmas), **settings)
    trace = np.atleast_2d(result.trace.loss)  # a single chain has no axis of its own
    losses = _held(trace)[:, trace.shape[1] // 2 :].mean(axis=1)
    losses = np.where(np.isfinite(losses), losses, np.inf)
    best = float(sigmas[int(np.argmin(losses))])
    return Tuning(best, sigmas, losses, np.atleast_1d(result.acceptance), steps)


def _held(trace: np.ndarray) -> np.ndarray:
    """Return records in which a chain that has ended, and has none any more, stays at its last loss."""
    places = np.where(np.isnan(trace), 0, np.arange(trace.shape[1]))
    return np.take_along_axis(trace, np.maximum.accumulate(places, axis=1), axis=1)
