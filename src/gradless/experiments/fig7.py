"""Fig. 7: aMC speeds Monte Carlo on MNIST, and batching speeds aMC. Paper: Sec. II F."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradless.experiments import fig1
from gradless.experiments.claims import Verdict, judge, not_run
from gradless.experiments.curves import (
    NAMES,
    TABLE,
    draw_curve,
    finish_panels,
    lacking,
    last,
    name_curves,
    records,
    train_curve,
)
from gradless.experiments.fig1.running import train_curves
from gradless.experiments.fig1.settings import INIT, stand_in
from gradless.experiments.fig1.settings import Scale as Curves
from gradless.experiments.tables import column, read_table
from gradless.experiments.workshop import Workshop
from gradless.kernels import AMC
from gradless.plots import COLOURS, DASHES, new_figure, save

TITLE = "MNIST: aMC is faster than MC, and faster still on growing batches"
STARTS = "GD starts as PyTorch does, MC and aMC from N(0, sigma^2)"
BATCHES = "an epoch is 60,000 images drawn; the growing batch is held between doublings"
RATE = "the paper also says 'about GD's rate' and 'the same end', which the rule leaves out"
MEANS = "C at the end is the mean over the last tenth of the records"
ONE_RUN = "one run of each"
GOAL = 0.9  # of the test set: the accuracy by which speed is measured
NEIGHBOURS = 4  # intervals between records to either side, of whose paces the median is the usual one
BATCHING = {  # run: label, colour, dash
    "amc": ("batch", COLOURS["amc"], "-"),
    "minibatch": ("minibatch", "#1f4e9c", ":"),
    "progressive": ("progressive", "#17becf", "--"),
}


@dataclass(frozen=True)
class Scale:
    """What one scale runs."""

    curves: Curves  # of MC and GD, which are those of Fig. 1b
    epochs: int  # of aMC on the full batch
    minibatch_steps: int  # 30 of 2,000 images make an epoch
    progressive_steps: int
    minibatch: int
    start: int  # of the progressive batch
    budget: str  # of time, for people


AMC_SETTINGS = AMC(sigma=1e-2, epsilon=0.0, n_s=20, signal_norm=True)
SCALES = {  # 479 divides the 1,437 digits: no short last minibatch, which would be compiled apart
    "smoke": Scale(fig1.SCALES["smoke"], 300, 300, 300, 479, 200, "15 s"),
    "quick": Scale(fig1.SCALES["quick"], 2_000, 9_000, 15_000, 2_000, 500, "4 min, with the runs of F1"),
    "paper": Scale(fig1.SCALES["paper"], 100_000, 3_000_000, 120_000, 2_000, 500, "5 h, 2.5 h of it the runs of F1b"),
}


def run(out: Path, scale: Scale, workshop: Workshop) -> None:
    """Train by aMC on a growing batch and on the full batch, by MC and GD as in Fig. 1b, and by aMC on minibatches."""

    def train(name: str, batch: str, steps: int) -> None:
        plan = records(steps) | {"batch": batch, "options": {"init": INIT["amc"]}}
        train_curve(out, workshop, name, name, scale.curves.problem, AMC_SETTINGS, **plan)

    train("progressive", f"progressive:{scale.start}", scale.progressive_steps)
    train("amc", "full", scale.epochs)
    train_curves(out, scale.curves, workshop)
    train("minibatch", str(scale.minibatch), scale.minibatch_steps)


def draw(out: Path) -> list[Path]:
    """Draw panel (a), three algorithms on the full batch, and panel (b), three ways of batching, also against time."""
    rows = with_steady_seconds(read_table(out / TABLE))
    figure, axes = new_figure(6)
    for name in ("gd", "mc", "amc"):
        for axis, quantity in zip(axes[:2], ("loss", "accuracy"), strict=True):
            draw_curve(axis, rows, name, "epoch", quantity, COLOURS[name], DASHES[name], NAMES[name])
    for name, (label, colour, dash) in BATCHING.items():
        for axis, quantity in zip(axes[2:4], ("loss", "accuracy"), strict=True):
            draw_curve(axis, rows, name, "epoch", quantity, colour, dash, label)
        for axis, abscissa in zip(axes[4:], ("samples", "steady_seconds"), strict=True):
            draw_curve(axis, rows, name, abscissa, "accuracy", colour, dash, label)
    finish_panels(axes[0], axes[1], "epoch n", "(a)")
    finish_panels(axes[2], axes[3], "epoch n", "(b)", loss="loss U of the batch")
    for axis, words, unit in ((axes[4], "samples seen", ""), (axes[5], "time", " (s), without the machine's stalls")):
        axis.set(xlabel=words + unit, ylabel="test accuracy C (%)", xscale="log", ylim=(0, 100))
        axis.set_title(f"(b) against {words}")
        name_curves(axis)
    return [save(figure, out / "fig7")]


def with_steady_seconds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records with the time they would have taken on a machine that did nothing else now and then.

    Between two records it is that of the usual pace: the median of the seconds per sample thereabouts.
    """
    steady = []
    for name in dict.fromkeys(row["run"] for row in rows):
        mine = [row for row in rows if row["run"] == name]
        samples = np.diff(column(mine, "samples"))
        pace = np.diff(column(mine, "seconds")) / samples
        places = range(len(pace))
        usual = [np.median(pace[max(0, place - NEIGHBOURS) : place + NEIGHBOURS + 1]) for place in places]
        seconds = np.concatenate([[0.0], np.cumsum(samples * usual)])
        steady += [row | {"steady_seconds": float(time)} for row, time in zip(mine, seconds, strict=True)]
    return steady


def check(out: Path, scale: str) -> list[Verdict]:
    """Judge F7a and F7b by the epochs to 90% of the test set, and the accuracies at the end."""
    rows = read_table(out / TABLE)
    reached = {name: epochs_to(rows, name) for name in ("gd", "mc", "amc", "minibatch", "progressive")}
    return [_check_speed(rows, reached, scale), _check_batching(rows, reached, scale)]


def epochs_to(rows: list[dict[str, Any]], run: str, goal: float = GOAL) -> float:
    """Return the first recorded epoch with that test accuracy; infinity if there is none."""
    there = [row["epoch"] for row in rows if row["run"] == run and row["accuracy"] >= goal]
    return there[0] if there else float("inf")


def final(rows: list[dict[str, Any]], run: str, name: str) -> float:
    """Return a quantity at the end: the mean over the last tenth of the records, since minibatches are noisy."""
    values = column([row for row in rows if row["run"] == run and np.isfinite(row[name])], name)
    return float(np.mean(values[-max(1, len(values) // 10) :]))


def is_whole(rows: list[dict[str, Any]], runs: tuple[str, ...]) -> bool:
    """Return whether these runs have all the steps of the paper's scale."""
    paper = SCALES["paper"]
    steps = {"mc": paper.curves.epochs, "gd": paper.curves.epochs, "amc": paper.epochs}
    steps |= {"minibatch": paper.minibatch_steps, "progressive": paper.progressive_steps}
    return all(last(rows, name, "step") >= steps[name] for name in runs)


def _words(reached: dict[str, float], rows: list[dict[str, Any]], names: tuple[str, ...]) -> str:
    def one(name: str) -> str:
        if np.isfinite(reached[name]):
            return f"{name} {reached[name]:,.0f}"
        return f"{name} not within {last(rows, name, 'epoch'):,.0f}"

    ends = ", ".join(f"{name} {100 * final(rows, name, 'accuracy'):.2f}%" for name in names)
    return f"epochs to 90%: {', '.join(map(one, names))}; C at the end: {ends}"


def _check_speed(rows: list[dict[str, Any]], reached: dict[str, float], scale: str) -> Verdict:
    says, rule = "aMC is faster than MC", "epochs to 90%: aMC < MC"
    if missing := lacking(rows, ("amc", "mc", "gd")):
        return not_run("F7a", says, missing, rule)
    # A run that has not got there is slower than one that got there sooner; nothing else decides early.
    is_seen = reached["mc"] <= last(rows, "amc", "epoch") or reached["amc"] <= last(rows, "mc", "epoch")
    return judge(
        "F7a",
        says,
        _words(reached, rows, ("amc", "mc", "gd")),
        rule,
        holds=reached["amc"] < reached["mc"],
        is_decided=scale != "smoke" and bool(is_seen or (scale == "paper" and is_whole(rows, ("amc", "mc")))),
        differs="; ".join(filter(None, (stand_in(scale), ONE_RUN, RATE, STARTS, MEANS))),
    )


def _check_batching(rows: list[dict[str, Any]], reached: dict[str, float], scale: str) -> Verdict:
    says = "minibatches are faster and worse at the end; progressive batches faster and equal at the end"
    rule = "epochs to 90%: minibatch, progressive < batch; final C: minibatch < batch, progressive within 1.5 points"
    if missing := lacking(rows, tuple(BATCHING)):
        return not_run("F7b", says, missing, rule)
    end = {name: 100 * final(rows, name, "accuracy") for name in BATCHING}
    is_faster = max(reached["minibatch"], reached["progressive"]) < reached["amc"]
    return judge(
        "F7b",
        says,
        _words(reached, rows, tuple(BATCHING)),
        rule,
        holds=is_faster and end["minibatch"] < end["amc"] and abs(end["progressive"] - end["amc"]) <= 1.5,
        is_decided=scale == "paper" and is_whole(rows, tuple(BATCHING)),
        differs="; ".join(filter(None, (stand_in(scale), ONE_RUN, BATCHES, MEANS))),
    )
