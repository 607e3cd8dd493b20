"""What a checkpoint and the records beside it must be like before a session goes on from them.

A run may come from anywhere: whatever it says is looked at before it is used. The checksum of a file only tells that
nobody damaged it by accident.
"""

from pathlib import Path
from typing import Any

import numpy as np

from gradless.engine.batches import FullBatch
from gradless.engine.loop import evaluate_loss
from gradless.engine.precision import precision_of
from gradless.engine.program import GOING
from gradless.engine.session import STATUS_WORDS, Session
from gradless.records import COLUMNS, Checkpoint, RunError

ROUNDING = 1e-2  # of the loss: no rounding is as large
MOST = 1 << 62  # no count and no time of ours gets there; JSON has whole numbers that no other type holds
SELECTIONS = "selections"  # the tensor of what was selected: each row a step, the chain copied, the chain replaced
OF_A_SITTING = ("steps", "time_budget", "checkpoint_every", "speculate")  # of a plan, which may change at a resume


def checked_meta(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what a checkpoint says beside its tensors; refuse what this program cannot have written."""
    meta = checkpoint.meta
    chains = meta.get("chains")
    is_ours = (
        isinstance(meta.get("prng"), str)
        and all(_is_cost(meta.get(name)) for name in ("seconds", "spent"))
        and isinstance(chains, list)
        and 0 < len(chains) == len(_counts(meta.get("accepted")))
        and all(isinstance(chain, dict) and _is_chain(chain, checkpoint.step) for chain in chains)
    )
    if not is_ours:
        raise RunError(f"{checkpoint.path} is not of a run of gradless: its text is not what a session writes")
    return meta


def check_same_run(meta: dict[str, Any], of_run: dict[str, Any], session: Session) -> None:
    """Refuse a checkpoint that was written under other settings, such as another seed, even where the shapes agree."""
    then, now = _lasting(meta.get("settings")), _lasting(of_run)
    for name in now | then:
        if then.get(name) != now.get(name):
            raise RunError(
                f"the checkpoint is of {name} {then.get(name)}, the run's settings say {now.get(name)}: "
                "put the run's own checkpoint or settings.json back"
            )
    numbers, expected = [chain["number"] for chain in meta["chains"]], [chain.index for chain in session.chains]
    if numbers != expected:
        raise RunError(f"the checkpoint is of chains {numbers}, the run's settings say {expected}")


def _lasting(settings: Any) -> dict[str, Any]:
    """Return the settings that make a chain what it is, by name."""
    settings = settings if isinstance(settings, dict) else {}
    plan = settings["plan"] if isinstance(settings.get("plan"), dict) else {}
    lasting = {name: settings.get(name) for name in ("problem", "options", "algorithm", "generator")}
    return lasting | {name: value for name, value in plan.items() if name not in OF_A_SITTING}


def check_state(checkpoint: Checkpoint, session: Session) -> None:
    """Refuse chains that do not stand at the step of the checkpoint, nor have ended, or could not go on from there.

    A move is accepted only if its loss is a number; but x may have none on another minibatch, or along a gradient.
    """
    tensors, reached = checkpoint.tensors, max(chain.t for chain in session.chains)
    for chain in session.chains:
        stands = chain.t == reached if chain.status == GOING else chain.status in STATUS_WORDS
        if not stands or not 0 <= chain.t <= reached == checkpoint.step:
            where = f"chain {chain.index} stands at {chain.t} with status {chain.status}"
            raise RunError(f"{checkpoint.path} says step {checkpoint.step}, its {where}: restore it from a copy")
    known: dict[str, Any] = {}
    state = session.chains[0].carry.state
    if hasattr(state, "sigma"):
        known["sigma"] = np.isfinite(tensors["state.sigma"]) & (tensors["state.sigma"] >= 0)
        if isinstance(session.work.batches, FullBatch):
            known["loss"] = np.isfinite(tensors["state.loss"])
            known |= {name: ~np.isnan(tensors[f"state.{name}"]) for name in ("lam", "mu") if hasattr(state, name)}
    for name, is_known in known.items():
        if not is_known.all():
            raise RunError(f"{checkpoint.path} holds a {name} that no chain has: restore it from a copy")


def stored_copies(checkpoint: Checkpoint, session: Session) -> list[tuple[int, int, int]]:
    """Return which chains a checkpoint says were copied over which, and when; refuse what no session has selected."""
    found = checkpoint.tensors.get(SELECTIONS)
    if found is None and session.selection is None:
        return []
    numbers = [chain.index for chain in session.chains]
    if found is None or session.selection is None or not _are_copies(found, numbers, checkpoint.step):
        raise RunError(f"{checkpoint.path} holds selections that no session made: restore it from a copy")
    return [(step, best, worst) for step, best, worst in found.tolist()]


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
        raise RunError(f"the run has data of {settings['num_data']} samples, now there are {num_data}")
    chain = session.chains[0]
    program, data = chain.work.stage(chain.stage)
    if not isinstance(program.batches, FullBatch) or program.layout is not None:
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


def check_none_lost(rows: list[dict[str, Any]], meta: dict[str, Any], path: Path) -> None:
    """Refuse records that end before the last one the checkpoint knows of: those were on the disk before it was."""
    last, known = rows[-1]["step"] if rows else None, max(chain["last_record"] for chain in meta["chains"])
    if last is None or last < known:
        ends = "holds no record" if last is None else f"ends at step {last}"
        raise RunError(f"{path} {ends}, the checkpoint knows of one at step {known}: restore it from a copy")


def _is_chain(chain: dict[str, Any], step: int) -> bool:
    began = chain.get("stage_start")
    growths = chain.get("growths")
    return (
        len(_counts([chain.get(name) for name in ("number", "nonfinite", "last_record")])) == 3
        and isinstance(began, list)
        and len(began) == 4
        and all(map(_is_cost, began))
        and isinstance(growths, list)
        and len(_counts(growths)) == len(growths)
        and all(at <= step for at in (*growths, chain["last_record"]))
    )


def _are_copies(found: np.ndarray, numbers: list[int], step: int) -> bool:
    if found.dtype != np.int32 or found.ndim != 2 or found.shape[1] != 3:
        return False
    steps = found[:, 0]
    is_in_time = ((steps > 0) & (steps <= step)).all() and (np.diff(steps) >= 0).all()
    return bool(is_in_time and np.isin(found[:, 1:], numbers).all())


def _counts(values: Any) -> list[int]:
    """Return the list if it is one of whole numbers of 0 or more, else an empty one."""
    is_list = isinstance(values, list) and all(type(value) is int and 0 <= value < MOST for value in values)
    return values if is_list else []


def _metrics(names: list[str]) -> str:
    return f"the metric{'s' * (len(names) > 1)} {', '.join(names)}" if names else "no metric"


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < MOST)


def _is_cost(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < MOST
