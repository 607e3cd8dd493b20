"""Fig. 8: ResNet-18 trained by gradient descent and by aMC. Paper: Sec. II F.

The paper's size needs an accelerator. Elsewhere a short run shows U falling, and the cost of the whole is measured.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradless import data
from gradless.experiments.claims import Verdict, judge, not_run
from gradless.experiments.curves import NAMES, TABLE, curve, draw_curve, finish_panels, lacking
from gradless.experiments.fig7 import epochs_to
from gradless.experiments.tables import column, read_table, table_so_far, write_table
from gradless.experiments.workshop import Stopped, Workshop
from gradless.faster import faster
from gradless.kernels import AMC, GradientDescent
from gradless.models import ResNet, accuracy, cross_entropy
from gradless.plots import COLOURS, DASHES, new_figure, save
from gradless.problem import Problem
from gradless.problems import make_problem
from gradless.types import Algorithm

TITLE = "ResNet-18 on MNIST: aMC gets where gradient descent gets, more slowly"
SMALL = "gradless.experiments.fig8:small_resnet"
STEPS = 600_000  # 10,000 epochs; the paper does not give a number
GOAL = 0.99
TARGET = 0.992  # where both end, the paper says


@dataclass(frozen=True)
class Scale:
    """What one scale runs."""

    problem: str
    steps: int
    minibatch: int
    records: int
    budget: str  # of time, for people
    steps_on_cpu: int = 0  # of a short run where there is no accelerator; 0 for all
    options: dict[str, Any] = field(default_factory=dict)  # of the problem
    measures_cost: bool = True  # of the paper's net on this machine


TINY = {"source": "digits", "stages": 1, "blocks": 1, "channels": 4, "num_test": 100}
SCALES = {
    "smoke": Scale(SMALL, steps=30, minibatch=479, records=10, budget="10 s", options=TINY, measures_cost=False),
    "quick": Scale(
        SMALL, steps=150, minibatch=200, records=15, budget="2 min", options={"channels": 8, "num_test": 500}
    ),
    "paper": Scale(
        "mnist-resnet",
        steps=STEPS,
        minibatch=1_000,
        records=500,
        budget="8 min for a short run; without an accelerator 25 days for all",
        steps_on_cpu=100,
    ),
}


def small_resnet(
    source: str = "mnist", channels: int = 8, stages: int = 4, blocks: int = 2, num_test: int = 500
) -> Problem:
    """The problem mnist-resnet with fewer channels and fewer test images, on MNIST or on digits."""
    images = data.digits() if source == "digits" else data.mnist.images()
    side = 8 if source == "digits" else 28
    net = ResNet(channels=tuple(channels * 2**stage for stage in range(stages)), blocks=(blocks,) * stages)

    def loss(params: Any, batch: Any) -> jax.Array:
        return cross_entropy(net.apply(params, batch[0]), batch[1])

    def metrics(params: Any, test: Any) -> dict[str, jax.Array]:
        return {"accuracy": accuracy(net.apply(params, test[0]), test[1])}

    return Problem(
        init=lambda key: net.init(key, "kaiming"),
        loss=loss,
        data=(images.train_x.reshape(-1, side, side, 1), images.train_y),
        test=(images.test_x[:num_test].reshape(-1, side, side, 1), images.test_y[:num_test]),
        metrics=metrics,
        outputs=net.apply,
    )


def run(out: Path, scale: Scale, workshop: Workshop) -> None:
    """Measure what a step of the paper's net costs here, then train by GD and by aMC."""
    device = jax.default_backend()
    if scale.measures_cost:
        seconds = seconds_per_loss()
        # aMC looks at each new minibatch twice.
        cost = {"device": device, "seconds": seconds, "steps": STEPS, "days": 2 * seconds * STEPS / 86_400}
        write_table(out / "cost.csv", [cost])
        workshop.tell(_cost_words(cost))
    is_short = device == "cpu" and scale.steps_on_cpu > 0
    steps = scale.steps_on_cpu if is_short else scale.steps
    amc = AMC(sigma=1e-3, epsilon=1e-3, n_s=100)
    algorithms: dict[str, Algorithm] = {"gd": GradientDescent(learning_rate=1e-3, clip=1.0), "amc": amc}
    for name, algorithm in algorithms.items():
        if any(row["step"] >= steps or row["accuracy"] >= TARGET for row in noted(out, name)):
            continue
        try:
            run = workshop.train(
                f"{name}-{steps}",  # the short run stays apart from the whole one
                scale.problem,
                algorithm,
                steps=steps,
                options=scale.options,
                batch=str(scale.minibatch),
                record_every=steps if is_short else max(1, steps // scale.records),  # the test set costs ten steps
                target_metric=f"accuracy >= {TARGET}",
            )
        except Stopped as stop:
            note(out, name, [{"device": device, **row} for row in curve(name, stop.run)])
            raise
        note(out, name, [{"device": device, **row} for row in curve(name, run)])


def noted(out: Path, name: str) -> list[dict[str, Any]]:
    """Return the records of a run as the table has them."""
    return [row for row in table_so_far(out / TABLE, "run", "step", "device", "accuracy") if row["run"] == name]


def note(out: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """Save the records of a run, unless the table has it further on: a short run does not replace a long one."""
    if any(row["step"] > rows[-1]["step"] for row in noted(out, name)):
        return
    others = [row for row in table_so_far(out / TABLE) if row["run"] != name]
    write_table(out / TABLE, sorted(others + rows, key=lambda row: list(NAMES).index(row["run"])))


def seconds_per_loss() -> float:
    """Return how long one pass of a minibatch of 1,000 images through the paper's net takes on this machine."""
    problem = make_problem("mnist-resnet", {})
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), problem.init(jax.random.key(0)))
    batch = jax.tree.map(lambda array: jnp.asarray(array[:1_000]), problem.data)
    loss = jax.jit(faster(problem.loss)).lower(params, batch).compile()  # the form in which it is trained
    times = []
    for _ in range(3):
        began = time.perf_counter()
        jax.block_until_ready(loss(params, batch))
        times.append(time.perf_counter() - began)
    return min(times)  # the least disturbed


def _cost_words(cost: dict[str, Any]) -> str:
    return (
        f"a loss of 1,000 images takes {cost['seconds']:.2g} s on {cost['device']}: "
        f"{cost['steps']:,.0f} steps of aMC about {cost['days']:,.2g} days"
    )


def draw(out: Path) -> list[Path]:
    """Draw the paper's panels: (a) loss and (b) accuracy of GD and aMC against the epoch."""
    rows = read_table(out / TABLE)
    figure, (loss_axis, accuracy_axis) = new_figure(2)
    for name in ("gd", "amc"):
        draw_curve(loss_axis, rows, name, "epoch", "loss", COLOURS[name], DASHES[name], NAMES[name])
        draw_curve(accuracy_axis, rows, name, "epoch", "accuracy", COLOURS[name], DASHES[name], NAMES[name])
    finish_panels(loss_axis, accuracy_axis, "epoch n", "", loss="loss U of the batch")
    loss_axis.set_title("(a) loss")
    accuracy_axis.set_title("(b) accuracy")
    return [save(figure, out / "fig8")]


def check(out: Path, scale: str) -> list[Verdict]:
    """Judge F8, which only the whole run on an accelerator decides."""
    rows = read_table(out / TABLE)
    says, rule = "GD and aMC both reach about 99.2%, GD faster", "aMC >= 99% (on an accelerator)"
    if missing := lacking(rows, ("gd", "amc")):
        return [not_run("F8", says, missing, rule)]
    best = {name: float(np.nanmax([row["accuracy"] for row in rows if row["run"] == name])) for name in ("gd", "amc")}
    speed = {name: epochs_to(rows, name, GOAL) for name in ("gd", "amc")}
    falls = ", ".join(f"{NAMES[name]} {_first_and_last(rows, name)}" for name in ("gd", "amc"))
    measured = [f"U {falls}", f"best C: GD {100 * best['gd']:.2f}%, aMC {100 * best['amc']:.2f}%"]
    if max(best.values()) >= GOAL:
        measured.append(f"epochs to 99%: GD {speed['gd']:.4g}, aMC {speed['amc']:.4g}")
    if (out / "cost.csv").exists():
        measured.append(_cost_words(read_table(out / "cost.csv")[0]))
    small = {"smoke": "a tiny ResNet on digits", "quick": "ResNet-18 with 8 channels in place of 64, minibatch 200"}
    assumed = "cross entropy, minibatch 1,000 and GroupNorm(1, C) are our choices; the paper gives no number of epochs"
    return [
        judge(
            "F8",
            says,
            "; ".join(measured),
            rule,
            holds=best["amc"] >= GOAL,
            is_decided=scale == "paper" and _is_decided(rows, best["amc"]),
            differs="; ".join(filter(None, (small.get(scale, ""), assumed))),
        )
    ]


def _is_decided(rows: list[dict[str, Any]], best: float) -> bool:
    """Return whether aMC's run, on an accelerator, got to its goal or to its end."""
    amc = [row for row in rows if row["run"] == "amc"]
    return amc[0]["device"] != "cpu" and (best >= GOAL or amc[-1]["step"] >= STEPS)


def _first_and_last(rows: list[dict[str, Any]], run: str) -> str:
    """Say where U began and where it is, as the mean of up to four late records: minibatches differ.

    Records of the first half do not count: a short run has them at powers of two, from its first steps on.
    """
    losses = column([row for row in rows if row["run"] == run], "loss")
    steps = column([row for row in rows if row["run"] == run], "step")
    is_late = steps >= steps[-1] / 2
    late, since = losses[is_late][-4:], steps[is_late][-4:][0]
    return f"{losses[0]:.3f} at the start, {late.mean():.3f} on average from step {since:,.0f} to {steps[-1]:,.0f}"
