"""checkpoints/<step>.safetensors: the whole state of a run at a step, one file each, the last three kept.

The text beside the tensors holds the format version, the step and the caller's `meta` as JSON (settings, PRNG name,
JAX version, ...).
"""

import contextlib
import errno
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from . import disk, durable, json_text, tensor_file
from .errors import DamagedError, NewerFormatError, RunError
from .tensor_file import Tensor

FORMAT = "gradless checkpoint"
FORMAT_VERSION = 1
NUM_KEPT = 3
_ROOM_FOR_NAMES = 1 << 12  # a session's state has some twenty tensors

_NAME = re.compile(r"(0|[1-9][0-9]{0,17})\.safetensors")


class Checkpoint(NamedTuple):
    """The state of a run after `step` steps."""

    step: int
    tensors: dict[str, Tensor]
    meta: dict[str, Any]
    path: Path


def save(folder: Path, step: int, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Path:
    """Write a checkpoint durably, and only then delete all but the last three."""
    path = folder / f"{int(step)}.safetensors"
    if not _NAME.fullmatch(path.name):
        raise ValueError(f"step must be from 0 to 10^18 - 1, got {step}")
    tensor_file.write(path, tensors, _text(step, meta))
    for old in list_checkpoints(folder)[NUM_KEPT:]:
        if old != path:
            with contextlib.suppress(OSError):  # the new one is safe; the next save tries again
                disk.unlink(old)
    return path


def check_meta(meta: Mapping[str, Any]) -> None:
    """Refuse what would not fit into a checkpoint beside the names of its tensors."""
    tensor_file.check_text({**_text(0, meta), "names": " " * _ROOM_FOR_NAMES})


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a folder, newest first; other files are not looked at."""
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.is_file()]
    return sorted(found, key=lambda path: int(path.stem), reverse=True)


def load(path: Path) -> Checkpoint:
    """Read one checkpoint, all of it checked; a DamagedError or NewerFormatError says what is wrong with it."""
    try:
        # The checksum comes before the version, so that a damaged version number is not taken for a newer format;
        # every later format must therefore keep the layout and the checksum of tensor_file.py.
        file = tensor_file.read(path)
        text = file.text
        _check_format(path, text)
        tensors = file.tensors()
        meta = json_text.loads(text["meta"])
        if text["step"] != path.stem:
            raise DamagedError(f"it says it is of step {text['step'][:20]}")
        if not isinstance(meta, dict):
            raise DamagedError("its meta is not a table")
    except (KeyError, ValueError) as error:
        raise DamagedError(f"{path} is damaged: it lacks or garbles {str(error)[:80]}") from None
    except DamagedError as error:
        raise DamagedError(f"{path} is damaged: {error}") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        kind = DamagedError if error.errno == errno.EIO else RunError
        raise kind(f"{path} cannot be read: {error.strerror}") from error
    return Checkpoint(int(path.stem), tensors, meta, path)


def load_newest(folder: Path, warn: Callable[[str], None], set_aside: bool = True) -> Checkpoint:
    """Read the newest undamaged checkpoint; damaged newer ones are renamed to `<name>.damaged` and warned of.

    If none can be read it is a RunError and nothing is renamed. A reader without the run's lock (a report, a replay)
    passes `set_aside=False`.
    """
    damaged: dict[Path, DamagedError] = {}
    skipped: set[Path] = set()
    while paths := [path for path in list_checkpoints(folder) if path not in skipped]:
        skipped.add(paths[0])
        try:
            checkpoint = load(paths[0])
        except DamagedError as error:
            damaged[paths[0]] = error
        except FileNotFoundError:
            pass  # deleted since the listing, by a run that goes on: list again
        else:
            for path, reason in damaged.items():
                warn(f"{reason}; {_put_away(path, set_aside)}; using {checkpoint.path.name}")
            return checkpoint
    if damaged:
        words = "; ".join(str(reason) for reason in damaged.values())
        raise RunError(f"no readable checkpoint in {folder} ({words}): restore one from a copy, nothing was changed")
    again = "start it again with --overwrite (overwrite=True)"
    raise RunError(f"no checkpoint in {folder}: the run ended before its first one, {again}")


def _text(step: int, meta: Mapping[str, Any]) -> dict[str, str]:
    return {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "step": str(int(step)),
        "meta": json_text.dumps(meta),
    }


def _check_format(path: Path, text: dict[str, str]) -> None:
    version = text["format_version"]
    if text["format"] != FORMAT or not re.fullmatch(r"[1-9][0-9]{0,8}", version):
        raise DamagedError("it is not a gradless checkpoint")
    if int(version) > FORMAT_VERSION:
        words = f"{path} has checkpoint format {version}, this gradless reads up to {FORMAT_VERSION}"
        raise NewerFormatError(f"{words}: use a newer gradless")


def _put_away(path: Path, set_aside: bool) -> str:
    if not set_aside:
        return "left where it is"
    try:
        return f"renamed to {durable.set_aside(path).name}"
    except OSError as error:
        return f"it could not be renamed ({error.strerror})"
