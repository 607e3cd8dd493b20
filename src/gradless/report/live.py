"""The page live: a server for this machine alone that only reads, and only what its routes name.

Bound to 127.0.0.1; a request that names another host is refused, so that a web page elsewhere cannot reach it under a
name of its own (DNS rebinding). Only GET and HEAD; names of runs are looked up in the list, never made into paths.
"""

import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from gradless.records import RunError
from gradless.report.listing import is_run, runs_of
from gradless.report.page import page, policy
from gradless.report.watched import WatchedFolder, WatchedRun, event

HOSTS = ("127.0.0.1", "localhost", "[::1]")
POLL_SECONDS = 0.5
BEAT_SECONDS = 10.0  # so that a browser that has gone away is noticed
MAX_LISTENERS = 32
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
}


class Watched(Protocol):
    """What a page and its events show."""

    def data(self) -> tuple[int, dict[str, Any]]:
        """Return the data of the page and a number that grows when they change."""
        ...

    def is_busy(self) -> bool:
        """Return whether some net is being asked at this moment."""
        ...


class LiveServer(ThreadingHTTPServer):
    """Serves one run, or a folder of runs, until `stop`."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = False

    def __init__(self, path: str | Path, port: int = 0, trust: bool = False) -> None:
        path = Path(path)
        runs_of(path)  # refuses what holds no run
        self.folder = None if is_run(path) else WatchedFolder(path, trust)
        self.home: Watched = self.folder or WatchedRun(path, trust, {"live": "/events"})
        self.stopping = threading.Event()
        self.listeners = threading.BoundedSemaphore(MAX_LISTENERS)
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except OSError as error:
            raise RunError(f"cannot listen on port {port} of 127.0.0.1: {error.strerror or error}") from error

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def watched(self, path: str) -> tuple[str, Watched] | None:
        """Return the kind of answer, page or events, and what it shows; None for everything else."""
        kind, _, name = path.removeprefix("/").partition("/")
        if not name and kind in ("", "events"):
            return kind or "page", self.home
        found = (
            self.folder.run(unquote(name, errors="surrogateescape"))
            if self.folder and name and kind in ("run", "events")
            else None
        )
        return None if found is None else ("page" if kind == "run" else "events", found)

    def stop(self) -> None:
        """End every stream and the server."""
        self.stopping.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hangs up is no error of ours; everything else is shown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: LiveServer
    server_version, sys_version = "gradless", ""
    timeout = 20.0  # of reading and writing: nobody can hold a thread by being slow

    def do_GET(self) -> None:
        """Answer with a page, a stream of events, or a refusal."""
        if not self._is_for_us():
            return self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "this server answers only to 127.0.0.1 and localhost")
        found = self.server.watched(urlsplit(self.path).path)
        if found is None:
            return self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")
        kind, watched = found
        return self._send_page(watched) if kind == "page" else self._send_events(watched)

    do_HEAD = do_GET

    def _is_for_us(self) -> bool:
        """Return whether the request names this machine and this port, and comes from no other site."""
        port = self.server.server_address[1]
        hosts = self.headers.get_all("Host") or []
        is_here = len(hosts) == 1 and hosts[0].lower() in [f"{host}:{port}" for host in HOSTS]
        site, mode = self.headers.get("Sec-Fetch-Site", "none"), self.headers.get("Sec-Fetch-Mode")
        is_foreign = site not in ("none", "same-origin") and mode != "navigate"
        return is_here and not is_foreign

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is no request, or a method that could change something, in words of our own."""
        is_method = code == HTTPStatus.NOT_IMPLEMENTED
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED if is_method else HTTPStatus(code), "only GET and HEAD are answered")

    def _refuse(self, status: HTTPStatus, words: str) -> None:
        self._begin(status, "text/plain; charset=utf-8", len(words) + 1)
        self._write(f"{words}\n".encode())

    def _send_page(self, watched: Watched) -> None:
        _, data = watched.data()
        body = page(data)
        self._begin(HTTPStatus.OK, "text/html; charset=utf-8", len(body))
        self._write(body)

    def _send_events(self, watched: Watched) -> None:
        """Send the data whenever they change, until the browser or the server goes."""
        if not self.server.listeners.acquire(blocking=False):
            return self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"there are {MAX_LISTENERS} listeners already")
        try:
            self._begin(HTTPStatus.OK, "text/event-stream; charset=utf-8", None)
            if self.command != "HEAD":
                self._stream(watched)
        except OSError:
            self.close_connection = True  # the browser has gone
        finally:
            self.server.listeners.release()
        return None

    def _stream(self, watched: Watched) -> None:
        sent, quiet = -1, 0.0
        self._write(b"retry: 2000\n\n")
        while True:
            number, data = watched.data()
            if number != sent:
                self._write(event(number, data))
                sent, quiet = number, 0.0
            elif quiet >= BEAT_SECONDS:
                self._write(b": still here\n\n")
                quiet = 0.0
            quiet += POLL_SECONDS
            if self.server.stopping.wait(POLL_SECONDS):
                return

    def _begin(self, status: HTTPStatus, kind: str, length: int | None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length is not None:
            self.send_header("Content-Length", str(length))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", f"{policy(is_live=True)}; frame-ancestors 'none'")
        self.send_header("Connection", "close")
        self.end_headers()

    def _write(self, body: bytes) -> None:
        if self.command != "HEAD":
            self.wfile.write(body)
            self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal belongs to the one line with the address."""
