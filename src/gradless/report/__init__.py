"""A run as a page that a browser opens from disk, and the same page live. No string of a run is ever taken as HTML."""

from .page import write_report
from .run_view import RunView

__all__ = ["RunView", "write_report"]
