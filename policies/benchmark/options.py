"""The options of running an experiment, and their values in TOML and JSON."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

Backend = Literal["processes", "ray"]


@dataclass(frozen=True)
class RunOptions:
    """Options of running, and the folder. None of it changes a result."""

    workers: int = os.cpu_count() or 1
    """Number of processes."""
    backend: Backend = "processes"
    """Where the processes run: on this machine, or on a Ray cluster."""
    address: str | None = None
    """Address of the Ray cluster; a local one is started by default."""
    checkpoint_every: int = 50
    """Rounds between two checkpoints, from which an interrupted training run continues."""
    out: Path | None = None
    """Folder for the results, by default one in runs that is named by the options. Rerun a command
    to resume it: finished runs are not repeated."""
    overwrite: bool = False
    """Replace what the folder holds, such as results of other options."""


@dataclass(frozen=True)
class PaperOptions(RunOptions):
    """Files for a paper, which a finished command writes when it is given again."""

    latex: bool = False
    """Write the table to <out>/table.tex, for LaTeX with the package booktabs."""
    pdf: bool = False
    """Write the figures as PDF, too."""

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats of figures."""
        return ("png", "pdf") if self.pdf else ("png",)


HOW_TO_RUN = tuple(field.name for field in fields(RunOptions))
# What a command asks to be left behind beside its results.
LEFT_BEHIND = ("save_models", "latex", "pdf")
# Options that do not change a result.
SAME_RESULT = (*HOW_TO_RUN, *LEFT_BEHIND, "data_dir", "download")


def fits(value: object, kind: Any) -> bool:
    """True if a value of JSON or TOML is one of an option of some type."""
    parts = get_args(kind)
    if get_origin(kind) is Literal:
        return value in parts
    if get_origin(kind) is tuple:
        return isinstance(value, list) and all(fits(item, parts[0]) for item in value)
    if isinstance(kind, UnionType):
        return any(fits(value, part) for part in parts)
    kinds: dict[Any, tuple[type, ...]] = {float: (float, int), Path: (str,)}
    return type(value) in kinds.get(kind, (kind,))
