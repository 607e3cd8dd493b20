"""The files of a run: written so that no crash loses what was on the disk, read so that no file is trusted. No JAX."""

from .accepted import AcceptedLog, Cover
from .checkpoints import Checkpoint, check_meta, list_checkpoints, load, load_newest, save
from .durable import write_atomic
from .errors import DamagedError, NewerFormatError, RunError
from .events import EVENTS, event_files
from .lock import RunLock, living_holder, read_holder
from .metrics import COLUMNS, Metrics
from .recorder import Recorder
from .run_directory import RunDirectory, has_checkpoint, how_to_go_on, next_run_path
from .shell import in_shell
from .tail import Tail

__all__ = [
    "COLUMNS",
    "EVENTS",
    "AcceptedLog",
    "Checkpoint",
    "Cover",
    "DamagedError",
    "Metrics",
    "NewerFormatError",
    "Recorder",
    "RunDirectory",
    "RunError",
    "RunLock",
    "Tail",
    "check_meta",
    "event_files",
    "has_checkpoint",
    "how_to_go_on",
    "in_shell",
    "list_checkpoints",
    "living_holder",
    "load",
    "load_newest",
    "next_run_path",
    "read_holder",
    "save",
    "write_atomic",
]
