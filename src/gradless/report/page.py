"""One self-contained page: the facts as JSON inside it, drawn by our own script, with no way out to any network."""

import base64
import hashlib
import html
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from gradless.records import RunError, json_text, write_atomic
from gradless.report.run_view import RunView

GENERATOR = "gradless report"
SCRIPTS = ("scales.js", "lines.js", "chart.js", "curves.js", "sections.js", "page.js")
STYLES = ("base.css", "chart.css", "parts.css", "media.css")
MARK_BYTES = 4096  # of the beginning of a file, in which a page of ours says so


def write_report(runs: list[str | Path], out: str | Path, trust: bool = False, overwrite: bool = False) -> Path:
    """Write the page of one run, or of several compared; a file that is no report of ours is not replaced."""
    out = Path(out)
    check_free(out, overwrite)
    facts = [RunView(run, trust).facts() for run in runs]
    try:
        write_atomic(out, page({"runs": facts}))
    except OSError as error:
        raise RunError(f"cannot write {out}: {error.strerror or error}") from error
    return out


def check_free(out: Path, overwrite: bool) -> None:
    """Refuse a place that cannot be written, or where something else lies that nobody said to replace."""
    if not out.parent.is_dir():
        raise ValueError(f"{out} cannot be written: there is no folder {out.parent}")
    if out.is_dir():
        raise ValueError(f"{out} is a folder: give the name of a file")
    if out.exists() and not overwrite and not is_ours(out):
        raise ValueError(f"{out} exists and is no report of gradless: choose another name with -o, or give --overwrite")


def is_ours(path: Path) -> bool:
    """Return whether a file says at its beginning that gradless wrote it; a pipe or a device is never asked."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return f'<meta name="generator" content="{GENERATOR}">'.encode() in file.read(MARK_BYTES)


def page(data: dict[str, Any]) -> bytes:
    """Return the page that shows `data`: {"runs": [facts, ...]} or {"index": [rows]}; live where it says so."""
    script, style = joined(SCRIPTS), joined(STYLES)
    fields = {
        "policy": policy(is_live="live" in data),
        "generator": GENERATOR,
        "title": html.escape(title(data)),
        "verdict": html.escape(summary(data)),
        "style": style,
        "data": embedded(data),
        "script": script,
    }
    # In one pass, so that no text of a run is ever looked at for the marks of the template.
    text = re.sub(r"\{\{(\w+)\}\}", lambda found: fields[found[1]], asset("page.html"))
    return text.encode("utf-8", "replace")


def policy(is_live: bool) -> str:
    """Return the content security policy: this script, this style, and nothing else."""
    parts = {
        "default-src": "'none'",
        "script-src": _digest(joined(SCRIPTS)),
        "style-src": _digest(joined(STYLES)),
        "connect-src": "'self'" if is_live else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items())


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def title(data: dict[str, Any]) -> str:
    """Return the title of a page."""
    runs = data.get("runs", [])
    if "index" in data:
        return f"Runs in {data.get('folder', '')}"
    if "gone" in data:
        return "No run"
    return runs[0]["name"] if len(runs) == 1 else f"{len(runs)} runs compared"


def summary(data: dict[str, Any]) -> str:
    """Return the sentence under the title."""
    runs = data.get("runs", [])
    if len(runs) == 1:
        return runs[0]["verdict"]
    if "gone" in data:
        return data["gone"]
    return f"{len(data['index'])} runs" if "index" in data else "; ".join(run["name"] for run in runs)


def embedded(data: Any) -> str:
    """Return JSON that is safe between <script> tags: no <, > or & can end them, no character is a line break."""
    text = json_text.dumps_for_others(data)  # ASCII, so no U+2028 either
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def joined(names: tuple[str, ...]) -> str:
    """Return files of the page, one after the other."""
    return "\n".join(asset(name) for name in names)


@cache
def asset(name: str) -> str:
    """Return a file that comes with gradless."""
    return (files("gradless.report") / "assets" / name).read_text(encoding="utf-8")
