"""Links to lines of the code: `[`AMC.propose`](../src/gradless/kernels/amc.py#L94)`.

They lead to the file where the pages are read as plain Markdown, and to a copy of it with line anchors in the built
pages. `python docs/extension/sources.py` sets the numbers right; a test says when that is needed.
"""

import ast
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[`?([^]`]+)`?\]\(\.\./((?:src|examples|tests)/[\w/.-]+\.py)(?:#L(\d+))?\)")


def line_of(text: str, source: str) -> int:
    """Return the line that defines the dotted name `text`, or else the first comment that begins with it."""
    body, node = ast.parse(source).body, None
    for name in text.split("."):
        node = next((one for one in body if name in _names(one)), None)
        body = getattr(node, "body", [])
    if node is not None:
        return node.lineno
    for number, line in enumerate(source.splitlines(), start=1):
        if line.strip().startswith(f"# {text}"):
            return number
    raise LookupError(f"{text!r} is neither defined nor the beginning of a comment")


def _names(node: ast.stmt) -> list[str]:
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return [getattr(node, "name", "")] + [target.id for target in targets if isinstance(target, ast.Name)]


def renumbered(page: str) -> str:
    """Return the text of a page with the right line in every link that has one."""

    def right(found: re.Match[str]) -> str:
        text, path, number = found.groups()
        line = number and line_of(text, (ROOT / path).read_text())
        return re.sub(r"#L\d+", f"#L{line}", found[0]) if line else found[0]

    return LINK.sub(right, page)


def lead_to_copies(app: Any, docname: str, content: list[str]) -> None:
    """Let the links of a page lead to the copies of the files."""

    def link(found: re.Match[str]) -> str:
        text, path, number = found.groups()
        app.env.linked_sources = {*getattr(app.env, "linked_sources", ()), path}
        anchor = f"#L{number}" if number else ""
        place = f" <small>{'/'.join(Path(path).parts[-2:])}:{number}</small>" if number else ""
        return f'<a href="{path.removesuffix(".py")}.html{anchor}"><code>{text}</code></a>{place}'

    content[0] = LINK.sub(link, content[0])


def copies(app: Any) -> Any:
    """Yield a page for every file that is linked."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    form = HtmlFormatter(linenos="inline", lineanchors="L", anchorlinenos=True, cssclass="highlight")
    for path in sorted(getattr(app.env, "linked_sources", ())):
        body = highlight((ROOT / path).read_text(), PythonLexer(), form).replace('id="L-', 'id="L').replace("#L-", "#L")
        body = body.replace('name="L-', 'name="L')
        yield path.removesuffix(".py"), {"title": path, "body": f"<h1>{path}</h1>{body}"}, "page.html"


def setup(app: Any) -> dict[str, Any]:
    """Let Sphinx make the copies and lead there."""
    app.connect("source-read", lead_to_copies)
    app.connect("html-collect-pages", copies)
    return {"parallel_read_safe": False}


if __name__ == "__main__":
    for page in [Path(name) for name in sys.argv[1:]] or sorted((ROOT / "docs").glob("*.md")):
        before = page.read_text()
        if (after := renumbered(before)) != before:
            page.write_text(after)
            print(f"{page.name}: lines set right")
