"""What a reproduction leaves for people: one self-contained page, and the table of claims for a document."""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

from gradless.experiments.claims import Verdict
from gradless.experiments.tables import COSTS, read_table
from gradless.records import write_atomic

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8884; }
.PASS { color: #1a7f37; } .FAIL { color: #cf222e; font-weight: bold; } .NOT { color: #9a6700; }
figure { margin: 2rem 0; } figure svg { max-width: 100%; height: auto; background: white; }
"""


def write_page(folder: Path, scale: str, figures: Sequence[str], verdicts: Sequence[Verdict]) -> Path:
    """Write the page, and the verdicts beside it as JSON for machines."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "verdicts.json", json.dumps([verdict._asdict() for verdict in verdicts], indent=2).encode())
    write_atomic(folder / "claims.md", claims_as_markdown(verdicts).encode())
    rows = "\n".join(_row(verdict) for verdict in verdicts)
    pictures = "\n".join(_picture(path, name) for name in figures for path in sorted((folder / name).glob("*.svg")))
    page = folder / "index.html"
    words = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>gradless: the paper, reproduced ({escape(scale)} scale)</title><style>{STYLE}</style></head>
<body><h1>The paper, reproduced</h1><p>Scale: {escape(scale)}.</p>
<div class="wide"><table>
<thead><tr><th>claim</th><th>says</th><th>measured</th><th>rule</th><th>verdict</th></tr></thead><tbody>{rows}</tbody></table></div>
{pictures}
</body></html>
"""
    write_atomic(page, words.encode())
    return page


def _row(verdict: Verdict) -> str:
    cells = [verdict.claim, verdict.says, verdict.measured, verdict.rule]
    note = f"<br><small>{escape(verdict.differs)}</small>" if verdict.differs else ""
    words = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr>{words}<td class="{verdict.outcome.split()[0]}">{escape(verdict.outcome)}{note}</td></tr>'


def _picture(path: Path, figure: str) -> str:
    drawing = path.read_text(encoding="utf-8", errors="replace")
    if "<svg" not in drawing or not drawing.rstrip().endswith("</svg>"):
        raise ValueError(f"{path} is damaged: draw it again with `gradless reproduce {figure} --redraw`")
    drawing = drawing[drawing.index("<svg") :]  # without the XML prologue
    caption = " ".join(filter(None, (f"{figure}.", cost_in_words(path.parent))))
    return f'<figure aria-label="{escape(figure)}">{drawing}<figcaption>{escape(caption)}</figcaption></figure>'


def cost_in_words(folder: Path) -> str:
    """Return how many chains a figure has, from which seeds, and how long they took; nothing if it kept no account."""
    if not (folder / COSTS).exists():
        return ""
    rows = read_table(folder / COSTS)
    seeds = sorted({int(row["seed"]) for row in rows})
    seconds = sum(row["seconds"] for row in rows)
    time = f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    chains, runs = sum(int(row["chains"]) for row in rows), f"{len(rows)} run{'s' * (len(rows) > 1)}"
    return f"{chains} chain{'s' * (chains > 1)} in {runs}, {which}, {time} of training."


def claims_as_markdown(verdicts: Sequence[Verdict]) -> str:
    """Return the table of claims for a document: one line per claim."""
    lines = ["| claim | says | measured | rule | verdict | where we differ |", "|---|---|---|---|---|---|"]
    for verdict in verdicts:
        cells = (verdict.claim, verdict.says, verdict.measured, verdict.rule, verdict.outcome, verdict.differs)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"
