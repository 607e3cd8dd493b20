"""`gradless report` and `gradless watch` as commands."""

import json
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from gradless.cli import main
from gradless.cli.errors import Refused
from gradless.engine.plan import LARGEST
from gradless.report.again import commands


def settings_of(path):
    table = json.loads((path / "settings.json").read_text())["settings"]
    return table | {"plan": table["plan"] | {"checkpoint_every": 0}}


@pytest.mark.parametrize(
    "words",
    [
        ("train", "tiny:fit"),
        ("train", "tiny:fit", "--algorithm", "mc", "--temperature", "0.1:0.001", "--chains", 3, "--seed", 5),
        ("train", "tiny:fit", "--batch", 5, "--hold", 2, "--steps", 30, "--precision", "float64", "--n-s", "inf"),
        ("train", "tiny:fit", "--batch", "progressive:4", "--target-metric", "error <= 0.001", "--stop-when-frozen"),
        ("train", "tiny:fit", "--algorithm", "gd", "--clip", 2, "--record-every", 7, "--target-loss", 1e-9),
        ("train", "tiny:fit", "--mesh", "data=2"),
        ("train", "rosenbrock", "--x", 1.2345678901, "--steps", 20, "--sigma", 0.012345678901),
        ("train", "sine", "--width", 2, "--depth", 1, "--points", 9, "--steps", 20, "--algorithm", "mc"),
        ("sweep", "tiny:fit", "--sigma", "0.1,0.2", "--epsilon", "0,0.01", "--seeds", 2, "--n-s", 5),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_the_command_that_makes_a_run_again_makes_the_same_run(cli, tmp_path, words):
    cli(*words, "--run", "first", "--quiet")
    again = commands("first", json.loads((tmp_path / "first" / "settings.json").read_text())["settings"])[0]
    program, *rest = shlex.split(again["command"])
    assert program == "gradless"
    cli(*rest, "--run", "second", "--quiet")
    assert settings_of(tmp_path / "second") == settings_of(tmp_path / "first")
    rows = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("first", "second")]
    assert [json.loads(row)["loss"] for row in rows[0]] == [json.loads(row)["loss"] for row in rows[1]]


def test_the_command_that_goes_on_is_the_right_one(cli, tmp_path):
    cli("train", "tiny:fit", "--run", "a run", "--quiet")
    settings = json.loads((tmp_path / "a run" / "settings.json").read_text())["settings"]
    _, resume, more = commands("a run", settings)
    assert resume["command"] == "gradless resume 'a run' --trust"
    assert "--trust runs the code of the module tiny" in resume["words"]
    cli(*shlex.split(more["command"])[1:], "--quiet")
    assert json.loads((tmp_path / "a run" / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 80


def test_a_run_that_ends_by_the_clock_is_offered_more_time():
    plan = {"steps": LARGEST, "time_budget": 5400.0}
    *_, more = commands("run", {"problem": "digits", "algorithm": {"name": "amc"}, "plan": plan})
    assert more == {"words": "Go on for more time", "command": "gradless resume run --time 5400"}
    for budget in (None, "$(reboot)", [1], True, float("nan")):
        *_, more = commands("run", {"problem": "digits", "plan": plan | {"time_budget": budget}})
        assert more["command"] == "gradless resume run --time 3600"


def test_a_temperature_that_is_a_function_is_no_flag():
    settings = {"problem": "digits", "algorithm": {"name": "mc", "temperature": "mine:cool"}, "plan": {"steps": 5}}
    assert commands("run", settings)[0]["command"] == ""


def test_a_run_whose_data_are_divided_is_made_again_with_them_divided_alike():
    settings = {"problem": "digits", "algorithm": {"name": "mc"}, "plan": {"steps": 5, "shards": 2}}
    assert commands("run", settings)[0]["command"].endswith(" --mesh data=2")
    assert "--mesh" not in commands("run", settings | {"plan": {"steps": 5, "shards": 1}})[0]["command"]


def test_settings_that_are_no_flags_are_not_passed_off_as_such():
    settings = {"problem": "digits", "algorithm": {"name": "amc", "sigma": [0.1, 0.2]}, "plan": {"steps": 5}}
    assert commands("run", settings)[0]["command"] == ""
    assert "gl.resume('run', loss=..., params=..., data=...)" in commands("run", {})[0]["command"]


def test_an_annealed_run_that_went_on_is_not_made_again_by_a_slower_cooling():
    anneal = {"name": "anneal", "start": 0.1, "end": 0.001, "steps": 40.0}
    settings = {"problem": "digits", "algorithm": {"name": "mc", "temperature": anneal}, "plan": {"steps": 40}}
    assert "--temperature 0.1:0.001" in commands("run", settings)[0]["command"]
    assert commands("run", settings | {"plan": {"steps": 80}})[0]["command"] == ""


def test_the_command_that_goes_on_with_an_outside_program_is_not_refused():
    again = commands("a run", {"optimize": {}})[0]
    assert again["command"] == "gradless optimize --resume --trust --run 'a run'"
    assert "--trust runs the program" in again["words"]


def test_how_many_chains_are_copied_is_said_again():
    plan = {"steps": 5, "chains": [0, 1, 2, 3], "select_every": 2, "select_fraction": 0.5}
    settings = {"problem": "digits", "algorithm": {"name": "amc"}, "plan": plan}
    assert "--select-every 2" in commands("run", settings)[0]["command"]
    assert "--select-fraction 0.5" in commands("run", settings)[0]["command"]
    settings["plan"] = plan | {"select_every": None}
    assert "--select" not in commands("run", settings)[0]["command"]


def test_one_run_has_its_page_in_its_folder_and_several_have_it_here(cli, refusal, tmp_path):
    for name in ("one", "two"):
        cli("train", "tiny:fit", "--run", f"runs/{name}", "--quiet")
    assert cli("report", "runs/one").stdout == "report runs/one/report.html\n"
    assert cli("report", "runs/one", "runs/two").stdout == "report report.html\n"
    assert "2 runs compared" in (tmp_path / "report.html").read_text()
    assert cli("report", "runs", "-o", "all.html").stdout == "report all.html\n"
    (tmp_path / "mine.html").write_text("mine")
    assert "is no report of gradless" in refusal("report", "runs/one", "-o", "mine.html")
    cli("report", "runs/one", "-o", "mine.html", "--overwrite")
    assert "is not a folder" in refusal("report", "nowhere")
    assert "holds no gradless run" in refusal("report", "runs/one/checkpoints")
    assert "RUN" in refusal("report")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_report_that_cannot_tell_where_it_is_says_so_in_one_line(cli, monkeypatch):
    cli("train", "tiny:fit", "--run", "run", "--quiet")
    full = open("/dev/full", "w")  # noqa: SIM115 - what waits in it cannot be written when it is closed
    monkeypatch.setattr(sys, "stdout", full)
    with pytest.raises(Refused, match="No space left on device"):
        main(["report", "run"], standalone_mode=False)
    with pytest.raises(OSError, match="No space left on device"):
        full.close()


def test_a_damaged_run_in_a_folder_is_left_out_and_told(cli, refusal, tmp_path):
    for name in ("one", "two", "three"):
        cli("train", "tiny:fit", "--run", f"runs/{name}", "--quiet")
    (tmp_path / "runs" / "two" / "settings.json").write_text("{")
    told = cli("report", "runs", "-o", "all.html")
    assert "left out: runs/two/settings.json is not JSON" in told.stderr
    assert "2 runs compared" in (tmp_path / "all.html").read_text()
    assert "is not JSON" in refusal("report", "runs/one", "runs/two")  # it was asked for by name


def test_a_page_in_a_run_does_not_keep_the_run_from_being_overwritten(cli, tmp_path):
    cli("train", "tiny:fit", "--run", "run", "--quiet")
    cli("report", "run")
    cli("train", "tiny:fit", "--run", "run", "--quiet", "--overwrite")
    assert not (tmp_path / "run" / "report.html").exists()


def test_watch_refuses_what_is_no_run_and_a_port_that_is_none(refusal):
    assert "is not a folder" in refusal("watch", "nowhere")
    assert "0<=x<=65535" in refusal("watch", ".", "--port", 99999)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_watch_tells_its_address_and_ends_cleanly_while_a_browser_listens(cli, number, code):
    cli("train", "tiny:fit", "--run", "run", "--quiet")
    words = [sys.executable, "-m", "gradless", "watch", "run"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = re.fullmatch(
            r"watching run at (http://127.0.0.1:\d+/) \(Ctrl-C ends it\)\n", process.stdout.readline()
        )
        with urllib.request.urlopen(f"{address[1]}events", timeout=20) as stream:
            while not stream.readline().startswith(b"data: "):
                pass
            process.send_signal(number)
            out, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert (out, err) == ("", "stopped\n")
