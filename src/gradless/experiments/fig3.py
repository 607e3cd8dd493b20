"""Fig. 3: adaptivity speeds convergence on the Rosenbrock function. Paper: Sec. II C, Eq. (6)."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gradless.experiments.claims import Verdict, judge
from gradless.experiments.tables import column, read_table, write_table
from gradless.experiments.workshop import Run, Workshop
from gradless.kernels import AMC
from gradless.plots import new_figure, save
from gradless.problem import Problem
from gradless.problems import rosenbrock

TITLE = "Rosenbrock: larger epsilon, faster along the valley"
EPSILONS = (0.0, 1e-2, 1e-1)  # the paper does not give its values
N_S = 20  # of the figure
STEPS_OF_A = 2_000
COLOURS = ("#9acd9a", "#2e8b57", "#0b3d1e")
DASHES = (":", "--", "-")
MARKERS = "s^D"
WIDTHS = (3.0, 2.0, 1.2)  # the ways lie over one another: thick below thin


@dataclass(frozen=True)
class Scale:
    """What one scale runs."""

    seeds: int
    steps: int
    n_s: tuple[int, ...]  # the caption's, and the text's
    budget: str  # of time, for people


SCALES = {
    "smoke": Scale(seeds=3, steps=2_000, n_s=(20,), budget="5 s"),
    "quick": Scale(seeds=100, steps=10_000, n_s=(20, 100), budget="20 s"),
    "paper": Scale(seeds=100, steps=10_000, n_s=(20, 100), budget="20 s"),
}


def particle() -> Problem:
    """The Rosenbrock problem with a particle whose position is recorded."""
    problem = rosenbrock()
    distance = problem.metrics
    if distance is None:
        raise ValueError("the problem rosenbrock must have metrics, got None")

    def metrics(position: jax.Array) -> dict[str, jax.Array]:
        return {**distance(position), "x": position[0], "y": position[1]}

    return replace(problem, metrics=metrics)


def run(out: Path, scale: Scale, workshop: Workshop) -> None:
    """Let particles start at (-2, 2), one chain per seed, for each epsilon and both readings of n_s."""
    rows: list[dict[str, Any]] = []
    positions: list[dict[str, Any]] = []
    for n_s in scale.n_s:
        for epsilon in EPSILONS:
            run = workshop.train(
                f"epsilon-{epsilon:g}-n_s-{n_s}",
                "gradless.experiments.fig3:particle",
                AMC(sigma=1e-3, epsilon=epsilon, n_s=n_s),
                steps=scale.steps,
                chains=scale.seeds,
                record_every=max(1, scale.steps // 500),
            )
            rows += [{"n_s": n_s, "epsilon": epsilon, **row} for row in _medians(run)]
            positions += [{"n_s": n_s, "epsilon": epsilon, **row} for row in _trajectory(run)]
    write_table(out / "convergence.csv", rows)
    write_table(out / "trajectories.csv", positions)


def _medians(run: Run) -> list[dict[str, Any]]:
    return [
        {
            "step": int(step),
            "loss": float(np.median(losses)),
            "loss_low": float(np.percentile(losses, 10)),
            "loss_high": float(np.percentile(losses, 90)),
            "distance": float(np.median(distances)),
        }
        for step, losses, distances in zip(*(run.table[name] for name in ("step", "loss", "distance")), strict=True)
    ]


def _trajectory(run: Run) -> list[dict[str, Any]]:
    """Return where the first particle was."""
    return [
        {"step": int(step), "x": float(x[0]), "y": float(y[0]), "loss": float(loss[0])}
        for step, x, y, loss in zip(*(run.table[name] for name in ("step", "x", "y", "loss")), strict=True)
    ]


def draw(out: Path) -> list[Path]:
    """Draw (a) one particle's way for each epsilon, over contours of f, and (b) f along many such ways."""
    rows, positions = read_table(out / "convergence.csv"), read_table(out / "trajectories.csv")
    figure, (left, right) = new_figure(2)
    _draw_contours(left)
    for epsilon, colour, dash, width, marker in zip(EPSILONS, COLOURS, DASHES, WIDTHS, MARKERS, strict=True):
        here = [row for row in positions if (row["epsilon"], row["n_s"]) == (epsilon, N_S)]
        way = [row for row in here if row["step"] <= STEPS_OF_A]
        label = f"ε = {epsilon:g}"
        left.plot(column(way, "x"), column(way, "y"), dash, color=colour, linewidth=width)
        left.plot(
            way[-1]["x"],
            way[-1]["y"],
            marker,
            color=colour,
            markeredgecolor="black",
            markersize=7,
            zorder=4,
            label=f"{label} ends",
        )
        mine = [row for row in rows if (row["epsilon"], row["n_s"]) == (epsilon, N_S)]
        step = column(mine, "step")
        right.plot(step, column(mine, "loss"), dash, color=colour, label=label)
        right.fill_between(
            step, column(mine, "loss_low"), column(mine, "loss_high"), color=colour, alpha=0.15, linewidth=0
        )
    left.plot(1, 1, "o", color="red", markersize=4, zorder=5)
    left.plot(positions[0]["x"], positions[0]["y"], "k+", markersize=8, label="start")
    left.set(xlabel="x", ylabel="y", title=f"(a) {STEPS_OF_A:,} steps")
    left.legend(fontsize=8, loc="upper center", framealpha=1)
    right.set(xlabel="step n", ylabel="f(x, y)", yscale="log", title="(b) median and 80% of the particles")
    right.legend(frameon=False, fontsize=8)
    return [save(figure, out / "fig3")]


def _draw_contours(axis: Any) -> None:
    x, y = np.meshgrid(np.linspace(-2.3, 1.7, 200), np.linspace(-0.7, 3.3, 200))
    value = (1 - x) ** 2 + 100 * (y - x**2) ** 2
    axis.contour(x, y, value, levels=10.0 ** np.arange(-1, 3.5, 0.5), colors="#999999", linewidths=0.5)


def check(out: Path, scale: str) -> list[Verdict]:
    """Larger epsilon gets nearer to (1, 1)."""
    rows = read_table(out / "convergence.csv")
    return [_nearer(rows, claim, steps, scale) for claim, steps in (("F3a", STEPS_OF_A), ("F3b", 10_000))]


def _nearer(rows: list[dict[str, Any]], claim: str, steps: int, scale: str) -> Verdict:
    distances = {n_s: [_at(rows, n_s, epsilon, steps) for epsilon in EPSILONS] for n_s in (20, 100)}
    words = [f"{', '.join(f'{value:.3g}' for value in values)} (n_s = {n_s})" for n_s, values in distances.items()]
    return judge(
        claim,
        f"the larger epsilon, the nearer (1, 1) after {steps:,} steps",
        f"median distance for epsilon {', '.join(f'{epsilon:g}' for epsilon in EPSILONS)}: {'; '.join(words)}",
        "falls with epsilon, for both n_s",
        holds=all(values[0] > values[1] > values[2] for values in distances.values()),
        is_decided=scale != "smoke" and bool(np.all(np.isfinite(list(distances.values())))),
        differs="epsilon is not given in the paper; n_s is 20 in its caption, 100 in its text",
    )


def _at(rows: list[dict[str, Any]], n_s: int, epsilon: float, steps: int) -> float:
    """Return the median distance there; NaN if that has not been run."""
    key = (n_s, epsilon, steps)
    return next((row["distance"] for row in rows if (row["n_s"], row["epsilon"], row["step"]) == key), float("nan"))
