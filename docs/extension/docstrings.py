"""Our docstrings read by Sphinx: lines `name: what it is` are parameters, backticks are code, the rest is plain."""

import inspect
import re
from typing import Any

# A name or several, a colon, and the explanation; lines that are indented below belong to it.
PARAMETERS = re.compile(r"^([a-z]\w*(?:, [a-z]\w*)*): (.*(?:\n[ \t]+\S.*)*)", re.MULTILINE)


def parameters(docstring: str) -> dict[str, str]:
    """Return what a docstring says of each parameter, by name."""
    found = {}
    for names, words in PARAMETERS.findall(inspect.cleandoc(docstring)):
        for name in names.split(", "):
            found[name] = " ".join(words.split())
    return found


def signature_names(thing: Any) -> list[str]:
    """Return the names of the parameters of a function, or of what makes an object of a class."""
    return [name for name in inspect.signature(thing).parameters if name != "self"]


def plain(text: str) -> str:
    """Return text for reStructuredText: code in backticks, and nothing else that has a meaning there."""
    pieces = re.split(r"`([^`]+)`", text)
    words = [re.sub(r"([*|\\]|(?<=\w)_(?!\w))", r"\\\1", piece) for piece in pieces[::2]]
    code = [f"``{piece}``" for piece in pieces[1::2]]
    return "".join(word + one for word, one in zip(words, [*code, ""], strict=True))


def rewrite(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn a docstring of ours into fields of Sphinx, in place."""
    docstring = "\n".join(lines)
    known = parameters(docstring)
    prose = plain(PARAMETERS.sub("", docstring)).strip().splitlines()
    fields = [f":param {name}: {plain(words)}" for name, words in known.items()]
    lines[:] = [*prose, "", *fields, ""]


def setup(app: Any) -> dict[str, Any]:
    """Let Sphinx read docstrings by `rewrite`."""
    app.connect("autodoc-process-docstring", rewrite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
