"""How Sphinx builds the documentation: ``sphinx-build -W docs docs/_build``."""

from __future__ import annotations

import re
from importlib.metadata import version as installed_version
from typing import Any

project = "FLEdge"
author = "The FLEdge authors"
copyright = "2026, The FLEdge authors"  # noqa: A001 - the name Sphinx prescribes
release = version = installed_version("fl-edge-env")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # equations show without network, too
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"FLEdge {version}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
default_role = "py:obj"
autodoc_mock_imports = ["flwr"]  # not in the extra `all`
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings give types and shapes
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
strip_signature_backslash = True  # keeps the underscore of `lambda_`


def _headings(
    _app: Any, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]
) -> None:
    """Show the Markdown headings of Gymnasium's docstrings as headings."""
    text = "\n".join(lines)
    lines[:] = re.sub(r"^## (.*)", r".. rubric:: \1\n", text, flags=re.MULTILINE).split("\n")


def _orphan(_app: Any, name: str, source: list[str]) -> None:
    """Build the tables of leaderboards, which pages link to, without an entry in the sidebar."""
    if name.startswith("leaderboards/"):
        source[0] = f"---\norphan: true\n---\n{source[0]}"


def setup(app: Any) -> None:
    """Connect the functions above."""
    app.connect("source-read", _orphan)
    app.connect("autodoc-process-docstring", _headings)
