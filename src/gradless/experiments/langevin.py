"""Eq. (2): small moves, accepted if the loss does not increase, are noisy normalised descent. Paper: Sec. II A.

On a linear loss U = g.x a move eps is accepted if eps.g <= 0, whatever its size, so that Eq. (2) can be tested at any
sigma. With c = -eps.g/|g|, the component downhill, one step moves by c if c >= 0 and by nothing otherwise: its mean is
sigma/sqrt(2 pi), its mean square sigma^2/2. A component across the gradient has mean 0 and mean square sigma^2/2.
"""

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradless.experiments.claims import Verdict, judge, not_run
from gradless.experiments.tables import column, read_table, write_table
from gradless.experiments.workshop import Workshop
from gradless.kernels import Metropolis
from gradless.plots import COLOURS, new_figure, save
from gradless.types import Evaluation, Key

TITLE = "Langevin: zero-temperature Monte Carlo is noisy normalised gradient descent"
DIRECTION = np.array([2.0, -1.0, 2.0]) / 3  # of the gradient: not along an axis
ACROSS = np.array([[1.0, 2.0, 0.0], [-4.0, 2.0, 5.0]]) / np.sqrt([[5.0], [45.0]])  # two directions across it
AXES = {"downhill": -DIRECTION, "across 1": ACROSS[0], "across 2": ACROSS[1]}
GRADIENTS = (1e-3, 1.0, 1e3)  # |grad U|, which must not matter
SIGMAS = (1e-4, 1e-2)
DRIFT, MEAN_SQUARE = 1 / np.sqrt(2 * np.pi), 1 / 2  # downhill, in units of sigma and sigma^2
LARGEST_Z = 4.0  # 36 normal deviates all lie within it with probability 0.998
SAYS = "drift sigma/sqrt(2 pi) along -grad, noise variance sigma^2/2, on a linear loss"
RULE = f"every |z| below {LARGEST_Z:g}"


@dataclass(frozen=True)
class Scale:
    """What one scale runs."""

    moves: int  # independent ones, for each gradient and sigma
    budget: str  # of time, for people


SCALES = {
    "smoke": Scale(moves=10_000, budget="3 s"),
    "quick": Scale(moves=1_000_000, budget="10 s"),
    "paper": Scale(moves=10_000_000, budget="1 min"),
}
BLOCK = 100_000  # moves at once
ENOUGH = 1_000_000  # moves: drift and mean square are then known to 0.2 percent


def run(out: Path, scale: Scale, workshop: Workshop) -> None:
    """Let many particles make one Metropolis step each, and take moments of where they went."""
    rows: list[dict[str, Any]] = []
    with jax.enable_x64(True):
        for gradient in GRADIENTS:
            for sigma in SIGMAS:
                key = jax.random.key(len(rows))
                workshop.tell(f"gradient {gradient:g}, sigma {sigma:g}: {scale.moves:,} moves")
                rows += [
                    {"gradient": gradient, "sigma": sigma, "axis": axis, "moves": scale.moves, **moments}
                    for axis, moments in _moments(key, gradient, sigma, scale.moves).items()
                ]
    write_table(out / "moments.csv", rows)


def _moments(key: Key, gradient: float, sigma: float, moves: int) -> dict[str, dict[str, float]]:
    """Return mean and mean square of the displacement along each axis, in units of sigma, with standard errors."""
    block = min(BLOCK, moves)
    powers = np.zeros((4, len(AXES)))
    for number in range(moves // block):
        keys = jax.random.split(jax.random.fold_in(key, number), block)
        along = (
            np.asarray(_displacements(keys, Metropolis(sigma=sigma), gradient))
            @ np.stack(list(AXES.values())).T
            / sigma
        )
        powers += [(along**power).sum(axis=0) for power in (1, 2, 3, 4)]
    mean, square, _, fourth = powers / (moves // block * block)
    errors = np.sqrt((square - mean**2) / moves), np.sqrt((fourth - square**2) / moves)
    names = ("drift", "mean_square", "drift_error", "mean_square_error")
    return {
        axis: dict(zip(names, map(float, values), strict=True))
        for axis, values in zip(AXES, np.stack([mean, square, *errors], axis=1), strict=True)
    }


@jax.jit
def _displacements(keys: Key, algorithm: Metropolis, gradient: float) -> jax.Array:
    def evaluate(x: jax.Array) -> Evaluation:
        return Evaluation(gradient * jnp.asarray(DIRECTION) @ x)

    def displacement(key: Key) -> jax.Array:
        x = jnp.zeros(3)
        state = algorithm.init(x, evaluate(x))
        return algorithm.step(algorithm.draw(key, x), state, evaluate, False)[0].x

    return jax.vmap(displacement)(keys)


def draw(out: Path) -> list[Path]:
    """Draw drift and mean square per step, in units of sigma, against the size of the gradient."""
    rows = read_table(out / "moments.csv")
    figure, axes = new_figure(2)
    panels = (("drift", "drift per step / σ", DRIFT), ("mean_square", "mean square per step / σ²", MEAN_SQUARE))
    for axis, (name, label, expected) in zip(axes, panels, strict=True):
        axis.axhline(expected, color="black", linewidth=0.8)
        if name == "drift":
            axis.axhline(0, color="black", linewidth=0.8, linestyle=":")
        for shift, (direction, marker) in enumerate(zip(AXES, "os^", strict=True)):
            for sigma, fill in zip(SIGMAS, (COLOURS["mc"], "white"), strict=True):
                mine = [row for row in rows if row["axis"] == direction and row["sigma"] == sigma]
                axis.errorbar(
                    column(mine, "gradient") * 1.5 ** (shift - 1 + (0.3 if sigma == SIGMAS[1] else 0)),
                    column(mine, name),
                    2 * column(mine, f"{name}_error"),
                    fmt=marker,
                    color=COLOURS["mc"],
                    markerfacecolor=fill,
                    markersize=5,
                    label=f"{direction}, σ = {sigma:g}",
                )
        axis.set(xlabel="size of the gradient |∇U|", ylabel=label, xscale="log")
        axis.grid(alpha=0.25, linewidth=0.5)
    axes[0].annotate("1/√(2π)", (3e-2, DRIFT), xytext=(0, -12), textcoords="offset points", fontsize=9)
    axes[1].annotate("1/2", (3e-2, MEAN_SQUARE), xytext=(0, 4), textcoords="offset points", fontsize=9)
    axes[0].set_ylim(-0.05, 0.5)
    axes[0].legend(frameon=False, fontsize=7, ncols=2, loc="center")
    return [save(figure, out / "langevin")]


def check(out: Path, scale: str) -> list[Verdict]:
    """Drift and noise are those of Eq. (2), whatever the gradient's size and sigma."""
    rows = read_table(out / "moments.csv")
    there = {(row["gradient"], row["sigma"], row["axis"]) for row in rows}
    if missing := [", ".join(map(str, one)) for one in product(GRADIENTS, SIGMAS, AXES) if one not in there]:
        return [not_run("E2", SAYS, missing, RULE)]
    downhill = column(rows, "axis") == "downhill"
    z_drift = (column(rows, "drift") - np.where(downhill, DRIFT, 0)) / column(rows, "drift_error")
    z_square = (column(rows, "mean_square") - MEAN_SQUARE) / column(rows, "mean_square_error")
    largest = max(np.abs(z_drift).max(), np.abs(z_square).max())
    drift, square = column(rows, "drift")[downhill].mean(), column(rows, "mean_square").mean()
    return [
        judge(
            "E2",
            SAYS,
            f"drift {drift:.5f} sigma (theory {DRIFT:.5f}), variance {square:.5f} sigma^2, largest |z| {largest:.2f}",
            RULE,
            holds=bool(largest < LARGEST_Z),
            is_decided=bool(scale != "smoke" and column(rows, "moves").min() >= ENOUGH),
            differs="the noise is taken about zero: about its mean, the variance along the gradient is "
            "(1/2 - 1/(2 pi)) sigma^2, which Eq. (2), the limit of small sigma, leaves out",
        )
    ]
