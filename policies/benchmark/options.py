"""Options for running an experiment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from fl_edge_env.files import user_path

Backend = Literal["processes", "ray"]


def shown(metavar: str, default: str) -> Any:
    """How ``--help`` shows an option that is None by default."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


@dataclass(frozen=True)
class RunOptions:
    """Execution and folder; none of these options changes a result."""

    workers: Annotated[int | None, shown("INT", "one for each processor")] = None
    """Number of processes."""
    backend: Backend = "processes"
    """Processes of this machine, or the Ray cluster at
    RAY_ADDRESS."""
    checkpoint_every: int = 50
    """Rounds between checkpoints of a training run."""
    out: Annotated[Path | None, shown("PATH", "in runs, named by the options")] = None
    """Folder for the results. Finished runs in it are not
    repeated."""
    overwrite: bool = False
    """Replace other results in the folder."""

    @property
    def processes(self) -> int:
        """The number of processes: by default all processors that this process may use."""
        if self.workers is not None:
            return self.workers
        import joblib  # slow, and not needed for --help

        return int(joblib.cpu_count())

    def __post_init__(self) -> None:
        if self.out is not None:
            object.__setattr__(self, "out", user_path(self.out))
