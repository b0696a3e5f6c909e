"""The first tour as a notebook has the page's cells, runs, and stores readable outputs."""

from __future__ import annotations

import re
import sys

import nbformat
import pytest

from tests.support import ROOT

sys.path.insert(0, str(ROOT / "docs"))

import tour_notebook as tour

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # all but tabs and new lines
CELL = """
from fl_edge_env import Allocation, Scenario
from policies import Policy, evaluate
from policies.solvers import waits

waits._PATIENCE = 0.0

class Mine(Policy):
    def decide(self, observation):
        return Allocation(self.scenario.f_mid, self.scenario.p_max, 1 / self.scenario.num_devices)

scenario = Scenario.digits(num_rounds=3)
evaluate([Mine(scenario)], scenario, seeds=range(2), workers=2, progress=PROGRESS).policy.tolist()
"""
COMMAND = "fl-edge compare --no-train --rounds 2 --seeds 1 --policies lroa --out "


def printed(cells: list[nbformat.NotebookNode]) -> str:
    outputs = [each for cell in cells for each in cell.get("outputs", [])]
    return "".join(each.get("text") or each.data["text/plain"] for each in outputs)


def test_notebook__is_the_page_with_outputs():
    kept = nbformat.read(tour.NOTEBOOK, 4)
    names = ("id", "cell_type", "source")
    made, stored = (
        [[cell[name] for name in names] for cell in one.cells] for one in (tour.notebook(), kept)
    )
    assert stored == made
    assert kept.metadata.kernelspec.name == "python3"
    assert tour.pictures(kept) == [tour.PICTURE.read_bytes()]
    assert not CONTROL.search(printed(kept.cells))
    assert "Traceback" not in printed(kept.cells)
    assert tour.NOTEBOOK.stat().st_size <= 300_000
    for link in re.findall(r"\]\(([^)#]+)", "".join(cell.source for cell in kept.cells)):
        assert "://" in link or (tour.NOTEBOOK.parent / link).exists()


@pytest.mark.slow
def test_notebook__runs():
    made = tour.notebook()
    # The page's commands have tests.
    made.cells = [cell for cell in made.cells if not cell.source.startswith("%%sh")]
    tour.run(made)
    assert len(tour.pictures(made)) == 1


@pytest.mark.slow
def test_cells__define_policies_and_print_no_codes():
    codes = [CELL.replace("PROGRESS", each) for each in ("None", "True")]
    codes += [f"!{COMMAND} pty", f"%%sh\n{COMMAND} piped"]
    made = tour.v4.new_notebook(cells=[tour.v4.new_code_cell(code) for code in codes])
    tour.run(made)
    for cell, expected in zip(made.cells, ["['Mine', 'Mine']"] * 2 + ["LROA"] * 2, strict=True):
        assert expected in printed([cell])
        assert not CONTROL.search(printed([cell]).replace("\r\n", "\n"))
