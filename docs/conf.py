"""How Sphinx builds the documentation: ``sphinx-build -W docs docs/_build``."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import version as installed_version
from pathlib import Path
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


@cache
def _documented() -> dict[str, str]:
    """The full names of what the API pages document, by their last parts."""
    names = {}
    for page in Path(__file__).parent.glob("api/*.md"):
        module = ""
        for kind, name in re.findall(r"^\.\. (\w+):: ([\w.]+)", page.read_text(), re.MULTILINE):
            if kind == "currentmodule":
                module = name
            else:
                names[name.split(".")[-1]] = name if "." in name else f"{module}.{name}"
    return names


def _link_names(_app: Any, page: str, source: list[str]) -> None:
    """Link documented names, which are plain code in Markdown, to the API pages."""
    if page.startswith(("api/", "leaderboards/")):
        return
    known = _documented()

    def linked(code: re.Match[str]) -> str:
        return f"{{py:obj}}`~{known[code[1]]}`" if code[1] in known else code[0]

    # On GitHub, pages link to the file that contributing.md includes.
    text = source[0].replace("](../CONTRIBUTING.md", "](contributing.md")
    parts = re.split(r"(^```.*?^```|^#.*?$)", text, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [re.sub(r"(?<![\[`\w}])`(\w+)`(?!`)", linked, part) for part in parts[::2]]
    source[0] = "".join(parts)


def _orphan(_app: Any, name: str, source: list[str]) -> None:
    """Build the tables of leaderboards, which pages link to, without an entry in the sidebar."""
    if name.startswith("leaderboards/"):
        source[0] = f"---\norphan: true\n---\n{source[0]}"


def setup(app: Any) -> None:
    """Connect the functions above."""
    app.connect("source-read", _link_names)
    app.connect("source-read", _orphan)
    app.connect("autodoc-process-docstring", _headings)
