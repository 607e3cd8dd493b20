"""The README and the docs say nothing that does not work: Python runs, commands parse, links lead somewhere."""

import importlib
import inspect
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

import gradless
from gradless.cli import main
from gradless.kernels import ALGORITHMS
from gradless.problem import Problem
from gradless.runs import named_parameters, rebuild

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


KERNEL = ROOT / "docs" / "your-own-kernel.md"  # has a test of its own
WITH_PYTHON = [page for page in PAGES if blocks(page, "python") and page != KERNEL]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    """From top to bottom, as a reader would type it, in a folder that takes what it writes."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for number, block in enumerate(blocks(page, "python")):
        exec(compile(block, f"{page.name}, block {number}", "exec"), names)  # noqa: S102 (our own pages)


def test_there_are_blocks_to_run():
    assert sum(len(blocks(page, "python")) for page in PAGES) >= 15


def commands(page):
    """Every line of the sh blocks of a page, and what stands in backticks and begins with gradless, as words."""
    lines = [line for block in blocks(page, "sh") for line in block.replace("\\\n", " ").splitlines()]
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    lines += [span for span in re.findall(r"`([^`]+)`", text) if span.startswith("gradless ")]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


STAND_INS = {"PROBLEM": "digits", "module:object": "digits", "N": "3", "RUN": "runs/mine", "DIR": "runs/mine"}


def check_gradless(words):
    """Parse a command as the command line would, without running it: its name, its options and their values."""
    name, *words = [STAND_INS.get(word, word) for word in words if word != "..."]
    if name.startswith("-"):
        return
    command = main.get_command(None, name)
    assert command is not None, f"there is no command {name!r}"
    try:
        command.make_context(name, words)
    except (click.MissingParameter, click.exceptions.Exit):  # `gradless sweep` by itself; --help
        pass
    except click.BadOptionUsage as error:  # `gradless optimize --average` names an option without a value
        if "requires an argument" not in error.message:
            raise


def check_command(words):
    if words[0] == "gradless":
        check_gradless(words[1:])
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), words[1]
    elif words[0] == "pip":
        extras = [one for word in words for one in re.findall(r"^(?:gradless|\.)\[([\w,]+)\]$", word)]
        assert {name for one in extras for name in one.split(",")} <= EXTRAS.keys()
    elif words[:2] == ["python", "-m"]:
        name = words[2].replace(".", "/")
        assert any((ROOT / place / f"{name}{end}").exists() for place in ("", "src") for end in (".py", "/__main__.py"))
    elif words[0] == "python":
        assert (ROOT / words[1]).exists()
    else:
        assert words[0] in ("tensorboard", "git", "cd"), f"{words[0]} is no command that this test can check"


@each_page
def test_the_commands_of_a_page_exist_with_these_options(page, tmp_path, monkeypatch):
    if page.name == "your-own-problem.md":
        (tmp_path / "mine.py").write_text(blocks(page, "python")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for words in commands(page):
        try:
            check_command(words)
        except (click.ClickException, AssertionError) as error:
            pytest.fail(f"{' '.join(words)}: {error}")


def test_wrong_commands_are_noticed():
    for words in ("trian digits", "train digits --sigmas 1", "train digits --depth 3", "train digits --steps many"):
        with pytest.raises((click.ClickException, AssertionError)):
            check_command(["gradless", *words.split()])
    for words in (
        "make nothing",
        "pip install gradless[all]",
        "pip install .[all]",
        "python -m bench.nothing",
        "rm -r x",
    ):
        with pytest.raises(AssertionError):
            check_command(words.split())


def test_the_problem_of_the_docs_trains_by_name(tmp_path):
    """The page says: put this into mine.py, then gradless train mine:parity."""
    (tmp_path / "mine.py").write_text(blocks(ROOT / "docs" / "your-own-problem.md", "python")[0])
    command = [sys.executable, "-m", "gradless", "train", "mine:parity", "--bits", "4", "--target-loss", "0", "--quiet"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "accuracy 1" in done.stdout


def test_the_kernel_of_the_docs_serves_everything(tmp_path, monkeypatch):
    """The page says that a kernel can be recorded, gone on with, evaluated ahead, and told losses from outside."""
    names = {}
    (block,) = blocks(KERNEL, "python")
    exec(compile(block, "your-own-kernel.md", "exec"), names)  # noqa: S102 (our own page)
    kernel, start = names["PartialMetropolis"](sigma=0.1, part=0.5), names["jnp"].array([-2.0, 2.0])
    given = {"loss": names["valley"], "params": start}
    whole = gradless.train(kernel, **given, steps=60)
    gradless.train(kernel, **given, steps=25, run=tmp_path / "run")
    resumed = gradless.resume(tmp_path / "run", steps=60, algorithm=kernel, **given)
    assert (resumed.params == whole.params).all()
    assert 0 < whole.acceptance < 1
    monkeypatch.setitem(ALGORITHMS, "partial", names["PartialMetropolis"])
    replayed = rebuild(tmp_path / "run", 60, Problem(start, names["valley"]))
    assert (named_parameters(replayed)["x"] == whole.params).all()
    ahead = gradless.train(kernel, **given, steps=60, speculate=4)
    assert (ahead.params == whole.params).all()
    assert gradless.minimize(names["valley"], [-2.0, 2.0], algorithm=kernel, maxfev=50).fun < 409
    chain, alone = (gradless.AskTell([-2.0, 2.0], kernel, seed=1) for _ in range(2))
    for _ in range(20):
        chain.tell([names["valley"](x).item() for x in chain.ask(4)])
    while alone.step < chain.step:
        alone.tell([names["valley"](x).item() for x in alone.ask(1)])
    assert (chain.ask(1) == alone.ask(1)).all()
    with pytest.raises(ValueError, match="part must be above 0 and at most 1, got 2"):
        names["PartialMetropolis"](part=2)


@each_page
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@each_page
def test_links_to_lines_of_code_have_the_right_number(page, extension):
    """`make format` sets them right."""
    assert extension("sources").renumbered(page.read_text()) == page.read_text()


def test_a_link_to_a_line_that_is_not_there_is_noticed(extension):
    sources = extension("sources")
    code = "x = 1\nclass A:\n    y: int = 2\n\n    def f(self):\n        # Step 3. Done\n        pass\n"
    assert [sources.line_of(name, code) for name in ("x", "A", "A.y", "A.f", "Step 3.")] == [1, 2, 3, 5, 6]
    for gone in ("z", "A.g", "f", "Step 4."):
        with pytest.raises(LookupError):
            sources.line_of(gone, code)
    wrong = "[`AMC.propose`](../src/gradless/kernels/amc.py#L1)"
    assert sources.renumbered(wrong) != wrong


PUBLIC = [
    (module, name)
    for module in ("gradless", "gradless.pytorch", "gradless.sklearn")
    for name in importlib.import_module(module).__all__
]


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_every_public_name_is_documented_with_its_parameters(module, name, extension):
    page = (ROOT / "docs" / "api.md").read_text()
    assert re.search(rf"^\.\. auto(function|class):: {module}\.{name}$", page, re.MULTILINE)
    thing, docstrings = getattr(importlib.import_module(module), name), extension("docstrings")
    explained = docstrings.parameters(inspect.getdoc(thing))
    assert set(explained) == set(docstrings.signature_names(thing))
    assert all(len(words) > 5 for words in explained.values())
    assert re.match(r"[A-Zl`]", inspect.getdoc(thing))  # a sentence first


def test_the_docs_build_without_a_warning(tmp_path):
    flags = ["-W", "--keep-going", "-n", "-q", "-d", tmp_path / "trees"]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *flags, ROOT / "docs", tmp_path / "site"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    api = (tmp_path / "site" / "api.html").read_text()
    assert all(f'id="{module}.{name}"' in api for module, name in PUBLIC)
    amc = (tmp_path / "site" / "src/gradless/kernels/amc.html").read_text()
    (anchor,) = re.findall(
        r'href="src/gradless/kernels/amc.html#(L\d+)"><code>AMC.propose',
        (tmp_path / "site" / "notation.html").read_text(),
    )
    assert f'id="{anchor}"' in amc
