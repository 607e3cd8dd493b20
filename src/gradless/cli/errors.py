"""A user's mistake is one line, never a stack trace."""

import contextlib
import errno
from collections.abc import Iterator

import click


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """Turn what users can get wrong into a message and exit code 2."""
    from gradless.data.store import DataUnavailable
    from gradless.records import RunError

    try:
        yield
    except (ValueError, RunError, DataUnavailable) as error:
        raise Refused(str(error)) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM):
            raise Refused(f"cannot write {error.filename or 'the run'}: {error.strerror}") from error
        raise


class Refused(click.ClickException):
    """Wrong use: what is wrong and what to do."""

    exit_code = 2
