"""The tables of results.md, from the data of a reproduction.

`python docs/extension/results.py reproduction/paper F6 F7` copies the data and the pictures of these figures to
docs/results/paper, and writes their claims into the page. The words around the tables stay as they are. Runs that are
not over yet go along, so that they can be gone on with on another machine.
"""

import importlib
import re
import shutil
import sys
from pathlib import Path

from gradless.experiments import FIGURES, module_of
from gradless.experiments.page import claims_as_markdown, cost_in_words
from gradless.experiments.workshop import is_finished
from gradless.records import has_checkpoint, list_checkpoints

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "results.md"
DATA = DOCS / "results"


def publish(source: Path) -> None:
    """Show the data of one figure, in a folder such as reproduction/paper/F6, in place of what is shown of it."""
    figure, scale = source.name, source.parent.name
    shown = DATA / scale / figure
    importlib.import_module(module_of(figure)).draw(source)
    if source.resolve() != shown.resolve():
        for earlier in DATA.glob(f"*/{figure}"):
            shutil.rmtree(earlier)
        shown.mkdir(parents=True)
        for path in (path for ending in ("csv", "npy", "png") for path in source.glob(f"*.{ending}")):
            shutil.copy(path, shown)
        for run in filter(_is_unfinished, (source / "runs").glob("*")):
            copy_run(run, shown / "runs" / run.name)
        (shown.parent / "scale.txt").write_text(f"{scale}\n")  # as in the folder of a reproduction
    for drawing in shown.glob("*.svg"):  # of a figure that is drawn where it is shown; the page has the PNG
        drawing.unlink()
    PAGE.write_text(with_figure(PAGE.read_text(), shown))


def _is_unfinished(run: Path) -> bool:
    return has_checkpoint(run) and not is_finished(run)


def copy_run(run: Path, to: Path) -> None:
    """Copy what it takes to go on with a run: all of it but the lock and the checkpoints before the last."""
    _, *older = list_checkpoints(run / "checkpoints")
    shutil.copytree(run, to, ignore=shutil.ignore_patterns("run.lock", *(path.name for path in older)))


def with_figure(page: str, shown: Path) -> str:
    """Return the page with the claims, the cost and the pictures of one figure as its data have them."""
    figure, scale = shown.name, shown.parent.name
    module = importlib.import_module(module_of(figure))
    before, heading, rest = page.partition(f"## {figure}: {module.TITLE}\n")
    section, next_heading, after = rest.partition("\n## ")
    words = section.partition("|---|---|---|---|---|---|\n")[2]
    words = "".join(line for line in words.splitlines(keepends=True) if not line.startswith(("|", "![")))
    pictures = [f"![{module.TITLE}](results/{scale}/{figure}/{path.name})" for path in sorted(shown.glob("*.png"))]
    parts = [
        f"{scale.capitalize()} scale. {cost_in_words(shown)}".strip(),
        claims_as_markdown(module.check(shown, scale)).strip(),
        re.sub(r"\n{3,}", "\n\n", words).strip(),
        *pictures,
    ]
    if not heading:
        raise LookupError(f"the page has no section {figure}")
    return before + heading + "\n" + "\n\n".join(filter(None, parts)) + "\n" + next_heading + after


if __name__ == "__main__":
    folder, *figures = sys.argv[1:]
    for figure in figures or FIGURES:
        publish(Path(folder) / figure)
        print(f"{figure}: {DATA / Path(folder).name / figure}")
