"""How Sphinx builds these pages: `make docs`. They need no network, and stay plain Markdown for other readers."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "extension"), str(HERE.parent / "src")]

import gradless  # noqa: E402 (after the path)

project = "gradless"
version = release = gradless.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "docstrings", "sources", "commands"]
exclude_patterns = ["_build", "results"]

myst_heading_anchors = 3
autodoc_typehints = "none"  # the words say more than `Any` and `Callable[..., Array]`
autodoc_member_order = "bysource"
nitpicky = True

html_theme = "furo"
html_title = "gradless"
html_static_path = ["static"]
html_css_files = ["gradless.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
pygments_style, pygments_dark_style = "friendly", "monokai"
