"""docs/results.md says what the committed data say: every claim is judged again from the files and must stand there."""

import importlib
import re
from pathlib import Path

import pytest

from gradless.experiments import FIGURES, module_of
from gradless.experiments.page import claims_as_markdown, cost_in_words

DOCS = Path(__file__).parent.parent / "docs"
FOLDERS = sorted(
    folder for scale in ("paper", "quick") for folder in (DOCS / "results" / scale).glob("*") if folder.name in FIGURES
)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_the_page_holds_what_the_data_say(folder):
    figure = importlib.import_module(module_of(folder.name))
    page = (DOCS / "results.md").read_text()
    for line in claims_as_markdown(figure.check(folder, folder.parent.name)).splitlines():
        assert line in page
    assert cost_in_words(folder) in page
    assert list(folder.glob("*.png"))


def test_every_figure_is_shown_or_named_as_missing():
    page = (DOCS / "results.md").read_text()
    missing = page.partition("and not shown:")[2].partition(".")[0]
    assert {folder.name for folder in FOLDERS} | {name for name in FIGURES if name in missing} == set(FIGURES)


def test_the_readme_quotes_the_page():
    """Every line of its table is a verdict of the page, and what it says was measured stands there word for word."""
    readme = (DOCS.parent / "README.md").read_text()
    rows = re.findall(r"^\| (\w+): [^|]* \| ([^|]*) \| (PASS|FAIL) \|$", readme, re.MULTILINE)
    assert len(rows) >= 5
    lines = (DOCS / "results.md").read_text().splitlines()
    for claim, measured, verdict in rows:
        decided = [line for line in lines if line.startswith(f"| {claim} |") and f"| {verdict} |" in line]
        assert any(measured in line for line in decided), (claim, measured)
