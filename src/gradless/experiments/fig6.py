"""Fig. 6: deep nets learn a step function by aMC with signal norm where gradients vanish. Paper: Sec. II E."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.stats import chi2

from gradless.engine.flat import Flattening
from gradless.experiments.claims import Verdict, column, judge, read_table, write_table
from gradless.experiments.workshop import Run, Workshop, has_checkpoint, is_finished, read_run
from gradless.kernels import AMC, Adam, GradientDescent
from gradless.plots import new_figure, save
from gradless.problems import make_problem
from gradless.types import Algorithm

TITLE = "Step function by deep nets: only aMC with signal norm trains all depths"
DEPTHS = (2, 4, 8, 16, 32, 64, 128)
DEEPER = (16, 32, 64, 128)  # whose single runs panel (c) shows
PAPER_STEPS = 1_000_000
TRAINED, PLATEAU = 0.01, 3 / 64  # the loss of a trained net, and of the best constant
MIN_RUNS = 5  # a method that never trains in fewer runs may have been unlucky
INITS = ("gaussian:0.01", "pytorch")
KINDS: dict[str, Algorithm] = {
    "GD": GradientDescent(learning_rate=1e-3),
    "Adam": Adam(learning_rate=1e-4),
    "aMC off": AMC(sigma=1e-2, epsilon=1e-2, n_s=100),
    "aMC on": AMC(sigma=1e-2, epsilon=1e-2, n_s=100, signal_norm=True),
}
LABELS = {"GD": "GD", "Adam": "Adam", "aMC off": "aMC, signal norm off", "aMC on": "aMC, signal norm on"}
COLOURS = {"GD": "#7f7f7f", "Adam": "#4aa3df", "aMC off": "#2e8b57", "aMC on": "#1b6b3f"}
DASHES = {"GD": ":", "Adam": "-.", "aMC off": "--", "aMC on": "-"}
WIDTHS = {"GD": 3.0, "Adam": 2.2, "aMC off": 1.6, "aMC on": 1.6}  # to be seen where curves coincide
KAIMING = "the paper's \"Kaiming\" start is taken to be PyTorch's default"


@dataclass(frozen=True)
class Scale:
    """What one scale runs."""

    steps: int  # epochs of a run, at most
    layers: int  # steps times depth, at most: the cost of a run
    layers_on: int  # the same for aMC with signal norm, which ends early where it trains
    depths: tuple[int, ...]  # for every algorithm
    depths_on: tuple[int, ...]  # for aMC with signal norm
    shown: tuple[int, int]  # whose outputs panel (b) shows; there training goes on beyond U = 0.01
    helped: tuple[int, ...]  # depths with skip connections or layer norm, F6e
    deepest: int | None  # F6d
    inits: tuple[str, ...]
    chains: int  # runs that go side by side
    blocks: int  # how often; per algorithm, depth and initialisation there are chains x blocks runs
    budget: str  # of time, for people


SCALES = {
    "smoke": Scale(
        steps=60,
        layers=1_000,
        layers_on=1_000,
        depths=(2,),
        depths_on=(2, 4),
        shown=(2, 4),
        helped=(),
        deepest=None,
        inits=INITS[:1],
        chains=1,
        blocks=1,
        budget="10 s",
    ),
    "quick": Scale(
        steps=50_000,
        layers=160_000,
        layers_on=640_000,
        depths=(2, 32),
        depths_on=DEPTHS,
        shown=(2, 32),
        helped=(),
        deepest=None,
        inits=INITS,
        chains=4,
        blocks=1,
        budget="7 min",
    ),
    "paper": Scale(
        steps=PAPER_STEPS,
        layers=256 * PAPER_STEPS,
        layers_on=256 * PAPER_STEPS,
        depths=DEPTHS,
        depths_on=DEPTHS,
        shown=(4, 64),
        helped=DEPTHS,
        deepest=256,
        inits=INITS,
        chains=2,  # one per core
        blocks=5,
        budget="5 days; the first of five blocks has every panel",
    ),
}


class Cell(NamedTuple):
    """One recorded run: a few chains of one algorithm on one net."""

    kind: str
    depth: int
    init: str
    block: int
    help: str = ""  # "skip", "layer_norm" or nothing

    @property
    def name(self) -> str:
        """Return the name of the run's folder."""
        words = [self.kind.replace(" ", "-"), str(self.depth), self.help, self.init.partition(":")[0], str(self.block)]
        return "-".join(filter(None, words))

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of the problem."""
        return {"depth": self.depth, "init": self.init} | ({self.help: True} if self.help else {})


def plan(scale: Scale) -> Iterator[Cell]:
    """Yield all runs, block by block, so that a reproduction stopped early has a few runs of everything."""
    for block in range(scale.blocks):
        for depth in sorted({*scale.depths, *scale.depths_on}):
            for kind in KINDS:
                if depth in (scale.depths_on if kind == "aMC on" else scale.depths):
                    yield from (Cell(kind, depth, init, block) for init in scale.inits)
        if scale.deepest is not None:
            yield from (Cell("aMC on", scale.deepest, init, block) for init in scale.inits)
        for depth in scale.helped:
            for help_ in ("skip", "layer_norm"):
                for kind in ("Adam", "aMC off") if depth == 64 else ("aMC off",):
                    yield from (Cell(kind, depth, init, block, help_) for init in scale.inits)


def run(out: Path, scale: Scale, workshop: Workshop) -> None:
    """Train every net; what is there so far is saved even when time runs out."""
    try:
        for cell in plan(scale):
            if cell.depth == scale.deepest and _is_settled(out, scale):
                continue  # F6d asks for one trained net
            layers = scale.layers_on if cell.kind == "aMC on" else scale.layers
            steps = min(scale.steps, layers // cell.depth)
            workshop.train(
                cell.name,
                "step",
                KINDS[cell.kind],
                options=cell.options,
                steps=steps,
                chains=scale.chains,
                seed=cell.block,
                target_loss=1e-4 if cell.depth in scale.shown and not cell.help else TRAINED,
                stop_when_frozen=True,
                record_every=max(1, steps // 1000),
            )
    finally:
        collect(out, scale)


def _is_settled(out: Path, scale: Scale) -> bool:
    found = [row for cell, run in _stored(out, scale) if cell.depth == scale.deepest for row in summarise(cell, run)]
    return any(row["end"] == "trained" for row in found)


def _stored(out: Path, scale: Scale) -> Iterator[tuple[Cell, Run]]:
    for cell in plan(scale):
        path = out / "runs" / cell.name
        if has_checkpoint(path):
            yield cell, read_run(path)


def collect(out: Path, scale: Scale) -> None:
    """Save what the stored runs have reached: all of them in a line each, curves and outputs of those drawn."""
    stored = list(_stored(out, scale))
    rows = [row for cell, run in stored for row in summarise(cell, run)]
    if not rows:
        return
    curves: list[dict[str, Any]] = []
    outputs: list[dict[str, Any]] = []
    bests = {_key(row): row for row in sorted(rows, key=lambda row: -row["loss"])}
    for cell, run in stored:
        for chain in range(len(np.ravel(run.tensors["t"]))):
            best = bests.get((cell.kind, cell.depth, cell.help))
            is_best = best is not None and (best["init"], best["block"], best["chain"]) == (*cell[2:4], chain)
            if cell.help or cell.depth not in DEPTHS:
                continue
            if is_best or (cell.depth in DEEPER and cell.kind in ("Adam", "aMC on")):
                curves += _curve(cell, run, chain, is_best)
            if is_best and cell.depth in scale.shown:
                outputs += _outputs(cell, run, chain)
    write_table(out / "runs.csv", rows)
    if curves:
        write_table(out / "curves.csv", curves)
    if outputs:
        write_table(out / "outputs.csv", outputs)


def _key(row: dict[str, Any]) -> tuple[str, int, str]:
    return row["kind"], row["depth"], row["help"]


def summarise(cell: Cell, run: Run) -> list[dict[str, Any]]:
    """Return one row per chain: how far it went, its loss, and when it first had U < 0.01."""
    losses = run.table["loss"].reshape(len(run.table["step"]), -1)
    frozen = run.table["is_frozen"].reshape(losses.shape)
    rows = []
    for chain, steps in enumerate(np.ravel(run.tensors["t"])):
        loss = losses[:, chain][np.isfinite(losses[:, chain])]
        below = run.table["step"][losses[:, chain] < TRAINED]
        end = "trained" if len(below) else "frozen" if frozen[:, chain].any() else "untrained"
        rows.append(
            {
                **cell._asdict(),
                "chain": chain,
                "steps": int(steps),
                "loss": float(loss[-1]),
                "induction": int(below[0]) if len(below) else "",
                "end": end,
                "is_over": int(is_finished(run.path)),
            }
        )
    return rows


def _curve(cell: Cell, run: Run, chain: int, is_best: bool) -> list[dict[str, Any]]:
    step, loss = run.table["step"], run.table["loss"].reshape(len(run.table["step"]), -1)[:, chain]
    step, loss = step[np.isfinite(loss)], loss[np.isfinite(loss)]
    wanted = np.unique(np.searchsorted(step, np.geomspace(1, max(1, step[-1]), 120)).clip(0, len(step) - 1))
    return [
        {**cell._asdict(), "chain": chain, "is_best": int(is_best), "step": int(step[i]), "loss": float(loss[i])}
        for i in wanted
    ]


def _outputs(cell: Cell, run: Run, chain: int) -> list[dict[str, Any]]:
    problem = make_problem("step", cell.options)
    if not callable(problem.init) or problem.outputs is None:
        raise ValueError("the problem must have an init function and outputs")
    with jax.enable_x64(True):
        x = np.atleast_2d(run.tensors["state.x"])[chain]
        params = Flattening.of(problem.init(jax.random.key(0)), "float64").unflatten(jax.numpy.asarray(x))
        says = np.ravel(problem.outputs(params, problem.data[0]))
    theta, target = map(np.ravel, problem.data)
    return [
        {"kind": cell.kind, "depth": cell.depth, "theta": float(t), "target": float(f), "output": float(o)}
        for t, f, o in zip(theta, target, says, strict=True)
    ]


def draw(out: Path) -> list[Path]:
    """Draw (a) the best runs, (b) net outputs and (c) single runs and their survival curves."""
    rows, curves = read_table(out / "runs.csv"), read_table(out / "curves.csv")
    outputs = read_table(out / "outputs.csv") if (out / "outputs.csv").exists() else []
    depths = sorted(set(column(curves, "depth")))
    deeper = [depth for depth in depths if depth in DEEPER]
    panels: list[Any] = [("a", depth) for depth in depths] + [("legend", 0)]
    panels += [None] * (-len(panels) % 4)
    panels += [("b", depth) for depth in sorted(set(column(outputs, "depth")))] if outputs else []
    if deeper:
        panels += [("survival", "Adam"), ("survival", "aMC on")]
        panels += [None] * (-len(panels) % 4)
        panels += [("c", depth) for depth in deeper]
    longest = 1.3 * column(curves, "step").max()
    figure, axes = new_figure(len(panels), num_columns=4)
    figure.set_size_inches(12, 2.5 * -(-len(panels) // 4))
    for axis, panel in zip(axes, panels, strict=True):
        if panel is None:
            axis.set_axis_off()
            continue
        name, value = panel
        if name in ("a", "c"):
            chosen = [row for row in curves if row["depth"] == value]
            _draw_losses(axis, chosen, only_best=name == "a")
            axis.set_xlim(1, longest)
            axis.set_title(f"({name})  d = {value:g}", loc="left", fontsize=10)
        elif name == "b":
            _draw_outputs(axis, [row for row in outputs if row["depth"] == value])
            axis.set_title(f"(b)  d = {value:g}", loc="left", fontsize=10)
        elif name == "survival":
            _draw_survival(axis, [row for row in rows if row["kind"] == value and not row["help"]], deeper, value)
            axis.set_xlim(1, longest)
        else:
            _draw_legend(axis)
    return [save(figure, out / "fig6")]


def _draw_losses(axis: Any, curves: list[dict[str, Any]], only_best: bool) -> None:
    axis.axhline(PLATEAU, color="#bbbbbb", linewidth=0.8, zorder=0)
    axis.axhline(TRAINED, color="#bbbbbb", linewidth=0.8, linestyle=(0, (1, 3)), zorder=0)
    single: dict[Any, list[dict[str, Any]]] = {}
    for row in curves:
        if row["is_best"] if only_best else row["kind"] in ("Adam", "aMC on"):
            single.setdefault((list(KINDS).index(row["kind"]), row["init"], row["block"], row["chain"]), []).append(row)
    for _, mine in sorted(single.items()):
        kind, last = mine[0]["kind"], mine[-1]
        dash, width = (DASHES[kind], WIDTHS[kind]) if only_best else ("-", 0.9)
        axis.plot(column(mine, "step"), column(mine, "loss"), dash, color=COLOURS[kind], linewidth=width)
        if last["loss"] < TRAINED:  # the run ends here because it is trained
            axis.plot(last["step"], last["loss"], "o", color=COLOURS[kind], markersize=3)
    axis.set(xlabel="epoch n", ylabel="loss U", xscale="log", yscale="log")
    low = min(0.008, 0.8 * column(curves, "loss").min())
    ticks = [tick for tick in (1e-5, 1e-4, 1e-3, 0.01, 0.05) if tick > low]
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ylim(low, 0.08)
    axis.yaxis.set_minor_formatter("")


def _draw_outputs(axis: Any, outputs: list[dict[str, Any]]) -> None:
    for kind in KINDS:
        mine = [row for row in outputs if row["kind"] == kind]
        if mine:
            axis.plot(column(mine, "theta"), column(mine, "target"), color="black", linewidth=0.8)
            axis.plot(
                column(mine, "theta"), column(mine, "output"), DASHES[kind], color=COLOURS[kind], linewidth=WIDTHS[kind]
            )
    axis.set(xlabel="θ", ylabel="net output")


def _draw_survival(axis: Any, rows: list[dict[str, Any]], depths: Sequence[float], kind: str) -> None:
    shades = np.linspace(0.75, 0.0, len(depths))
    for depth, shade, dash in zip(depths, shades, ("-", "--", "-.", ":"), strict=False):
        mine = [row for row in rows if row["depth"] == depth]
        if not mine:
            continue
        times, seen = induction_times(mine)
        steps = np.concatenate([[1.0], np.sort(times[seen]), [times.max()]])
        alive = np.concatenate([1 - np.arange(seen.sum() + 1) / len(mine), [1 - seen.sum() / len(mine)]])
        axis.step(steps, alive, dash, where="post", color=str(shade), label=f"d = {depth:g}")
    axis.set(xlabel="epoch n", ylabel="untrained runs", xscale="log", ylim=(-0.03, 1.05))
    axis.set_title(f"(c)  {LABELS[kind]}", loc="left", fontsize=10)
    axis.legend(frameon=False, fontsize=8)


def _draw_legend(axis: Any) -> None:
    for kind, label in LABELS.items():
        axis.plot([], [], DASHES[kind], color=COLOURS[kind], label=label, linewidth=WIDTHS[kind])
    axis.plot([], [], color="black", linewidth=0.8, label="target function")
    axis.plot([], [], color="#bbbbbb", linewidth=0.8, label="best constant, U = 3/64")
    axis.plot([], [], color="#bbbbbb", linewidth=0.8, linestyle=(0, (1, 3)), label="trained, U = 0.01")
    axis.legend(frameon=False, loc="center", fontsize=9)
    axis.set_axis_off()


def induction_times(rows: Sequence[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Return when runs trained and whether they did; one that has frozen will not, however long one waits."""
    seen = np.asarray([row["end"] == "trained" for row in rows], bool)
    longest = max((float(row["steps"]) for row in rows), default=0.0)
    waited = [longest if row["end"] == "frozen" else float(row["steps"]) for row in rows]
    times = [float(row["induction"]) if is_seen else w for row, is_seen, w in zip(rows, seen, waited, strict=True)]
    return np.asarray(times), seen


def log_rank(times: np.ndarray, is_event: np.ndarray, is_first: np.ndarray) -> tuple[float, float, float]:
    """Return observed and expected events of the first of two groups, and their variance under equal rates.

    At each time with d events among n runs still waiting, n_1 of them of the first group, the number of events in that
    group is hypergeometric: mean d n_1/n, variance d (n_1/n) (1 - n_1/n) (n - d)/(n - 1).
    """
    observed = expected = variance = 0.0
    for time in np.unique(times[is_event]):
        waiting, now = times >= time, is_event & (times == time)
        n, d, share = int(waiting.sum()), int(now.sum()), (waiting & is_first).sum() / waiting.sum()
        observed += float((now & is_first).sum())
        expected += d * share
        variance += d * share * (1 - share) * (n - d) / (n - 1) if n > 1 else 0.0
    return observed, float(expected), float(variance)


def check(out: Path, scale: str) -> list[Verdict]:
    """Judge the claims; that a net trains is known as soon as it does, that it does not only after 1e6 epochs."""
    rows = read_table(out / "runs.csv")
    outputs = read_table(out / "outputs.csv") if (out / "outputs.csv").exists() else []
    plain = [row for row in rows if not row["help"]]
    is_real = scale != "smoke"
    verdicts = [
        _judge_depths(plain, "GD", 4, is_real),
        _judge_depths(plain, "aMC off", 4, is_real),
        _judge_depths(plain, "Adam", 32, is_real),
        _judge_depths(plain, "aMC on", 128, is_real),
        _judge_outputs(outputs, plain, is_real),
        _judge_rates(plain, is_real),
        _judge_waiting(plain, is_real),
        _judge_deepest(plain, is_real),
    ]
    helped = [row for row in rows if row["help"]]
    verdicts.append(_judge_helped(helped, "Adam", (64,), is_real))
    verdicts.append(_judge_helped(helped, "aMC off", DEPTHS, is_real))
    return verdicts


def _is_final(row: dict[str, Any]) -> bool:
    return row["end"] in ("trained", "frozen") or row["steps"] >= PAPER_STEPS


def _trained(rows: Sequence[dict[str, Any]]) -> int:
    return sum(row["end"] == "trained" for row in rows)


def _judge_depths(rows: list[dict[str, Any]], kind: str, deepest: int, is_real: bool) -> Verdict:
    groups = {d: [row for row in rows if row["kind"] == kind and row["depth"] == d] for d in DEPTHS}
    trains = {d: _trained(group) > 0 for d, group in groups.items()}
    wanted = {d: d <= deepest for d in DEPTHS}
    known = {d: trains[d] or (len(group) >= MIN_RUNS and all(map(_is_final, group))) for d, group in groups.items()}
    is_refuted = any(known[d] and trains[d] != wanted[d] for d in DEPTHS)
    counts = ", ".join(f"{_trained(group)}/{len(group)} at {d}" for d, group in groups.items() if group)
    return judge(
        "F6a",
        f"{LABELS[kind]} trains to depth {deepest}" + (", no deeper" if deepest < DEPTHS[-1] else ""),
        counts or "no runs",
        "best run has U < 0.01 within 1e6 epochs at these depths" + (" only" if deepest < DEPTHS[-1] else ""),
        holds=trains == wanted,
        is_decided=is_real and (is_refuted or all(known.values())),
        differs=KAIMING,
    )


def _judge_outputs(outputs: list[dict[str, Any]], rows: list[dict[str, Any]], is_real: bool) -> Verdict:
    depths = sorted(set(column(outputs, "depth"))) if outputs else []
    shapes = {(row["kind"], row["depth"]): (0.0, 0.0) for row in outputs}
    for kind, depth in shapes:
        mine = [row for row in outputs if (row["kind"], row["depth"]) == (kind, depth)]
        says, theta = column(mine, "output"), column(mine, "theta")
        shapes[kind, depth] = float(np.max(np.abs(np.diff(says) / np.diff(theta)))), float(np.ptp(says))
    words = [f"{k} d={d:g}: slope {slope:.3g}, range {span:.2g}" for (k, d), (slope, span) in sorted(shapes.items())]
    holds = is_whole = False
    if len(depths) == 2 and len(shapes) == 2 * len(KINDS):
        low, high = depths
        gentle = 2 * shapes["GD", low][0]
        holds = min(shapes["Adam", low][0], shapes["aMC on", low][0]) > gentle
        holds &= shapes["aMC on", high][1] > 0.4 and all(shapes[k, high][1] < 0.1 for k in ("GD", "Adam", "aMC off"))
        is_whole = high >= 64 and all(_is_final(row) and row["is_over"] for row in rows if row["depth"] in depths)
    return judge(
        "F6b",
        "Adam and aMC are sharp, GD smooth; the deep net is learnt by aMC with signal norm only",
        "; ".join(words) or "no outputs",
        "steepest slope > 2 x GD's; deep: output range > 0.4 for aMC on, < 0.1 for the others (target 0.5)",
        holds=holds,
        is_decided=is_real and is_whole,
        differs="the paper shows a picture; the numbers are ours",
    )


def _pairs(rows: list[dict[str, Any]]) -> dict[int, tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    both = {
        depth: tuple(
            [row for row in rows if (row["kind"], row["depth"]) == (kind, depth)] for kind in ("aMC on", "Adam")
        )
        for depth in DEEPER
    }
    return {depth: (one, other) for depth, (one, other) in both.items() if one and other}


def _judge_rates(rows: list[dict[str, Any]], is_real: bool) -> Verdict:
    """Compare rates of nucleation, each depth a stratum: the sums of O - E and of V over the depths."""
    sums, words = np.zeros(3), []
    pairs = _pairs(rows)
    for depth, (amc, adam) in pairs.items():
        together = [induction_times(amc), induction_times(adam)]
        times, seen = (np.concatenate(part) for part in zip(*together, strict=True))
        parts = np.asarray(log_rank(times, seen, np.arange(len(times)) < len(amc)))
        sums += parts
        words.append(f"d={depth}: aMC {_trained(amc)}/{len(amc)}, Adam {_trained(adam)}/{len(adam)}, p={_p(parts):.2g}")
    return judge(
        "F6c",
        "nets nucleate at a higher rate by aMC than by Adam",
        "; ".join(words) + f"; all: O={sums[0]:.3g}, E={sums[1]:.3g}, p={_p(sums):.2g}",
        "log-rank test, stratified by depth: more events than expected for aMC, p < 0.05",
        holds=bool(sums[0] > sums[1] and _p(sums) < 0.05),
        is_decided=is_real and _is_complete(pairs),
        differs="runs of both initialisations; a frozen run counts as waiting to the end",
    )


def _p(parts: np.ndarray) -> float:
    observed, expected, variance = parts
    return float(chi2.sf((observed - expected) ** 2 / variance, 1)) if variance > 0 else 1.0


def _is_complete(pairs: dict[int, Any]) -> bool:
    groups = [group for pair in pairs.values() for group in pair]
    return len(pairs) == len(DEEPER) and all(len(g) >= MIN_RUNS and all(map(_is_final, g)) for g in groups)


def _judge_waiting(rows: list[dict[str, Any]], is_real: bool) -> Verdict:
    pairs = _pairs(rows)
    means = {d: [float(np.mean(induction_times(group)[0])) for group in pair] for d, pair in pairs.items()}
    words = [f"d={depth}: aMC {amc:,.0f}, Adam {adam:,.0f}" for depth, (amc, adam) in means.items()]
    first, last = (means.get(depth, [np.nan, np.nan]) for depth in (DEEPER[0], DEEPER[-1]))
    return judge(
        "F6c",
        "induction times grow with depth",
        "; ".join(words) or "no runs",
        f"mean induction time, cut at the runs' end, is longer at depth {DEEPER[-1]} than at {DEEPER[0]} for both",
        holds=all(b > a for a, b in zip(first, last, strict=True)),
        is_decided=is_real and _is_complete(pairs),
    )


def _judge_deepest(rows: list[dict[str, Any]], is_real: bool) -> Verdict:
    mine = [row for row in rows if row["depth"] == 256]
    trained = _trained(mine)
    return judge(
        "F6d",
        "aMC with signal norm trains at depth 256",
        f"{trained} of {len(mine)} trained, best U {min((row['loss'] for row in mine), default=np.nan):.3g}",
        "at least 1 of 10",
        holds=trained > 0,
        is_decided=is_real and (trained > 0 or (len(mine) >= 10 and all(map(_is_final, mine)))),
        differs=KAIMING,
    )


def _judge_helped(rows: list[dict[str, Any]], kind: str, depths: Sequence[int], is_real: bool) -> Verdict:
    groups = {
        (help_, depth): [row for row in rows if (row["kind"], row["help"], row["depth"]) == (kind, help_, depth)]
        for help_ in ("skip", "layer_norm")
        for depth in depths
    }
    enough = [2 * _trained(group) >= len(group) for group in groups.values()]
    is_whole = all(len(group) >= 10 and all(map(_is_final, group)) for group in groups.values())
    words = [f"{help_} d={d}: {_trained(group)}/{len(group)}" for (help_, d), group in groups.items() if group]
    where = "depth 64" if len(depths) == 1 else "all depths"
    return judge(
        "F6e",
        f"{LABELS[kind]} trains at {where} with skip connections or layer norm",
        "; ".join(words) or "no runs",
        "at least 5 of 10 for each of the two",
        holds=all(enough),
        is_decided=is_real and is_whole,
        differs=KAIMING,
    )
