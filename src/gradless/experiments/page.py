"""One self-contained page: the table of claims and the figures, to be opened from disk."""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

from gradless.experiments.claims import Verdict

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
    (folder / "verdicts.json").write_text(json.dumps([verdict._asdict() for verdict in verdicts], indent=2))
    rows = "\n".join(_row(verdict) for verdict in verdicts)
    pictures = "\n".join(_picture(path, name) for name in figures for path in sorted((folder / name).glob("*.svg")))
    page = folder / "index.html"
    page.write_text(
        f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>gradless: the paper, reproduced ({escape(scale)} scale)</title><style>{STYLE}</style></head>
<body><h1>The paper, reproduced</h1><p>Scale: {escape(scale)}.</p>
<div class="wide"><table>
<thead><tr><th>claim</th><th>says</th><th>measured</th><th>rule</th><th>verdict</th></tr></thead><tbody>{rows}</tbody></table></div>
{pictures}
</body></html>
"""
    )
    return page


def _row(verdict: Verdict) -> str:
    cells = [verdict.claim, verdict.says, verdict.measured, verdict.rule]
    note = f"<br><small>{escape(verdict.differs)}</small>" if verdict.differs else ""
    words = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr>{words}<td class="{verdict.outcome.split()[0]}">{escape(verdict.outcome)}{note}</td></tr>'


def _picture(path: Path, figure: str) -> str:
    drawing = path.read_text()
    drawing = drawing[drawing.index("<svg") :]  # without the XML prologue
    return f'<figure aria-label="{escape(figure)}">{drawing}<figcaption>{escape(path.stem)}</figcaption></figure>'
