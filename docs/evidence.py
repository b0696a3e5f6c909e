"""Results behind the pages: run their commands, and redraw tables and figures.

python docs/evidence.py [RESULT … | --all]

Runs the commands of these results of the index, docs/evidence/index.toml, or of all, the quickest
first. Copies what they leave to the files that the index names, and prints which of these change.
Rerun an interrupted call to resume it. Then, also without results, redraws the figures of
`evidence_figures`, and rewrites the pages' tables, each between ``<!-- evidence: NAME -->`` and
``<!-- end -->``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import tomli_w
from evidence_figures import FIGURES
from evidence_pages import PAGES, ROOT, TABLES

from fl_edge_env.files import atomic_path
from policies.benchmark.results_folder import made_with, write_text
from policies.report.figures import save_figure

INDEX = ROOT / "docs/evidence/index.toml"
PRINTED = "printed"  # stands for a file: the command's output
_BLOCK = re.compile(r"(<!-- evidence: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def index() -> dict[str, dict[str, Any]]:
    """The results by name: command, code, time and files of each."""
    return tomllib.loads(INDEX.read_text(encoding="utf-8"))


def run(name: str, made: dict[str, Any]) -> None:
    """Run a result's command in runs/evidence/<name>, and copy its files; `made` is the code."""
    result = index()[name]
    folder = ROOT / "runs/evidence" / name
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    print(f"{name} ({result['minutes']} min): {result['command']}", flush=True)
    with (folder / PRINTED).open("w", encoding="utf-8") as file:
        environment = os.environ | {"COLUMNS": "110", "PATH": programs}
        bash = ["bash", "-ec", result["command"]]
        subprocess.run(bash, cwd=ROOT, env=environment, stdout=file, check=True)
    for target, source in result["files"].items():
        path = ROOT / target
        before = path.read_bytes() if path.exists() else b""
        _copy(folder / source, path)
        if path.read_bytes() != before:
            print(f"changed: {target}", flush=True)
    packages = ("numpy", "scipy", "torch")
    result |= {
        "commit": made["commit"] or "unknown",
        "date": datetime.now(UTC).date().isoformat(),
        "versions": ", ".join(f"{each} {made['versions'][each]}" for each in packages),
    }
    if new:  # a resumed run took longer
        minutes = max(round((time.monotonic() - begun) / 60), 1)
        result |= {"minutes": minutes, "cores": os.cpu_count()}
    write_text(INDEX, tomli_w.dumps(index() | {name: result}))


def _copy(source: Path, target: Path) -> None:
    """Copy a file atomically; numbers of a table to eight digits."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as temporary:
        if source.suffix == ".csv":
            table = pd.read_csv(source, dtype_backend="numpy_nullable")
            table.to_csv(temporary, index=False, float_format="%.8g")
        else:
            shutil.copyfile(source, temporary)


def rewritten(text: str) -> str:
    """The text of a page, with its blocks made anew from the stored files."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", text)


def main(names: list[str]) -> None:
    """Run the results with these names, then redraw figures and rewrite pages."""
    if names == ["--all"]:
        names = sorted(index(), key=lambda name: index()[name]["minutes"])
    unknown = set(names) - index().keys()
    if unknown:
        sys.exit(f"no result {', '.join(sorted(unknown))}; there are {', '.join(index())}")
    made = made_with()  # before results change the checkout
    for name in names:
        run(name, made)
    for path, (rows, size) in FIGURES.items():
        save_figure(rows, [ROOT / path], panel_size=size)
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        write_text(ROOT / page, rewritten(text))


if __name__ == "__main__":
    main(sys.argv[1:])
