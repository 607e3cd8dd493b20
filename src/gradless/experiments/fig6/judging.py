"""The verdicts on Fig. 6, from its tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gradless.experiments.claims import Verdict, judge
from gradless.experiments.fig6.settings import (
    DEEPER,
    DEPTHS,
    ENDS_EARLY,
    FEWER,
    INITS,
    KAIMING,
    KINDS,
    LABELS,
    LAYER_NORM,
    MIN_RUNS,
    PAPER_RUNS,
    PAPER_STEPS,
)
from gradless.experiments.fig6.survival import end_of, induction_times, log_rank, p_value
from gradless.experiments.tables import column, read_table, table_so_far

# Of each start the first five runs of the plan.
FIRST_TEN = [(block, init, chain) for init in INITS for block, chain in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]]


def check(out: Path, scale: str) -> list[Verdict]:
    """Judge the claims; that a net trains is known as soon as it does, that it does not only after 1e6 epochs."""
    rows = read_table(out / "runs.csv")
    outputs = table_so_far(out / "outputs.csv")
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
    # The best of 20 trains where perhaps one in 20 does: that it does not is known from all of them.
    known = {d: trains[d] or (len(group) >= PAPER_RUNS and _is_enough(group)) for d, group in groups.items()}
    is_refuted = any(known[d] and trains[d] != wanted[d] for d in DEPTHS)
    counts = ", ".join(f"{_trained(group)}/{len(group)} at {d}" for d, group in groups.items() if group)
    return judge(
        "F6a",
        f"{LABELS[kind]} trains to depth {deepest}" + (", no deeper" if deepest < DEPTHS[-1] else ""),
        counts or "no runs",
        "best run has U < 0.01 within 1e6 epochs at these depths" + (" only" if deepest < DEPTHS[-1] else ""),
        holds=trains == wanted,
        is_decided=is_real and (is_refuted or all(known.values())),
        differs=f"{KAIMING}; {ENDS_EARLY}; best of the runs that are there, in place of {PAPER_RUNS}",
    )


def _is_enough(rows: Sequence[dict[str, Any]]) -> bool:
    """Return whether these runs of one algorithm at one depth are enough to say how it fares: some of each start."""
    return len(rows) >= MIN_RUNS and {row["init"] for row in rows} >= set(INITS) and all(map(_is_final, rows))


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
        deep = [[row for row in rows if (row["kind"], row["depth"]) == (kind, high)] for kind in KINDS]
        is_over = all(_is_final(row) and row["is_over"] for row in rows if row["depth"] in depths)
        is_whole = high >= 64 and all(map(_is_enough, deep)) and is_over
    return judge(
        "F6b",
        "Adam and aMC are sharp, GD smooth; the deep net is learnt by aMC with signal norm only",
        "; ".join(words) or "no outputs",
        "steepest slope > 2 x GD's; deep: output range > 0.4 for aMC on, < 0.1 for the others (target 0.5)",
        holds=holds,
        is_decided=is_real and is_whole,
        differs=f"the paper shows a picture; the numbers are ours; {KAIMING}; {ENDS_EARLY}; {FEWER}",
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
    """Compare rates of nucleation, each depth and start a stratum: the sums of O - E and of V over them."""
    by_init, words = {init: np.zeros(3) for init in INITS}, []
    pairs = _pairs(rows)
    for depth, (amc, adam) in pairs.items():
        parts = np.zeros(3)
        for init in INITS:
            groups = [[row for row in group if row["init"] == init] for group in (amc, adam)]
            if not all(groups):
                continue
            together = [induction_times(group, end_of(rows)) for group in groups]
            times, seen = (np.concatenate(part) for part in zip(*together, strict=True))
            stratum = np.asarray(log_rank(times, seen, np.arange(len(times)) < len(groups[0])))
            parts, by_init[init] = parts + stratum, by_init[init] + stratum
        words.append(
            f"d={depth}: aMC {_trained(amc)}/{len(amc)}, Adam {_trained(adam)}/{len(adam)}, p={p_value(parts):.2g}"
        )
    sums = sum(by_init.values(), np.zeros(3))
    words += [f"all from {init}: p={p_value(of_init):.2g}" for init, of_init in by_init.items() if of_init[2] > 0]
    return judge(
        "F6c",
        "nets nucleate at a higher rate by aMC than by Adam",
        "; ".join([*words, f"all: O={sums[0]:.3g}, E={sums[1]:.3g}, p={p_value(sums):.2g}"]) if pairs else "no runs",
        "log-rank test, stratified by depth and start: more events than expected for aMC, p < 0.05",
        holds=bool(sums[0] > sums[1] and p_value(sums) < 0.05),
        is_decided=is_real and _is_complete(pairs),
        differs=f"runs of both initialisations; a frozen run counts as waiting to the end; {KAIMING}; {FEWER}",
    )


def _is_complete(pairs: dict[int, Any]) -> bool:
    groups = [group for pair in pairs.values() for group in pair]
    return len(pairs) == len(DEEPER) and all(map(_is_enough, groups))


def _judge_waiting(rows: list[dict[str, Any]], is_real: bool) -> Verdict:
    pairs, end = _pairs(rows), end_of(rows)
    means = {d: [float(np.mean(induction_times(group, end)[0])) for group in pair] for d, pair in pairs.items()}
    words = [f"d={depth}: aMC {amc:,.0f}, Adam {adam:,.0f}" for depth, (amc, adam) in means.items()]
    first, last = (means.get(depth, [np.nan, np.nan]) for depth in (DEEPER[0], DEEPER[-1]))
    return judge(
        "F6c",
        "induction times grow with depth",
        "; ".join(words) or "no runs",
        f"mean induction time, cut at the runs' end, is longer at depth {DEEPER[-1]} than at {DEEPER[0]} for both",
        holds=all(b > a for a, b in zip(first, last, strict=True)),
        is_decided=is_real and _is_complete(pairs),
        differs=f"{KAIMING}; {FEWER}",
    )


def _judge_deepest(rows: list[dict[str, Any]], is_real: bool) -> Verdict:
    mine = [row for row in rows if row["depth"] == 256]
    trained = _trained(mine)
    return judge(
        "F6d",
        "aMC with signal norm trains at depth 256",
        f"{trained} of {len(mine)} trained, best U {min(row['loss'] for row in mine):.3g}" if mine else "no runs",
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
    halves = [_is_half_trained(group) for group in groups.values()]
    words = [f"{help_} d={d}: {_trained(group)}/{len(group)}" for (help_, d), group in groups.items() if group]
    where = "depth 64" if len(depths) == 1 else "all depths"
    return judge(
        "F6e",
        f"{LABELS[kind]} trains at {where} with skip connections or layer norm",
        "; ".join(words) or "no runs",
        "at least 5 of the first 10 for each of the two",
        holds=all(halves),
        is_decided=is_real and (False in halves or None not in halves),
        differs=f"{KAIMING}; {LAYER_NORM}; 'skip connections or layer norm' is taken to mean each of the two, and "
        "'trains' half of the runs: the paper does not say how many",
    )


def _is_half_trained(rows: Sequence[dict[str, Any]]) -> bool | None:
    """Return whether half of the first ten runs of the plan are trained; None while it can still become either."""
    runs = {(row["block"], row["init"], row["chain"]): row for row in rows}
    ten = [runs[run] for run in FIRST_TEN if run in runs]
    if _trained(ten) >= 5:
        return True
    return False if sum(map(_is_final, ten)) - _trained(ten) > 5 else None
