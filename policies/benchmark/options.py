"""The options of running an experiment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

Backend = Literal["processes", "ray"]


def shown(metavar: str, default: str) -> Any:
    """How ``--help`` shows an option that is None unless it is given."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


@dataclass(frozen=True)
class RunOptions:
    """How and where to run; none of it changes a result."""

    workers: int = os.cpu_count() or 1
    """Number of processes."""
    backend: Backend = "processes"
    """Run on this machine, or on the Ray cluster that
    RAY_ADDRESS names."""
    checkpoint_every: int = 50
    """Rounds between two checkpoints, from which an interrupted training run continues."""
    out: Annotated[Path | None, shown("PATH", "in runs, named by the options")] = None
    """Folder for the results; runs finished there are not
    repeated. Rerun a command to resume it."""
    overwrite: bool = False
    """Replace what the folder holds, such as results of other
    options."""
