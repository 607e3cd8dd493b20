"""The one error of the run directory: what is wrong and what to do, in one line."""


class RunError(Exception):
    """A run cannot be created, read or gone on with; the message is one line for the user."""


class DamagedError(RunError):
    """A file of the run does not hold what was once written to it."""


class NewerFormatError(RunError):
    """A file was written by a newer gradless: it is not damaged, but this version cannot read it."""
