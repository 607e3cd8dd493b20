"""Every block of Python in the README and the docs runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_python_runs(block):
    exec(compile(block, "a block of the docs", "exec"), {})  # noqa: S102 (our own pages)


def test_there_are_blocks_to_run():
    assert len(BLOCKS) >= 4


def test_the_problem_of_the_docs_trains_by_name(tmp_path):
    """The page says: put this into mine.py, then gradless train mine:parity."""
    page = (ROOT / "docs" / "your-own-problem.md").read_text()
    (tmp_path / "mine.py").write_text(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1])
    command = [sys.executable, "-m", "gradless", "train", "mine:parity", "--bits", "4", "--target-loss", "0", "--quiet"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "accuracy 1" in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target
