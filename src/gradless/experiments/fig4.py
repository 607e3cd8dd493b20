"""Fig. 4: adaptivity speeds learning of high-frequency features. Paper: Sec. II C, Eq. (7)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradless import data
from gradless.data.functions import log_term
from gradless.engine.session import precision_of
from gradless.experiments.claims import Verdict, column, judge, not_run, read_table, table_so_far, write_table
from gradless.experiments.workshop import Run, Stopped, Workshop, is_finished
from gradless.kernels import AMC, Adam, GradientDescent
from gradless.plots import COLOURS, held, new_figure, save, say_not_run
from gradless.problems import make_problem
from gradless.runs import rebuild
from gradless.types import Algorithm

TITLE = "a logarithm with a fast sine on it: larger epsilon learns the sine sooner"
INIT = "gaussian:0.1"  # N(0, sigma_0^2) for all five
EPSILONS = (5e-3, 0.0, -5e-3)
NAMES = {epsilon: f"amc {epsilon:g}" for epsilon in EPSILONS}
PLUS, ZERO, MINUS = NAMES.values()
ALGORITHMS: dict[str, Algorithm] = {
    "gd": GradientDescent(learning_rate=5e-3),
    "adam": Adam(learning_rate=5e-3),
    **{NAMES[epsilon]: AMC(sigma=0.1, epsilon=epsilon, n_s=50) for epsilon in EPSILONS},
}
STYLES = {  # colour, dash, label
    "gd": (COLOURS["gd"], ":", "GD"),
    "adam": (COLOURS["adam"], "-.", "Adam"),
    PLUS: ("#0b3d1e", "-", "ε = 0.005"),
    ZERO: ("#2e8b57", "--", "ε = 0"),
    MINUS: ("#8fce9f", ":", "ε = −0.005"),
}
SINE = float(np.mean((0.1 * np.sin(20 * np.pi * np.linspace(0, 1, 1000))) ** 2))  # U of the log term alone, 0.004995
STARTED, LEARNT = 0.1, 0.9  # overlaps with the sine


@dataclass(frozen=True)
class Scale:
    """What one scale runs."""

    seeds: int
    steps: int  # of aMC
    gradient_steps: int  # of GD and Adam
    budget: str  # of time, for people


SCALES = {
    "smoke": Scale(seeds=2, steps=300, gradient_steps=100, budget="10 s"),
    "quick": Scale(seeds=4, steps=40_000, gradient_steps=20_000, budget="2 min"),
    "paper": Scale(seeds=10, steps=5_000_000, gradient_steps=1_000_000, budget="3.5 h"),
}


def run(out: Path, scale: Scale, workshop: Workshop) -> None:
    """Train by all five algorithms; then see what aMC's nets say when epsilon = 0 starts on the sine."""
    runs: dict[str, Run] = {}
    for name, algorithm in ALGORITHMS.items():
        steps = scale.steps if name in NAMES.values() else scale.gradient_steps
        try:
            runs[name] = workshop.train(
                name.replace(" ", "-epsilon-"),
                "log-sine",
                algorithm,
                options={"init": INIT},
                steps=steps,
                chains=scale.seeds,
                record_every=max(1, steps // 500),
                stop_when_frozen=True,
            )
        except Stopped as stop:
            runs[name] = stop.run
            raise
        finally:
            collect(out, runs)


def collect(out: Path, runs: dict[str, Run]) -> None:
    """Save what the runs have reached; what nets say, once there are all three of aMC's."""
    if not runs:
        return
    rows = [row for name, run in runs.items() for row in _medians(name, run)]
    write_table(out / "training.csv", rows)
    if set(NAMES.values()) <= set(runs):
        step = _starting_step(rows) or min(int(runs[name].table["step"][-1]) for name in NAMES.values())
        write_table(out / "outputs.csv", [row for name in NAMES.values() for row in _outputs(name, runs[name], step)])


def overlap(loss: Any, pseudo_loss: Any) -> Any:
    """Return how much of the sine s a net f has learnt: <(f - log) s>/<s^2>, from U = <(f - log - s)^2> and U' alone.

    It is 0 for the logarithm by itself and 1 for the whole target.
    """
    return (pseudo_loss - loss + SINE) / (2 * SINE)


def _medians(name: str, run: Run) -> list[dict[str, Any]]:
    loss, pseudo_loss = (held(_by_chain(run.table[key])) for key in ("loss", "pseudo_loss"))
    quantities = {"loss": loss, "pseudo_loss": pseudo_loss, "overlap": overlap(loss, pseudo_loss)}
    return [
        {"algorithm": name, "step": int(step), "is_over": int(is_finished(run.path))}
        | {
            key + suffix: float(np.percentile(values[record], percent))
            for key, values in quantities.items()
            for suffix, percent in (("", 50), ("_low", 10), ("_high", 90))
        }
        for record, step in enumerate(run.table["step"])
    ]


def _by_chain(values: np.ndarray) -> np.ndarray:
    """Return records of shape (records, chains), also of a single chain."""
    return values.reshape(len(values), -1)


def _starting_step(rows: list[dict[str, Any]]) -> int | None:
    """Return the step at which epsilon = 0 starts on the sine, if it does.

    The overlap is counted from its least value on: before, the logarithm is not learnt, and is not quite orthogonal
    to the sine.
    """
    mine = [row for row in rows if row["algorithm"] == ZERO]
    least = int(np.argmin(column(mine, "overlap")))
    return next((int(row["step"]) for row in mine[least:] if row["overlap"] > STARTED), None)


def _outputs(name: str, run: Run, step: int) -> list[dict[str, Any]]:
    """Return what the net of median overlap says at `step`, rebuilt from its accepted moves."""
    problem = make_problem("log-sine", {"init": INIT})
    theta, target = data.log_sine()
    record = int(np.searchsorted(run.table["step"], step, side="right")) - 1
    learnt = overlap(*(held(_by_chain(run.table[key]))[record] for key in ("loss", "pseudo_loss")))
    median = int(np.argsort(learnt)[len(learnt) // 2])
    rebuilt = rebuild(run.path, int(run.table["step"][record]), problem)
    with precision_of(rebuilt.session.dtype):
        flattening = rebuilt.session.work.program.objective.flattening
        said = np.asarray(problem.outputs(flattening.unflatten(rebuilt.states[median].x), theta))  # type: ignore[misc]
    columns = (theta, target, log_term(theta), said)
    return [
        {"algorithm": name, "step": step, "theta": t, "target": f, "log_term": slow, "output": output}
        for t, f, slow, output in np.concatenate(columns, axis=1).tolist()
    ]


def draw(out: Path) -> list[Path]:
    """Draw (a) U and (b) U' against n, gradient methods at left and aMC at right, and (c) outputs of aMC's nets."""
    rows, outputs = read_table(out / "training.csv"), table_so_far(out / "outputs.csv")
    figure, axes = new_figure(5, num_columns=3)
    groups = (("gd", "adam"), tuple(NAMES.values()))
    panels = (
        ("loss", "(a) loss U", "logarithm alone", axes[0:2]),
        ("pseudo_loss", "(b) pseudo-loss U′", "sine learnt", axes[3:5]),
    )
    for quantity, label, meaning, places in panels:
        for axis, names in zip(places, groups, strict=True):
            there = [name for name in names if any(row["algorithm"] == name and row["step"] > 0 for row in rows)]
            for name in there:
                _draw_training(axis, [row for row in rows if row["algorithm"] == name], quantity, STYLES[name])
            if not there:
                axis.set(xlabel="step n", ylabel=label)
                say_not_run(axis)
                continue
            axis.axhline(SINE, color="black", linewidth=0.5)
            axis.text(0.02, SINE, meaning, fontsize=7, ha="left", va="bottom", transform=axis.get_yaxis_transform())
            axis.set(xlabel="step n", ylabel=label, xscale="log", yscale="log")
            axis.grid(alpha=0.2, linewidth=0.5)
            axis.legend(frameon=False, fontsize=8, loc="upper right")
    _draw_outputs(axes[2], outputs)
    return [save(figure, out / "fig4")]


def _draw_training(axis: Any, rows: list[dict[str, Any]], quantity: str, style: tuple[str, str, str]) -> None:
    rows = [row for row in rows if row["step"] > 0]
    colour, dash, label = style
    step = column(rows, "step")
    axis.fill_between(
        step, column(rows, f"{quantity}_low"), column(rows, f"{quantity}_high"), color=colour, alpha=0.15, linewidth=0
    )
    axis.plot(step, column(rows, quantity), dash, color=colour, label=label, linewidth=1.4)


def _draw_outputs(axis: Any, rows: list[dict[str, Any]]) -> None:
    axis.set(xlabel="θ", ylabel="(c) output")
    if not rows:
        say_not_run(axis)
        return
    first = [row for row in rows if row["algorithm"] == PLUS]
    theta = column(first, "theta")
    axis.plot(theta, column(first, "target"), color="black", linewidth=2.0, label="target")
    axis.plot(theta, column(first, "log_term"), color="black", linewidth=0.7, label="its logarithm")
    for name in NAMES.values():
        mine = [row for row in rows if row["algorithm"] == name]
        colour, dash, label = STYLES[name]
        axis.plot(theta, column(mine, "output"), dash, color=colour, label=label, linewidth=1.2)
    axis.set_title(f"step {first[0]['step']:,.0f}", fontsize=9)
    axis.legend(frameon=False, fontsize=8)


def check(out: Path, scale: str) -> list[Verdict]:
    """The larger epsilon, the sooner the sine is learnt; runs that were stopped decide nothing."""
    rows = read_table(out / "training.csv")
    of = {name: [row for row in rows if row["algorithm"] == name] for name in ALGORITHMS}
    if missing := [name for name, mine in of.items() if not mine]:
        return [not_run(claim, says, missing, rule) for claim, (says, rule) in CLAIMS.items()]
    is_real = scale != "smoke" and all(row["is_over"] for row in rows)
    return [_order(of, scale, is_real), _dip_and_rise(of, scale, is_real), _learnt(of, is_real)]


CLAIMS = {  # what each says, and the rule
    "F4a": (
        "U falls fastest for epsilon > 0, slowest for epsilon < 0; Adam faster than GD",
        "median U at the end: epsilon > 0 below 0 below < 0, Adam below GD",
    ),
    "F4b": (
        "pseudo-loss U' dips, then rises as the sine is learnt",
        "for Adam and epsilon > 0, median U' at first and at the end above twice its least",
    ),
    "F4c": (
        "when epsilon = 0 starts on the sine, epsilon > 0 has learnt it, epsilon < 0 not at all",
        f"median overlap with the sine above {LEARNT}, between, below {STARTED}",
    ),
}
DIFFERS = "the paper gives neither its number of steps nor of runs"


def _end(rows: list[dict[str, Any]], quantity: str) -> float:
    """Return the median over the last twentieth of the records: Adam's loss has spikes."""
    return float(np.median(column(rows[-max(1, len(rows) // 20) :], quantity)))


def _order(of: dict[str, list[dict[str, Any]]], scale: str, is_real: bool) -> Verdict:
    """Judge F4a at the end, if the sine has begun to be learnt there."""
    last = {name: _end(rows, "loss") for name, rows in of.items()}
    says, rule = CLAIMS["F4a"]
    return judge(
        "F4a",
        says,
        ", ".join(f"{name} {loss:.3g}" for name, loss in last.items()) + f" after {of[ZERO][-1]['step']:,.0f} steps",
        rule,
        holds=last[PLUS] < last[ZERO] < last[MINUS] and last["adam"] < last["gd"],
        is_decided=is_real and (scale == "paper" or _end(of[PLUS], "overlap") > STARTED),
        differs=DIFFERS,
    )


def _dip_and_rise(of: dict[str, list[dict[str, Any]]], scale: str, is_real: bool) -> Verdict:
    """Judge F4b: U' at the end at least twice its least, and more of the sine learnt since."""
    words, holds = [], True
    for name in ("adam", PLUS):
        dip = min(of[name], key=lambda row: row["pseudo_loss"])
        least, end = dip["pseudo_loss"], _end(of[name], "pseudo_loss")
        words.append(f"{name} {least:.2g} at step {dip['step']:,.0f}, {end:.2g} at the end")
        holds &= min(of[name][0]["pseudo_loss"], end) > 2 * least and _end(of[name], "overlap") > dip["overlap"]
    says, rule = CLAIMS["F4b"]
    return judge(
        "F4b", says, "; ".join(words), rule, holds=holds, is_decided=is_real and scale == "paper", differs=DIFFERS
    )


def _learnt(of: dict[str, list[dict[str, Any]]], is_real: bool) -> Verdict:
    """Judge F4c, at the step at which epsilon = 0 starts on the sine."""
    start = _starting_step(of[ZERO])
    step = of[ZERO][-1]["step"] if start is None else start
    at = {name: [row["overlap"] for row in of[name] if row["step"] <= step][-1] for name in NAMES.values()}
    says, rule = CLAIMS["F4c"]
    return judge(
        "F4c",
        says,
        ", ".join(f"{name} {value:.2f}" for name, value in at.items()) + f" at step {step:,.0f}",
        rule,
        holds=at[PLUS] > LEARNT > at[ZERO] > STARTED > at[MINUS],
        is_decided=is_real and start is not None,
        differs=DIFFERS,
    )
