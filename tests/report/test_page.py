"""The page as a file: whole in itself, safe whatever a run is called, and never in place of somebody else's file."""

import base64
import hashlib
import json
import os
import re
import shutil

import pytest

from gradless.records import RunError
from gradless.report import RunView, write_report
from gradless.report.listing import find_runs, readable_runs_of, runs_of
from gradless.report.page import SCRIPTS, STYLES, asset, embedded, page

EVIL = "</script><script>alert(1)</script>&amp;\u2028\u2029<!--"


def data_of(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


@pytest.fixture
def text(bowl_run, tmp_path):
    return write_report([bowl_run], tmp_path / "report.html").read_text()


def test_the_page_holds_the_facts(text, bowl_run):
    assert data_of(text) == {"runs": [RunView(bowl_run).facts()]}
    assert "<title>bowl - gradless</title>" in text
    assert "Adaptive Monte Carlo took the loss U from 3" in text  # readable without JavaScript too


def test_nothing_in_it_comes_from_elsewhere(text):
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not a place
    assert not re.findall(r"\b(src|href)=", text)


def test_the_policy_allows_this_script_and_this_style_and_nothing_else(text):
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1]
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)[1]
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    for name, body in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "connect-src 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("name", SCRIPTS)
def test_our_scripts_never_make_html_of_text(name):
    script = asset(name)
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function(", "</"):
        assert word not in script


def test_json_between_script_tags_cannot_end_them():
    value = {"a": EVIL, "b": [float("nan"), float("inf"), 1.5], EVIL: None}
    text = embedded(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"a": EVIL, "b": [None, None, 1.5], EVIL: None}


def test_every_string_of_a_run_shows_as_text(bowl_run):
    facts = RunView(bowl_run).facts()
    evil = facts | {name: EVIL for name in ("name", "path", "problem", "algorithm", "state", "verdict")}
    evil |= {"notes": [EVIL], "settings": [[EVIL, EVIL]], "commands": [{"words": EVIL, "command": EVIL}]}
    text = page({"runs": [evil]}).decode()
    assert text.lower().count("<script") == page({"runs": [facts]}).decode().lower().count("<script") == 2
    assert "{{" not in text
    assert data_of(text)["runs"][0]["notes"] == [EVIL]


def test_marks_of_the_template_in_a_name_are_left_alone(bowl_run):
    text = page({"runs": [RunView(bowl_run).facts() | {"name": "{{script}}"}]}).decode()
    assert '<h1 id="title">{{script}}</h1>' in text


def test_a_name_that_is_no_text_makes_a_page_all_the_same(bowl_run):
    assert page({"runs": [RunView(bowl_run).facts() | {"name": "a\udcff"}]}).count(b"</html>") == 1


def test_an_older_report_is_replaced_but_nothing_else(bowl_run, tmp_path):
    out = tmp_path / "report.html"
    write_report([bowl_run], out)
    write_report([bowl_run], out)
    out.write_text("my own page")
    with pytest.raises(ValueError, match=r"exists and is no report of gradless: choose another name with -o, or give"):
        write_report([bowl_run], out)
    assert out.read_text() == "my own page"
    write_report([bowl_run], out, overwrite=True)
    assert "bowl" in out.read_text()
    with pytest.raises(ValueError, match="there is no folder"):
        write_report([bowl_run], tmp_path / "nowhere" / "report.html")
    with pytest.raises(ValueError, match="is a folder"):
        write_report([bowl_run], tmp_path)


def test_a_link_is_replaced_and_what_it_points_to_is_not_touched(bowl_run, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "report.html").symlink_to(victim)
    write_report([bowl_run], tmp_path / "report.html", overwrite=True)
    assert victim.read_text() == "precious"


def test_a_pipe_of_that_name_is_refused_and_not_waited_for(bowl_run, tmp_path):
    os.mkfifo(tmp_path / "report.html")
    with pytest.raises(ValueError, match="is no report of gradless"):
        write_report([bowl_run], tmp_path / "report.html")


def test_a_page_of_a_long_run_stays_small(bowl_copy, tmp_path):
    row = json.loads((bowl_copy / "metrics.jsonl").read_text().splitlines()[-1])
    rows = [json.dumps(row | {"step": step, "loss": 1 + step % 977}) for step in range(20_000)]
    (bowl_copy / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    path = write_report([bowl_copy], tmp_path / "report.html")
    assert path.stat().st_size < 150_000
    loss = data_of(path.read_text())["runs"][0]["curves"]["series"][0]["y"]
    assert len(loss) <= 1001
    assert int(max(loss)) == 977


def test_a_folder_of_runs_stands_for_all_of_them_but_no_link_is_followed(bowl_run, tmp_path):
    root = tmp_path / "runs"
    for name in ("b", "a", "compare/mc"):
        shutil.copytree(bowl_run, root / name)
    (root / "elsewhere").symlink_to(bowl_run)
    (root / "not a run").mkdir()
    assert [path.relative_to(root).as_posix() for path in find_runs(root)] == ["a", "b", "compare/mc"]
    assert runs_of(root / "a") == [root / "a"]
    with pytest.raises(RunError, match="holds no gradless run"):
        runs_of(root / "not a run")


def test_runs_that_cannot_be_read_are_left_out_and_one_at_least_must_remain(bowl_run, tmp_path):
    root, told = tmp_path / "runs", []
    for name in ("a", "b"):
        shutil.copytree(bowl_run, root / name)
    (root / "a" / "metrics.jsonl").unlink()
    assert readable_runs_of(root, told.append) == [root / "b"]
    assert [words.startswith(f"left out: {root / 'a'} lacks metrics.jsonl") for words in told] == [True]
    (root / "b" / "settings.json").write_text("[]")
    with pytest.raises(RunError, match="holds no run that can be read"):
        readable_runs_of(root, told.append)


def test_a_wheel_holds_the_files_of_the_page():
    for name in (*SCRIPTS, *STYLES, "page.html"):
        assert asset(name)
