"""Results behind the pages: run what is missing, and write tables, numbers and pictures.

python docs/evidence.py [PAGE …]

For each page (all by default) the commands are run whose results are missing or were made by other
code; what they leave is copied to the files of the index, docs/evidence/index.toml, and the pages
are rewritten from these. The same call continues an interrupted command.

--list        say for each result its command, the commit that made it, and minutes on two cores
--stale       the same of those that would be run
--from-files  run nothing, and rewrite pages from the files that are there
"""

from __future__ import annotations

import argparse
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
from evidence_pages import PARTS, Block, Claim, Part

from fl_edge_env.files import atomic_path
from policies.benchmark.jobs import code_hash
from policies.benchmark.results_folder import made_with, write_text

INDEX = ROOT / "docs/evidence/index.toml"
CODE = ("fl_edge_env", "policies", "train_fl", "examples/*.py")
PRINTED = "printed"  # in place of a file: what the command printed
_NUMBER = r"(-?\w[\w±.,]*(?<=\w)|\w)"
_BLOCK = r"(<!-- evidence: {} -->\n\n)(.*?)(\n\n<!-- end -->)"


def index() -> dict[str, dict[str, Any]]:
    """The results by name: how each is made, of what code it is, and its files."""
    return tomllib.loads(INDEX.read_text(encoding="utf-8"))


def is_there(result: dict[str, Any]) -> bool:
    """True if a result was made, and all of its files are there."""
    return "commit" in result and all((ROOT / path).exists() for path in result["files"])


def is_stale(result: dict[str, Any]) -> bool:
    """True if a result is missing or was made by other code."""
    return not is_there(result) or result.get("code") != code_hash()[:12]


def run(name: str) -> None:
    """Run the command of a result in the folder runs/evidence/<name>, and copy what it leaves.

    Raises `subprocess.CalledProcessError` if it fails.
    """
    result, folder = index()[name], ROOT / "runs/evidence" / name
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    begun, made = time.monotonic(), made_with()
    environment = os.environ | {
        "COLUMNS": "110",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    with (folder / PRINTED).open("w", encoding="utf-8") as file:
        subprocess.run(
            ["bash", "-ec", result["command"]], cwd=ROOT, env=environment, stdout=file, check=True
        )
    for path, source in result["files"].items():
        _copy(folder / source, ROOT / path)
    # Results beside the code make a checkout dirty, too.
    changed = ["git", "status", "--porcelain", "--", *CODE]
    clean = not subprocess.run(changed, cwd=ROOT, capture_output=True, check=False).stdout
    commit = made["commit"] or "unknown"
    told = {
        "commit": commit.removesuffix("-dirty") if clean else commit,
        "code": made["code"][:12],
        "date": datetime.now(UTC).date().isoformat(),
        "versions": ", ".join(
            f"{package} {made['versions'][package]}" for package in ("numpy", "scipy", "torch")
        ),
    }
    if new:  # one that was continued took longer
        minutes = (time.monotonic() - begun) / 60
        told |= {"minutes": max(round(minutes), 1), "cores": os.cpu_count()}
    write_text(INDEX, tomli_w.dumps(index() | {name: result | told}))


def _copy(source: Path, target: Path) -> None:
    """Copy a file whole or not at all; numbers of a table to eight digits."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as temporary:
        if source.suffix == ".csv":
            table = pd.read_csv(source, dtype_backend="numpy_nullable")
            table.to_csv(temporary, index=False, float_format="%.8g")
        else:
            shutil.copyfile(source, temporary)


def rewritten(page: str, text: str, parts: Iterable[Part]) -> str:
    """The text of a page with the tables and numbers of the files.

    Raises
    ------
    ValueError
        If a table or a sentence is not on the page exactly once, or a claim does not hold.
    """
    for part in parts:
        for told in part.tell():
            if isinstance(told, Block):
                pattern, values = _BLOCK.format(re.escape(told.name)), None
                what = f"block {told.name!r}"
            else:
                what = told.text if isinstance(told, Claim) else told
                pieces = what.split(MARK)
                words = (r"\s+".join(map(re.escape, re.split(r"\s+", p))) for p in pieces[::2])
                pattern, values = _NUMBER.join(words), pieces[1::2]
            found = list(re.finditer(pattern, text, re.DOTALL))
            if len(found) != 1:
                raise ValueError(f"{page}: {len(found)} times {what.replace(MARK, '·')!r}")
            if isinstance(told, Claim) and not told.holds:
                raise ValueError(f"{page}: the results do not say {what!r}")
            if isinstance(told, Block):
                spans = [(found[0].span(2), told.text)]
            else:
                spans = [(found[0].span(i), value) for i, value in enumerate(values or [], 1)]
            for (start, end), value in reversed(spans):
                text = text[:start] + value + text[end:]
    return text


def parts_of(page: str) -> list[Part]:
    """The parts of a page whose results are there."""
    there = {name for name, result in index().items() if is_there(result)}
    return [part for part in PARTS if part.page == page and there.issuperset(part.results)]


def rewrite(page: str) -> None:
    """Write a page with the tables and numbers of the files, if that changes it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    new = rewritten(page, text, parts_of(page))
    if new != text:
        write_text(ROOT / page, new)
        print(f"rewritten: {page}")


def tell(name: str, result: dict[str, Any]) -> None:
    """Print how a result is made, of what code it is, and how long that takes."""
    made = f"{result['commit'][:12]}, {result['date']}" if is_there(result) else "missing"
    print(f"{name} ({made}; {result['minutes']} min): {result['command']}", flush=True)


def main() -> int:
    """Run what is asked for, and rewrite the pages; the number of what has failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    for option in ("--list", "--stale", "--from-files"):
        parser.add_argument(option, action="store_true")
    options = parser.parse_args()
    pages = list(dict.fromkeys(part.page for part in PARTS))
    names = {Path(page).name for page in options.pages or pages}
    if unknown := names - {Path(page).name for page in pages}:
        parser.error(f"no page {', '.join(sorted(unknown))}; there are {', '.join(pages)}")
    needed = [name for part in PARTS if Path(part.page).name in names for name in part.results]
    chosen = {name: index()[name] for name in dict.fromkeys(needed)}
    if not options.list:
        chosen = {name: result for name, result in chosen.items() if is_stale(result)}
    if options.list or options.stale:
        for name, result in chosen.items():
            tell(name, result)
        print(f"{sum(result['minutes'] for result in chosen.values())} minutes in all")
        return 0
    failed = []
    for name, result in chosen.items() if not options.from_files else ():
        tell(name, result)
        try:
            run(name)
        except subprocess.CalledProcessError as error:
            failed.append(f"{name}: the command ended with status {error.returncode}")
    for page in pages:  # others may have the same results
        try:
            rewrite(page)
        except ValueError as error:
            failed.append(str(error))
    print("".join(f"error: {message}\n" for message in failed), end="", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
