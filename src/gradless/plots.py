"""The plot shapes, drawn from stored numbers alone: no JAX, so that old runs can be drawn again anywhere.

Every figure is written as SVG and PNG with its numbers beside it as CSV.
"""

import csv
import io
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from gradless.records import COLUMNS, Metrics, RunDirectory, write_atomic

COLOURS = {"mc": "#1f4e9c", "amc": "#2e8b57", "gd": "#7f7f7f", "adam": "#4aa3df"}  # as in the paper
DASHES = {"mc": "--", "amc": "-", "gd": ":", "adam": "-."}  # so that grey print can be read
OTHERS = (("#8c564b", (0, (3, 1, 1, 1))), ("#b8860b", (0, (1, 3))), ("#7b4fa3", (0, (6, 2))))  # users' own kernels
GRADIENT = ("gd", "adam")  # without acceptance and sigma
PERCENTILES = (10, 50, 90)


def columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return stored rows as arrays of shape (records,) or (records, chains)."""
    rows = list(rows)
    return {name: np.asarray([row[name] for row in rows], dtype=float) for name in (rows[0] if rows else {})}


def plot(run: Any) -> Any:
    """Return a matplotlib figure of a run: loss, metrics, acceptance and sigma against its steps.

    A notebook shows it; `gl.plot(result).savefig("training.png")` writes it.

    run: what `gl.train` or `gl.resume` returned, or the folder of a run.
    """
    if isinstance(run, str | os.PathLike):
        table, algorithm = stored(Path(run))
    elif hasattr(run, "trace") and hasattr(run, "algorithm"):
        table = {name: np.asarray(values, dtype=float).T for name, values in run.trace.items()}
        algorithm = run.algorithm
    else:
        raise ValueError(f"run must be a result of gl.train or the folder of a run, got {run!r}")
    if not has_course(table):
        raise ValueError("run must have two records at least, there is nothing to draw yet")
    return training_figure(table, algorithm)


def draw_training(path: str | Path) -> Path | None:
    """Draw a stored run as `plot` does, beside its numbers as CSV; return the picture, if there is any."""
    table, algorithm = stored(Path(path))
    if not has_course(table):
        return None
    write_csv(Path(path) / "training.csv", table)
    return save(training_figure(table, algorithm), Path(path) / "training")


def stored(path: Path) -> tuple[dict[str, np.ndarray], str]:
    """Return the records of a run as columns, and the name of its algorithm."""
    with RunDirectory.open(path) as run:
        return columns(Metrics(run.metrics_path).rows()), run.settings.get("algorithm", {}).get("name", "amc")


def has_course(table: Mapping[str, np.ndarray]) -> bool:
    """Return whether there are records enough for a curve."""
    return len(table.get("step", ())) > 1


def training_figure(table: Mapping[str, np.ndarray], algorithm: str) -> Any:
    """Return a figure of loss, metrics, acceptance and sigma against the steps."""
    names = ["loss", *[name for name in table if name not in COLUMNS]]
    names += [name for name in ("acceptance", "sigma") if np.isfinite(table[name]).any() and algorithm not in GRADIENT]
    figure, axes = new_figure(len(names))
    for axis, name in zip(axes, names, strict=True):
        values = smooth(table[name]) if name == "acceptance" else held(table[name])
        fan(axis, table["step"], values, COLOURS.get(algorithm, OTHERS[0][0]))
        label_axis(axis, "step n", name, values)
    return figure


LABELS = {"loss": "loss U", "acceptance": "acceptance A", "sigma": "move scale σ", "accuracy": "test accuracy C"}


def fan(axis: Any, x: np.ndarray, y: np.ndarray, colour: str, label: str | None = None, dash: Any = "-") -> None:
    """Draw a curve, or of several chains the median with the band that holds most of them."""
    y = drawable(y)
    if y.ndim == 1:
        axis.plot(x, y, linestyle=dash, color=colour, label=label, linewidth=1.4)
        return
    is_known = np.isfinite(y).any(axis=1)
    x, (low, middle, high) = x[is_known], np.nanpercentile(y[is_known], PERCENTILES, axis=1)
    axis.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    axis.plot(x, middle, linestyle=dash, color=colour, label=label, linewidth=1.4)


def held(values: np.ndarray) -> np.ndarray:
    """Return records in which a chain that has ended stays where it was: a median of the others would jump."""
    values = values.copy()
    for record in range(1, len(values) if values.ndim > 1 else 0):
        is_ended = np.isnan(values[record])
        values[record, is_ended] = values[record - 1, is_ended]
    return values


def drawable(values: np.ndarray) -> np.ndarray:
    """Return values with a gap where a chain has ended or a loss has run away beyond what an axis can show."""
    return np.where(np.abs(values) < 1e100, values, np.nan)


def smooth(values: np.ndarray, num_windows: int = 60) -> np.ndarray:
    """Return the running mean over a sixtieth of the records: acceptance counted over few steps is mostly noise."""
    half = max(1, len(values) // num_windows) // 2
    known = np.where(np.isfinite(values), values, 0.0)
    weight = np.isfinite(values).astype(float)
    ends = np.minimum(np.arange(len(values)) + half + 1, len(values))
    begins = np.maximum(np.arange(len(values)) - half, 0)

    def window_sum(numbers: np.ndarray) -> np.ndarray:
        total = np.concatenate([np.zeros_like(numbers[:1]), np.cumsum(numbers, axis=0)])
        return total[ends] - total[begins]

    count = window_sum(weight)
    return np.divide(window_sum(known), count, out=np.full_like(known, np.nan), where=count > 0)


def label_axis(axis: Any, x: str, name: str, values: np.ndarray) -> None:
    """Name the axes; a quantity that spans more than a factor of ten gets a logarithmic axis, a fraction never."""
    axis.set_xlabel(x)
    axis.set_ylabel(LABELS.get(name, name))
    finite = values[np.isfinite(drawable(values))]
    is_fraction = name in ("accuracy", "acceptance")
    if not is_fraction and len(finite) and finite.min() > 0 and finite.max() > 10 * finite.min():
        axis.set_yscale("log")
    axis.grid(alpha=0.25, linewidth=0.5)


def number_in_thousands(axis: Any) -> None:
    """Write large numbers of an axis as 20k or 3M: in full they would run into each other."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(EngFormatter(sep=""))


def draw_sweep(path: Path, rows: Sequence[Mapping[str, Any]], setting: str, outcome: str) -> Path:
    """Draw an outcome against one setting: the median over seeds, the spread, and every single run."""
    groups: dict[float, list[float]] = {}
    for row in rows:
        if np.isfinite(drawable(np.asarray(float(row[outcome])))):
            groups.setdefault(float(row[setting]), []).append(float(row[outcome]))
    x = np.asarray(sorted(groups))
    runs = [np.asarray(groups[value]) for value in x]
    figure, (axis,) = new_figure(1)
    middle, low, high = (np.asarray([pick(values) for values in runs]) for pick in (np.median, np.min, np.max))
    axis.fill_between(x, low, high, color=COLOURS["mc"], alpha=0.15, linewidth=0)
    axis.plot(x, middle, "o-", color=COLOURS["mc"], markersize=4, label="median")
    for value, values in zip(x, runs, strict=True):
        axis.plot([value] * len(values), values, ".", color="#555555", markersize=3)
    axis.set_xscale("log" if len(x) and x.min() > 0 and np.isfinite(x).all() else "linear")
    label_axis(
        axis, {"sigma": "move scale σ", "learning_rate": "learning rate α"}.get(setting, setting), outcome, middle
    )
    return save(figure, path)


def draw_comparison(path: Path, runs: Mapping[str, Mapping[str, np.ndarray]], metric: str | None) -> Path:
    """Draw loss and metric of several algorithms against steps, samples seen and wall time."""
    names = ["loss", *([metric] if metric else [])]
    abscissas = (("step", "step n"), ("samples", "samples seen"), ("seconds", "time (s)"))
    figure, axes = new_figure(len(names) * len(abscissas), num_columns=len(abscissas))
    places, others = iter(axes), cycle(OTHERS)
    looks = {one: (COLOURS[one], DASHES[one]) if one in COLOURS else next(others) for one in runs}
    for name in names:
        for abscissa, label in abscissas:
            axis = next(places)
            for algorithm, table in runs.items():
                colour, dash = looks[algorithm]
                x = table[abscissa] if table[abscissa].ndim == 1 else held(table[abscissa]).mean(axis=1)
                fan(axis, x, held(table[name]), colour, algorithm, dash)
            together = np.concatenate([np.ravel(table[name]) for table in runs.values()])
            label_axis(axis, label, name, together)
            if abscissa != "seconds":
                number_in_thousands(axis.xaxis)
    axes[0].legend(frameon=False)
    return save(figure, path)


def write_csv(path: Path, table: Mapping[str, np.ndarray]) -> None:
    """Write columns as CSV; of several chains each has a column of its own."""
    flat: dict[str, np.ndarray] = {}
    for name, values in table.items():
        flat |= {name: values} if values.ndim == 1 else {f"{name}_{i}": column for i, column in enumerate(values.T)}
    write_rows(path, [dict(zip(flat, row, strict=True)) for row in zip(*flat.values(), strict=True)])


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV, whole or not at all."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]) if rows else [])
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(path, text.getvalue().encode())


def say_not_run(axis: Any) -> None:
    """Say in an empty panel why it is empty."""
    axis.text(0.5, 0.5, "not run yet", transform=axis.transAxes, ha="center", color="#777777")
    axis.set(xticks=[], yticks=[])
    axis.minorticks_off()


def save(figure: Any, path: Path) -> Path:
    """Write a figure as SVG and PNG, each whole or not at all; return the PNG."""
    write_atomic(path.with_suffix(".svg"), drawn(figure, format="svg", metadata={"Date": None}))
    write_atomic(path.with_suffix(".png"), drawn(figure, format="png", dpi=150))
    return path.with_suffix(".png")


def drawn(figure: Any, **settings: Any) -> bytes:
    """Return what a file of a figure holds."""
    file = io.BytesIO()
    with warnings.catch_warnings():  # a name in letters that the font lacks is drawn as boxes
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(file, **settings)
    return file.getvalue()


def new_figure(number: int, num_columns: int = 2) -> tuple[Any, list[Any]]:
    """Return an empty figure and its panels, row by row."""
    from matplotlib.figure import Figure  # no pyplot: no window, no global state

    num_columns = min(number, num_columns)
    num_rows = -(-number // num_columns)
    figure: Any = Figure(figsize=(4.2 * num_columns, 3.0 * num_rows), layout="constrained")
    figure._repr_png_ = partial(drawn, figure, format="png")  # a notebook shows it, also without pyplot
    axes = figure.subplots(num_rows, num_columns, squeeze=False).ravel().tolist()
    for spare in axes[number:]:
        spare.set_axis_off()
    return figure, axes[:number]
