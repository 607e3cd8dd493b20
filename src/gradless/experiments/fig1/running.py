"""The runs of Fig. 1, and the tables made of them."""

from pathlib import Path

import numpy as np

from gradless.experiments.curves import TABLE, records, train_curve
from gradless.experiments.fig1.settings import INIT, Scale, groups, sweeps
from gradless.experiments.tables import column, read_table, table_so_far, write_table
from gradless.experiments.workshop import Run, Workshop
from gradless.kernels import GradientDescent, Metropolis
from gradless.types import Algorithm


def run(out: Path, scale: Scale, workshop: Workshop) -> None:
    """Train by MC and GD, but for what the tables have: panel (b), then the sweeps of (a), then the runs of (c)."""
    train_curves(out, scale, workshop)
    for name, settings in groups(scale):
        train_points(out, scale, workshop, name, settings)
    train_runs(out, scale, workshop)


def train_curves(out: Path, scale: Scale, workshop: Workshop) -> None:
    """Train by MC and GD on the full batch, once for Figs. 1 and 7."""
    algorithms: dict[str, Algorithm] = {
        "mc": Metropolis(sigma=scale.sigma),
        "gd": GradientDescent(learning_rate=scale.learning_rate),
    }
    siblings = [workshop.common / name for name in ("F1", "F7")] if workshop.common else []
    for name, algorithm in algorithms.items():
        plan = records(scale.epochs) | {"options": {"init": INIT[name]}, "is_shared": True, "siblings": siblings}
        train_curve(out, workshop, name, f"mnist-{name}", scale.problem, algorithm, **plan)


def train_points(out: Path, scale: Scale, workshop: Workshop, name: str, settings: tuple[float, ...]) -> None:
    """Train for some points of panel (a); one that panel (b) has, if it is as long, is taken from there."""
    rows = table_so_far(out / "sweep.csv", "algorithm", "setting", "epochs", "accuracy")
    if set(settings) <= {row["setting"] for row in rows if row["algorithm"] == name}:
        return
    own, _ = sweeps(scale)[name]
    if settings == (own,) and scale.epochs == scale.sweep_epochs:
        found = [_shown(out, name)]
    else:
        values = np.asarray(settings) if len(settings) > 1 else settings[0]
        algorithm = Metropolis(sigma=values) if name == "mc" else GradientDescent(learning_rate=values)
        # At a large learning rate all neurons saturate; without a gradient the rest of the run would change nothing.
        plan = records(scale.sweep_epochs, number=20) | {"options": {"init": INIT[name]}, "stop_when_frozen": True}
        words = f"sweep-{name}-" + "-".join(f"{setting:g}" for setting in settings)
        found = _ends(workshop.train(words, scale.problem, algorithm, chains=len(settings), **plan))
    rows = [row for row in rows if row["algorithm"] != name or row["setting"] not in settings] + [
        {"algorithm": name, "setting": setting, "epochs": steps, "accuracy": accuracy}
        for setting, (accuracy, steps) in zip(settings, found, strict=True)
    ]
    write_table(out / "sweep.csv", sorted(rows, key=lambda row: (row["algorithm"], row["setting"])))


def train_runs(out: Path, scale: Scale, workshop: Workshop) -> None:
    """Train by MC for panel (c), with other seeds than panel (b), whose run is the first of them.

    They go in pairs, each saved when it is over: there are many hours of them.
    """
    for seed in range(scale.runs // 2 + 1):
        rows = table_so_far(out / "variation.csv", "seed", "chain", "epochs", "accuracy")
        if any(row["seed"] == seed for row in rows):
            continue
        if seed == 0:
            found = [_shown(out, "mc")]
        else:
            chains = min(2, scale.runs + 1 - 2 * seed)
            plan = records(scale.epochs, number=20) | {"chains": chains, "seed": seed}
            mc = Metropolis(sigma=scale.sigma)
            found = _ends(workshop.train(f"mc-seed-{seed}", scale.problem, mc, **plan))
        for place, (accuracy, steps) in enumerate(found):
            rows.append({"seed": seed, "chain": place, "epochs": steps, "accuracy": accuracy})
        write_table(out / "variation.csv", sorted(rows, key=lambda row: row["seed"]))


def _shown(out: Path, name: str) -> tuple[float, int]:
    """Return the last accuracy of the run that panel (b) shows, and after how many steps."""
    curves = [row for row in read_table(out / TABLE) if row["run"] == name]
    return _last(column(curves, "step"), column(curves, "accuracy"))


def _ends(run: Run) -> list[tuple[float, int]]:
    """Return the last accuracy of each chain, and after how many steps."""
    step = run.table["step"]
    return [_last(step, accuracy) for accuracy in run.table["accuracy"].reshape(len(step), -1).T]


def _last(step: np.ndarray, accuracy: np.ndarray) -> tuple[float, int]:
    """Return the last accuracy, and after how many steps; GD may have diverged or frozen before the end."""
    known = np.flatnonzero(np.isfinite(accuracy))[-1]
    return float(accuracy[known]), int(step[known])
