"""Results behind the pages: run their commands, and write tables, numbers and pictures.

python docs/evidence.py [RESULT …]

Runs the commands of these results of the index, docs/evidence/index.toml, copies what they leave to
the files that it names, and rewrites all pages. The same call continues an interrupted command.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import tomli_w
from evidence_files import MARK, ROOT
from evidence_pages import PAGES, Block, told

from fl_edge_env.files import atomic_path
from policies.benchmark.results_folder import made_with, write_text

INDEX = ROOT / "docs/evidence/index.toml"
PRINTED = "printed"  # in place of a file: what the command printed
_NUMBER = r"(-?\w[\w±.,]*(?<=\w)|\w)"
_BLOCK = r"(?<=<!-- evidence: {} -->\n\n)(.*?)(?=\n\n<!-- end -->)"


def index() -> dict[str, dict[str, Any]]:
    """The results by name: how each is made, by what code, and its files."""
    return tomllib.loads(INDEX.read_text(encoding="utf-8"))


def run(name: str, made: dict[str, Any]) -> None:
    """Run the command of a result in the folder runs/evidence/<name>, and copy what it leaves.

    `made` is the code and the libraries. Raises `subprocess.CalledProcessError` if it fails.
    """
    result, folder = index()[name], ROOT / "runs/evidence" / name
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    environment = os.environ | {
        "COLUMNS": "110",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    print(f"{name} ({result['minutes']} min): {result['command']}", flush=True)
    with (folder / PRINTED).open("w", encoding="utf-8") as file:
        subprocess.run(
            ["bash", "-ec", result["command"]], cwd=ROOT, env=environment, stdout=file, check=True
        )
    for path, source in result["files"].items():
        _copy(folder / source, ROOT / path)
    result |= {
        "commit": made["commit"] or "unknown",
        "date": datetime.now(UTC).date().isoformat(),
        "versions": ", ".join(
            f"{package} {made['versions'][package]}" for package in ("numpy", "scipy", "torch")
        ),
    }
    if new:  # one that was continued took longer
        minutes = (time.monotonic() - begun) / 60
        result |= {"minutes": max(round(minutes), 1), "cores": os.cpu_count()}
    write_text(INDEX, tomli_w.dumps(index() | {name: result}))


def _copy(source: Path, target: Path) -> None:
    """Copy a file whole or not at all; numbers of a table to eight digits."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as temporary:
        if source.suffix == ".csv":
            table = pd.read_csv(source, dtype_backend="numpy_nullable")
            table.to_csv(temporary, index=False, float_format="%.8g")
        else:
            shutil.copyfile(source, temporary)


def rewritten(page: str, text: str, parts: Iterable[Block | str]) -> str:
    """The text of a page with the tables and numbers of the files.

    Raises
    ------
    ValueError
        If a table or a sentence is not on the page exactly once.
    """
    for part in parts:
        if isinstance(part, Block):
            pattern, values = _BLOCK.format(re.escape(part.name)), [part.text]
        else:
            pieces = part.split(MARK)
            words = (r"\s+".join(map(re.escape, re.split(r"\s+", p))) for p in pieces[::2])
            pattern, values = _NUMBER.join(words), pieces[1::2]
        found = list(re.finditer(pattern, text, re.DOTALL))
        if len(found) != 1:
            raise ValueError(f"{page}: {len(found)} times {str(part).replace(MARK, '·')!r}")
        for group, value in reversed([*enumerate(values, 1)]):
            start, end = found[0].span(group)
            text = text[:start] + value + text[end:]
    return text


def main(names: list[str]) -> None:
    """Run what is asked for, and rewrite the pages."""
    if unknown := set(names) - index().keys():
        sys.exit(f"no result {', '.join(sorted(unknown))}; there are {', '.join(index())}")
    made = made_with()  # before results, which lie beside the code, change the checkout
    for name in names:
        run(name, made)
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        write_text(ROOT / page, rewritten(page, text, told(page)))


if __name__ == "__main__":
    main(sys.argv[1:])
