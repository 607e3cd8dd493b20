"""Named problems trained and recorded, gone on with later, and replayed."""

from .going_on import reopen, resume
from .replay import Rebuilt, named_parameters, rebuild, standing
from .settings import stored_plan, stored_problem
from .starting import parse_batch, start_problem, tune_problem

__all__ = [
    "Rebuilt",
    "named_parameters",
    "parse_batch",
    "rebuild",
    "reopen",
    "resume",
    "standing",
    "start_problem",
    "stored_plan",
    "stored_problem",
    "tune_problem",
]
