"""The first tour as a notebook, as people read it on GitHub.

python docs/tour_notebook.py

Makes examples/tour.ipynb from the text and the blocks of docs/tour.md, runs it in some minutes, and
stores its outputs. The picture that a cell draws becomes the page's.
"""

from __future__ import annotations

import base64
import os
import re
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode, v4

from policies.benchmark.results_folder import write_text

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/tour.md"
NOTEBOOK = ROOT / "examples/tour.ipynb"
PICTURE = ROOT / "examples/figures/round.png"
_BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?!https:)[^)#]+")


def notebook() -> NotebookNode:
    """The page as a notebook that has not run."""
    text = re.sub(rf"^!\[.*{PICTURE.name}\)$", "", PAGE.read_text(encoding="utf-8"), flags=re.M)
    cells = []
    rest = iter(_BLOCK.split(text))
    for prose in rest:
        linked = _LINK.sub(lambda found: _from_notebook(found[0]), prose)
        cells.append(v4.new_markdown_cell(linked.strip()))
        kind = next(rest, "")
        if kind:
            code = next(rest).strip()
            cells.append(v4.new_code_cell(f"%%sh\n{code}" if kind == "sh" else code))
    for index, cell in enumerate(cells):
        cell.id = f"cell-{index}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def _from_notebook(link: str) -> str:
    """A link of the page, for the folder of the notebook."""
    return os.path.relpath(PAGE.parent / link, NOTEBOOK.parent)


def run(made: NotebookNode) -> None:
    """Run a notebook's cells in an empty folder; their outputs are then in it."""
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        options = {"timeout": None, "record_timing": False, "coalesce_streams": True}
        NotebookClient(made, resources=resources, **options).execute()
    for cell in made.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("image/jpeg", None)  # the same picture as its PNG


def pictures(made: NotebookNode) -> list[bytes]:
    """The pictures that the cells of a notebook show, as PNG."""
    outputs = [each for cell in made.cells for each in cell.get("outputs", [])]
    shown = [each.data["image/png"] for each in outputs if "image/png" in each.get("data", {})]
    return [base64.b64decode(each) for each in shown]


def main() -> None:
    """Make and run the notebook, and store it with its picture."""
    made = notebook()
    run(made)
    write_text(NOTEBOOK, nbformat.writes(made) + "\n")
    (picture,) = pictures(made)
    PICTURE.write_bytes(picture)


if __name__ == "__main__":
    main()
