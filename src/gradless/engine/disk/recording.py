"""A session on disk: it writes its records, log and checkpoints as it goes, and goes on from them later."""

import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradless.engine.batches import Progressive
from gradless.engine.devices.processes import first_checks, is_first
from gradless.engine.disk.stored import (
    SELECTIONS,
    check_none_lost,
    check_rows,
    check_same_metrics,
    check_same_problem,
    check_same_run,
    check_state,
    checked_meta,
    stored_copies,
)
from gradless.engine.plan import LARGEST, Plan
from gradless.engine.precision import is_x64, precision_of
from gradless.engine.program import DIVERGED, GOING
from gradless.engine.session import Listener, Session
from gradless.kernels import algorithm_to_json
from gradless.machine import version_of
from gradless.records import COLUMNS, Checkpoint, Metrics, Recorder, RunDirectory, RunError, check_meta, load_newest
from gradless.threefry import NAME as GENERATOR
from gradless.types import Algorithm

WIDEST = -sys.float_info.min  # no number of ours has a longer text


def begun(
    prepare: Callable[[], Session],
    run: str | Path | None,
    algorithm: Algorithm,
    plan: Plan,
    about: dict[str, Any],
    overwrite: bool = False,
    report: Any = None,
) -> Session:
    """Return a session that has begun, recorded in `run` if that is given.

    A folder that is taken is refused before the session is prepared, and too many chains before anything is compiled.
    """
    first_checks(lambda: None if run is None else RunDirectory.check_free(run, overwrite))
    session = prepare()
    if run is not None:
        check_room(session, algorithm, plan, about)
    session.begin()
    if run is not None and is_first():
        begin_recording(session, run, algorithm, plan, about, overwrite, report)
    return session


def begin_recording(
    session: Session,
    path: str | Path,
    algorithm: Algorithm,
    plan: Plan,
    about: dict[str, Any],
    overwrite: bool = False,
    report: Any = None,
) -> "Recording":
    """Make the run directory of a new session and let it follow along; `about` says what the problem is."""
    directory = RunDirectory.create(path, _settings(session, algorithm, plan, about), environment(), overwrite)
    try:
        recording = Recording(directory, session, plan, step=0, report=report or _warn)
    except BaseException:
        directory.close()  # else this process would hold the run to its end
        raise
    session.listeners.insert(0, recording)  # before a callback, whose exception must not keep a chunk from the record
    return recording


def check_room(session: Session, algorithm: Algorithm, plan: Plan, about: dict[str, Any]) -> None:
    """Refuse more chains than a record or a checkpoint has room for, however long their numbers become.

    session: not begun, so that nothing is compiled in vain.
    algorithm, plan, about: as for `begin_recording`.
    """
    num_chains, settings = len(session.chains), _settings(session, algorithm, plan, about)
    is_growing = isinstance(plan.batches, Progressive)
    widest = {
        **dict.fromkeys(("number", "nonfinite", "last_record"), LARGEST),
        "growths": [LARGEST] * (session.work.num_data.bit_length() if is_growing else 0),  # a batch at least doubles
        "stage_start": [WIDEST] * 4,
    }
    row = dict.fromkeys((*COLUMNS, *session.metric_names), [WIDEST] * num_chains)
    try:
        Metrics.check_row(row | {"step": LARGEST, "seconds": WIDEST})
        check_meta({"settings": settings, "accepted": [LARGEST] * num_chains, "chains": [widest] * num_chains})
    except ValueError as error:
        words = f"a run of {num_chains} chain{'s' * (num_chains > 1)} cannot be recorded"
        raise ValueError(f"{words} ({error}): take fewer chains, or do not record it") from None


def _settings(session: Session, algorithm: Algorithm, plan: Plan, about: dict[str, Any]) -> dict[str, Any]:
    return {
        **about,
        "algorithm": algorithm_to_json(algorithm),
        "plan": plan.to_json(),
        "num_data": session.work.num_data,
        "x64": is_x64(),
        "generator": GENERATOR,
    }


def go_on_recording(session: Session, directory: RunDirectory, plan: Plan, report: Any = None) -> "Recording":
    """Bring a session to the last good checkpoint of its run and let it record on from there."""
    report = report or _warn
    checkpoint = load_newest(directory.checkpoints_path, report)
    check_same_run(checked_meta(checkpoint), directory.settings, session)
    restore(session, checkpoint)
    rows = [row for row in Metrics(directory.metrics_path).rows() if row["step"] <= checkpoint.step]
    check_rows(rows, len(session.chains), directory.metrics_path)
    check_none_lost(rows, checkpoint.meta, directory.metrics_path)
    check_same_metrics(rows, session)
    check_same_problem(rows, session, directory.settings)
    recording = Recording(directory, session, plan, step=checkpoint.step, report=report)
    session.rows = rows
    session.listeners.insert(0, recording)
    return recording


def go_along(session: Session, directory: RunDirectory, report: Any = None) -> None:
    """Bring a session to the last good checkpoint of a run that another process records."""
    checkpoint = load_newest(directory.checkpoints_path, report or _warn, set_aside=False)
    check_same_run(checked_meta(checkpoint), directory.settings, session)
    restore(session, checkpoint)


class Recording(Listener):
    """Writes what happens to the run directory; trouble with the disk is told and does not stop the run."""

    def __init__(self, directory: RunDirectory, session: Session, plan: Plan, step: int, report: Any):
        self.directory = directory
        self.every = plan.checkpoint_every
        self.t = -1  # the step up to which records and log are complete
        self.is_complete = True  # at the end: whether everything is on the disk
        # A new run's first checkpoint comes at once, so that it can always be gone on with; a resumed one has its own.
        self.last = time.monotonic() if step else -float("inf")
        self.saved = step if step else -1  # the step of the newest checkpoint
        self.spent = session.spent  # as the newest checkpoint says
        self.recorder = Recorder(directory, step, len(session.chains), report)

    def chunk_done(self, session: Session, rows: list[dict[str, Any]], flags: np.ndarray) -> None:
        """Append the records and the log; write a checkpoint when it is time."""
        self.recorder.metrics(rows)
        if flags.shape[1]:
            self.recorder.accepted(session.t - flags.shape[1], flags)
        self.t = session.t
        if time.monotonic() - self.last >= self.every or self.recorder.wants_checkpoint:
            self.checkpoint(session)

    def finished(self, session: Session) -> None:
        """Write the last checkpoint and let the run go.

        An exception in the middle of a round leaves chains apart and the log behind; the last checkpoint then stands.
        """
        try:
            if self.t == session.t and _stand_together(session):
                self.checkpoint(session)
        finally:
            self.is_complete = self.recorder.close()

    def checkpoint(self, session: Session) -> None:
        """Write the whole state, unless it is on the disk already; that the time is up may be news all the same."""
        if session.t != self.saved or session.spent >= session.time_budget > self.spent:
            tensors, meta = snapshot(session)
            if self.recorder.checkpoint(session.t, tensors, {"settings": self.directory.settings, **meta}):
                self.saved, self.spent = session.t, session.spent
        self.last = time.monotonic()


def _stand_together(session: Session) -> bool:
    carries = [chain.carry for chain in session.chains if chain.carry is not None]
    if any(leaf.is_deleted() for leaf in jax.tree.leaves(carries)):
        return False  # given to a chunk that was not finished
    return all(carry.t == session.t or carry.status != GOING for carry in carries)


def snapshot(session: Session) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the whole state of a session as named tensors, and what is not a tensor beside it.

    The chain axis comes first, but for the selections.
    """
    carries = [jax.tree.map(np.asarray, chain.carry) for chain in session.chains]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *carries)
    tensors = dict(_named(stacked))
    if session.selection:  # a tensor, because the text beside the tensors has little room
        tensors[SELECTIONS] = np.array(session.selection.copies, np.int32).reshape(-1, 3)
    meta = {
        "prng": str(jax.random.key_impl(session.chains[0].key)),
        "jax": jax.__version__,
        "gradless": version_of("gradless") or "not installed",
        "seconds": session.seconds_before + session.seconds,
        "spent": session.spent,
        "accepted": session.accepted,
        "chains": [
            {
                "number": chain.index,
                "growths": chain.growths,
                "stage_start": list(chain.stage_start),
                "nonfinite": chain.nonfinite,
                "last_record": chain.last_record,
            }
            for chain in session.chains
        ],
    }
    return tensors, meta


def restore(session: Session, checkpoint: Checkpoint) -> None:
    """Bring a session that has not begun to the state of a checkpoint; refuse one that does not fit."""
    meta = checkpoint.meta
    prng = str(jax.random.key_impl(session.chains[0].key))
    if meta["prng"] != prng:
        raise RunError(f"the checkpoint is of random numbers by {meta['prng']}, this JAX uses {prng}")
    with precision_of(session.dtype):
        for place, (chain, stored) in enumerate(zip(session.chains, meta["chains"], strict=True)):
            like = chain.expected_carry(session.points[place])
            leaves = [
                _fitting(name, leaf, checkpoint.tensors, place, len(session.chains)) for name, leaf in _named(like)
            ]
            chain.carry = chain.placed(jax.tree.unflatten(jax.tree.structure(like), leaves))
            chain.t, chain.status = int(chain.carry.t), int(chain.carry.status)
            chain.growths, chain.stage_start = list(stored["growths"]), tuple(stored["stage_start"])
            chain.stage = len(chain.growths)
            chain.nonfinite, chain.last_record = stored["nonfinite"], stored["last_record"]
            if chain.status == DIVERGED:
                raise RunError("the run has diverged: its loss is no longer a number, and it cannot go on")
    check_state(checkpoint, session)
    copies = stored_copies(checkpoint, session)
    session.t = checkpoint.step
    session.accepted = list(meta["accepted"])
    session.seconds_before, session.spent = float(meta["seconds"]), float(meta["spent"])
    if session.selection:
        session.selection.copies = copies


def differing(states: list[Any], tensors: dict[str, Any]) -> str | None:
    """Return the name of the first tensor of a checkpoint that rebuilt states do not have bit for bit, or None.

    A replay knows decisions, not losses, so the loss is not compared.
    """
    stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *states)
    for name, values in _named(stacked):
        stored = tensors.get(f"state.{name}")
        if name != "loss" and (stored is None or values.tobytes() != stored.tobytes()):
            return name
    return None


def _fitting(name: str, like: Any, tensors: dict[str, Any], place: int, num_chains: int) -> jax.Array:
    found, shape = tensors.get(name), (num_chains, *like.shape)
    if found is None or found.shape != shape or found.dtype != like.dtype:
        is_there = "none" if found is None else f"{found.dtype} of shape {found.shape}"
        raise RunError(
            f"the checkpoint does not fit the problem: {name} must be {like.dtype} of shape {shape}, it has {is_there}"
        )
    return jnp.asarray(found[place])


def _named(tree: Any) -> list[tuple[str, Any]]:
    paths = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(path, simple=True, separator="."), leaf) for path, leaf in paths]


def environment() -> dict[str, Any]:
    """Return what a reader of the run needs to know of the machine and the versions."""
    packages = ("gradless", "jax", "jaxlib", "numpy", "optax", "safetensors")
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "machine": platform.machine(),
        "devices": [f"{device.platform} {device.id}" for device in jax.devices()],
        "versions": {name: version_of(name) or "not installed" for name in packages},
    }


def _warn(words: str) -> None:
    print(f"gradless: {words}", file=sys.stderr)
