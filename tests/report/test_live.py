"""The live page: what it answers, what it refuses, and that it follows a run through everything."""

import http.client
import json
import os
import shutil
import socket
import threading
import time

import pytest

from gradless.records import Metrics, RunDirectory, RunError
from gradless.report.live import LiveServer

PATIENCE = 60.0  # seconds, on a busy machine


@pytest.fixture
def serve(monkeypatch):
    """Serve a folder until the test ends."""
    monkeypatch.setattr("gradless.report.live.POLL_SECONDS", 0.02)
    monkeypatch.setattr("gradless.report.live.BEAT_SECONDS", 1.0)
    servers = []

    def start(path):
        server = LiveServer(path)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        return server

    yield start
    for server, thread in servers:
        server.stop()
        thread.join(10)
        assert not thread.is_alive()


def ask(server, path="/", method="GET", host=None, **headers):
    """Return status, headers and body, with the path sent as it is."""
    port = server.server_address[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.putrequest(method, path, skip_host=True)
    for one in [f"127.0.0.1:{port}"] if host is None else host:
        connection.putheader("Host", one.replace("PORT", str(port)))
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read() if answer.headers["Content-Type"] != "text/event-stream; charset=utf-8" else b""
    connection.close()
    return answer.status, answer.headers, body.decode()


class Events:
    """A browser's stream of events."""

    def __init__(self, server, path="/events"):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
        self.connection.request("GET", path)
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200

    def next(self):
        """Wait for the next event; None when the stream has ended."""
        until = time.monotonic() + PATIENCE
        while line := self.answer.readline():
            assert time.monotonic() < until
            if line.startswith(b"data: "):
                return json.loads(line[6:])
        return None

    def until(self, is_wanted):
        while (found := self.next()) is not None:
            if is_wanted(found):
                return found
        raise AssertionError("the stream ended")

    def close(self):
        self.answer.close()
        self.connection.close()


def test_the_page_and_its_headers(serve, bowl_run):
    status, headers, body = ask(serve(bowl_run))
    assert status == 200
    assert "<title>bowl - gradless</title>" in body
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


def test_it_is_bound_to_this_machine_alone(serve, bowl_run):
    assert serve(bowl_run).server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["127.0.0.1:PORT", "localhost:PORT", "LOCALHOST:PORT", "[::1]:PORT"])
def test_names_of_this_machine_are_answered(serve, bowl_run, host):
    assert ask(serve(bowl_run), host=[host])[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        ["evil.example"],
        ["evil.example:PORT"],
        ["127.0.0.1"],
        ["127.0.0.1:1"],
        ["127.0.0.1.evil.example:PORT"],
        ["localhost:PORT@evil.example"],
        [""],
        [],
        ["127.0.0.1:PORT", "evil.example"],
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/", "/events"])
def test_other_hosts_are_refused(serve, bowl_run, host, path):
    status, _, body = ask(serve(bowl_run), path, host=host)
    assert status == 421
    assert "bowl" not in body


def test_other_sites_are_refused_but_a_link_may_lead_here(serve, bowl_run):
    server = serve(bowl_run)
    for site in ("cross-site", "same-site"):
        assert ask(server, "/events", Sec_Fetch_Site=site, Sec_Fetch_Mode="cors")[0] == 421
    assert ask(server, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "NONSENSE"])
def test_nothing_but_reading_is_answered(serve, bowl_run, method):
    assert ask(serve(bowl_run), method=method)[0] == 405


def test_head_has_no_body(serve, bowl_run):
    status, headers, body = ask(serve(bowl_run), method="HEAD")
    assert (status, body) == (200, "")
    assert int(headers["Content-Length"]) > 10_000
    assert ask(serve(bowl_run), "/events", method="HEAD")[0] == 200


PLACES = [
    "/../settings.json",
    "/settings.json",
    "//etc/passwd",
    "/run/bowl/settings.json",
    "/run/..%2fbowl",
    "/run/%2e%2e",
    "/run/../bowl",
    "/run/bowl%00",
    "/run/outside",
    "/run/%2Fetc",
    "/run/",
    "/events/nowhere",
    "/favicon.ico",
    "/%2e%2e/%2e%2e/etc/passwd",
]


@pytest.mark.parametrize("path", PLACES)
def test_there_is_nothing_outside_the_routes(serve, bowl_copy, bowl_run, path):
    root = bowl_copy.parent
    (root / "outside").symlink_to(bowl_run)
    for server in (serve(root), serve(bowl_copy)):
        assert ask(server, path)[0] == 404


def test_a_folder_lists_its_runs_and_leads_to_them(serve, bowl_copy):
    root = bowl_copy.parent
    shutil.copytree(bowl_copy, root / "a b&<i>")
    shutil.copytree(bowl_copy, root / "compare" / "mc")
    (root / "broken").mkdir()
    (root / "broken" / "settings.json").write_text("{")
    (root / "outside").symlink_to(bowl_copy)
    server = serve(root)
    rows = {row["name"]: row for row in Events(server).next()["index"]}
    assert rows.keys() == {"bowl", "a b&<i>", "compare/mc", "broken"}
    assert (rows["bowl"]["step"], rows["bowl"]["state"], rows["bowl"]["algorithm"]) == (60, "ended", "aMC")
    assert rows["broken"]["state"] == "damaged"
    assert ask(server)[0] == 200
    for name, row in rows.items():
        status, _, body = ask(server, row["href"])
        assert status == 200
        assert "<i>" not in body
        assert (name == "broken") == ("No run" in body)
    events = Events(server, rows["compare/mc"]["href"].replace("/run/", "/events/"))
    assert events.next()["runs"][0]["name"] == "mc"


def test_the_list_follows_the_folder(serve, bowl_copy):
    events = Events(serve(bowl_copy.parent))
    assert len(events.next()["index"]) == 1
    shutil.copytree(bowl_copy, bowl_copy.parent / "another")
    assert len(events.until(lambda data: len(data["index"]) == 2)["index"]) == 2
    with RunDirectory.resume(bowl_copy):
        events.until(lambda data: any(row["state"] == "running" for row in data["index"]))


def test_events_follow_a_run_that_goes_on_is_half_written_deleted_and_comes_back(serve, bowl_copy):
    events = Events(serve(bowl_copy))
    first = events.next()["runs"][0]
    assert (first["step"], first["state"]) == (60, "ended")
    row = list(Metrics(bowl_copy / "metrics.jsonl").rows())[-1]
    with RunDirectory.resume(bowl_copy):
        Metrics(bowl_copy / "metrics.jsonl").append([row | {"step": 70, "loss": 0.001}])
        seen = events.until(lambda data: data["runs"][0]["step"] == 70)["runs"][0]
        assert seen["state"] == "running"
        assert seen["loss"] == "0.001"
    with (bowl_copy / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step":80,')
    assert events.next()["runs"][0]["step"] == 70
    aside = bowl_copy.with_name("aside")
    bowl_copy.rename(aside)
    assert "is not a folder" in events.until(lambda data: "gone" in data)["gone"]
    aside.rename(bowl_copy)
    assert events.until(lambda data: "runs" in data)["runs"][0]["step"] == 70


def test_a_run_that_nobody_changes_is_not_read_again(serve, bowl_run, monkeypatch):
    server = serve(bowl_run)
    events = Events(server)
    events.next()
    server.home.view.asking.join(60)
    ask(server)  # what the nets say is in by now
    monkeypatch.setattr(server.home.view, "facts", pytest.fail)
    assert ask(server)[0] == 200


def test_a_stream_ends_when_the_server_does(bowl_run):
    server = LiveServer(bowl_run)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    streams = [Events(server), Events(server)]
    for events in streams:
        events.next()
    server.stop()
    thread.join(10)
    for events in streams:
        while events.next() is not None:
            pass


def test_listeners_are_limited_and_those_who_left_do_not_count(serve, bowl_run, monkeypatch):
    monkeypatch.setattr("gradless.report.live.MAX_LISTENERS", 2)
    monkeypatch.setattr("gradless.report.live.BEAT_SECONDS", 0.05)
    server = serve(bowl_run)
    streams = [Events(server), Events(server)]
    assert ask(server, "/events")[0] == 503
    assert ask(server)[0] == 200
    streams[0].close()
    for _ in range(200):
        if ask(server, "/events", method="HEAD")[0] == 200:
            return
        threading.Event().wait(0.02)
    raise AssertionError("the place of a listener who left is not given back")


def test_garbage_is_refused(serve, bowl_run):
    server = serve(bowl_run)
    for bytes_sent in (
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET " + b"a" * 70_000,
    ):
        with socket.create_connection(server.server_address, timeout=20) as one:
            one.sendall(bytes_sent + b"\r\n\r\n")
            one.shutdown(socket.SHUT_WR)
            assert b"bowl" not in one.recv(1000)
    assert ask(server)[0] == 200


def test_nothing_is_written(serve, bowl_copy, contents):
    before = contents(bowl_copy), os.stat(bowl_copy).st_mtime_ns
    server = serve(bowl_copy)
    ask(server)
    Events(server).next()
    assert (contents(bowl_copy), os.stat(bowl_copy).st_mtime_ns) == before


def test_a_port_that_is_taken_and_a_place_that_is_not_there(serve, bowl_run, tmp_path):
    port = serve(bowl_run).server_address[1]
    with pytest.raises(RunError, match=f"cannot listen on port {port} of 127.0.0.1: "):
        LiveServer(bowl_run, port)
    with pytest.raises(RunError, match="is not a folder"):
        LiveServer(tmp_path / "nowhere")
