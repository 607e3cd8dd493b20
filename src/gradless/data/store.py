"""Finding files of known SHA-256: in the user's folder, else in the cache, else from the first source that has them."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gradless.data.sources import File, Progress, Source, SourceFailed, check, read_from_folder


class DataUnavailable(RuntimeError):
    """No folder, cache or source had the files; the message names every way to provide them."""


class Report(NamedTuple):
    """Where the files are and how they got there."""

    path: Path
    """The folder that holds all of them."""
    source: str
    """Where they came from in this call: "data_dir", "cache", or the names of the sources that were downloaded from."""
    num_bytes: int
    """Size of the raw files together."""
    downloaded: tuple[str, ...]
    """The files that were fetched in this call."""
    failures: tuple[str, ...]
    """What was tried in vain before, one line each."""


def obtain(
    files: Sequence[File], data_dir: Path | None, cache: Path, sources: Sequence[Source], progress: Progress | None
) -> tuple[dict[str, bytes], Report]:
    """Returns the checked bytes of every file, by name, and a report; raises `DataUnavailable` with all failures.

    The user's folder counts if all files in it are right; nothing in it is ever changed. In the cache each file counts
    alone, and only what is missing is fetched.
    """
    failures: list[str] = []
    if data_dir is not None:
        found, reasons = _read_folder(data_dir, files)
        if not reasons:
            return found, _report(data_dir, "data_dir", found, [], failures)
        failures += [f"data_dir {data_dir}: {reason}" for reason in reasons]

    found, reasons = _read_folder(cache, files)
    if not reasons:
        return found, _report(cache, "cache", found, [], failures)
    failures.append(f"cache {cache}: {'; '.join(reasons) if cache.is_dir() else 'nothing there yet'}")

    given_by: dict[str, str] = {}
    for source in sources:
        missing = [file for file in files if file.name not in found]
        if not missing:
            break
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".incoming-", dir=cache) as scratch:
                for file, raw in source.read(missing, Path(scratch), progress or _ignore):
                    check(file, raw)
                    write_whole(cache / file.name, raw)
                    found[file.name], given_by[file.name] = raw, source.name
        except SourceFailed as error:
            failures.append(f"{source.name}: {error}")
        except OSError as error:  # a full disk or a folder that may not be written to
            failures.append(f"{source.name}: cannot write to the cache: {error}")
    if any(file.name not in found for file in files):
        raise DataUnavailable("\n".join(failures))
    names = ", ".join(dict.fromkeys(given_by.values()))
    return found, _report(cache, names, found, list(given_by), failures)


def write_whole(path: Path, raw: bytes) -> None:
    """Writes a file so that at every moment there is the old one or the new one, never a part."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)  # mkstemp's 0600 would lock others out of a shared cache
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _read_folder(folder: Path, files: Sequence[File]) -> tuple[dict[str, bytes], list[str]]:
    found, reasons = {}, []
    for file in files:
        try:
            found[file.name] = read_from_folder(folder, file)
        except SourceFailed as error:
            reasons.append(str(error))
    return found, reasons


def _report(path: Path, source: str, found: dict[str, bytes], downloaded: list[str], failures: list[str]) -> Report:
    num_bytes = sum(len(raw) for raw in found.values())
    return Report(path, source, num_bytes, tuple(downloaded), tuple(failures))


def _ignore(done_bytes: int, total_bytes: int, source: str) -> None: ...
