"""What a checkpoint and the records beside it must be like before a session goes on from them.

A run may come from anywhere: whatever it says is looked at before it is used. The checksum of a file only tells that
nobody damaged it by accident.
"""

from pathlib import Path
from typing import Any

import numpy as np

from gradless.engine.batches import FullBatch
from gradless.engine.chains import COLUMNS
from gradless.engine.run import evaluate_loss
from gradless.engine.session import Session, precision_of
from gradless.records import Checkpoint, RunError

ROUNDING = 1e-2  # of the loss: no rounding is as large


def checked_meta(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what a checkpoint says beside its tensors; refuse what this program cannot have written."""
    meta = checkpoint.meta
    chains = meta.get("chains")
    is_ours = (
        isinstance(meta.get("prng"), str)
        and isinstance(meta.get("seconds"), int | float)
        and isinstance(chains, list)
        and 0 < len(chains) == len(_counts(meta.get("accepted")))
        and all(isinstance(chain, dict) and _is_chain(chain, checkpoint.step) for chain in chains)
        and isinstance(meta.get("selections"), list)
        and all(_is_selection(event, chains) for event in meta["selections"])
    )
    if not is_ours:
        raise RunError(f"{checkpoint.path} is not of a run of gradless: its text is not what a session writes")
    return meta


def check_same_run(meta: dict[str, Any], of_run: dict[str, Any], session: Session) -> None:
    """Refuse a checkpoint that was written under another problem or algorithm, even where the shapes agree."""
    of_checkpoint = meta["settings"] if isinstance(meta.get("settings"), dict) else {}
    for name in ("problem", "options", "algorithm", "generator"):
        if of_checkpoint.get(name) != of_run.get(name):
            raise RunError(
                f"the checkpoint is of {name} {of_checkpoint.get(name)}, the run's settings say {of_run.get(name)}: "
                "put the run's own checkpoint back"
            )
    numbers, expected = [chain["number"] for chain in meta["chains"]], [chain.index for chain in session.chains]
    if numbers != expected:
        raise RunError(f"the checkpoint is of chains {numbers}, the run's settings say {expected}")


def check_same_metrics(rows: list[dict[str, Any]], session: Session) -> None:
    """Refuse to go on with other metrics than those recorded so far."""
    recorded = sorted(rows[0].keys() - set(COLUMNS)) if rows else []
    if rows and recorded != sorted(session.metric_names):
        raise RunError(
            f"the run has recorded {_metrics(recorded)}, now there would be {_metrics(sorted(session.metric_names))}: "
            "go on with those of the run"
        )


def check_same_problem(rows: list[dict[str, Any]], session: Session, settings: dict[str, Any]) -> None:
    """Refuse to go on with other data or another loss, as far as that can be seen.

    On the full batch the loss of x is known and is computed anew. Compiled apart, perhaps on another machine, it may
    round otherwise: what is far less than the loss at the start does not count.
    """
    num_data = session.work.num_data
    if settings.get("num_data", num_data) != num_data:
        raise RunError(f"the run has data of {settings['num_data']:,} samples, now there are {num_data:,}")
    chain = session.chains[0]
    program, data = chain.work.stage(chain.stage)
    if not isinstance(program.batches, FullBatch) or program.layout is not None or not rows:
        return
    with precision_of(session.dtype):
        known, now = float(chain.carry.state.loss), float(evaluate_loss(program, chain.carry.state.x, data))
    first = np.ravel(rows[0]["loss"])[0]
    if not abs(now - known) <= ROUNDING * max(abs(known), abs(first)):
        raise RunError(
            f"the loss of the last checkpoint is {known:.6g}, with this loss and these data it is {now:.6g}: go on "
            "with those of the run, or begin a new run from its net"
        )


def check_rows(rows: list[dict[str, Any]], num_chains: int, path: Path) -> None:
    """Refuse records that are not all alike, or not numbers, one per chain."""
    for row in rows:
        values = [value for name, value in row.items() if name not in ("step", "seconds")]
        fit = [_is_number(v) if num_chains == 1 else isinstance(v, list) and len(v) == num_chains for v in values]
        numbers = [one for value in values for one in (value if isinstance(value, list) else [value])]
        is_whole = row.keys() == rows[0].keys() and {"loss", "acceptance", "sigma", "is_frozen", "seconds"} < row.keys()
        if not (is_whole and all(fit) and all(map(_is_number, [*numbers, row["seconds"]]))):
            raise RunError(f"{path} is damaged at step {row['step']}: restore it from a copy")


def _is_chain(chain: dict[str, Any], step: int) -> bool:
    began = chain.get("stage_start")
    growths = chain.get("growths")
    return (
        len(_counts([chain.get(name) for name in ("number", "nonfinite", "last_record")])) == 3
        and isinstance(began, list)
        and len(began) == 4
        and all(isinstance(value, int | float) for value in began)
        and isinstance(growths, list)
        and len(_counts(growths)) == len(growths)
        and all(growth <= step for growth in growths)
    )


def _is_selection(event: Any, chains: list[dict[str, Any]]) -> bool:
    if not isinstance(event, dict) or not _counts([event.get("step")]) or not isinstance(event.get("copied"), list):
        return False
    numbers = [chain["number"] for chain in chains]
    return all(len(_counts(pair)) == 2 and set(pair) <= set(numbers) for pair in event["copied"])


def _counts(values: Any) -> list[int]:
    """Return the list if it is one of whole numbers of 0 or more, else an empty one."""
    is_list = isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)
    return values if is_list else []


def _metrics(names: list[str]) -> str:
    return f"the metric{'s' * (len(names) > 1)} {', '.join(names)}" if names else "no metric"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
