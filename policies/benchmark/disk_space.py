"""The room that checkpoints of long runs take on the disk, told before the runs begin."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fl_edge_env.files import in_bytes
from policies.benchmark.checkpoint import MOST_CHECKPOINTS
from policies.benchmark.jobs import Work
from policies.benchmark.runner import checkpoints_of, finished

# From this size on it is told [bytes].
_LARGE = 1e9


def tell_room(jobs: Sequence[Work], folder: Path, workers: int, console: Console) -> None:
    """Say how much room the checkpoints of unfinished runs will take, where it is a gigabyte.

    Where the disk has less room than that, it is a warning.
    """
    done = set(finished(jobs, folder))
    left = [job for index, job in enumerate(jobs) if index not in done and job.checkpoint_bytes]
    sizes = sorted((job.checkpoint_bytes for job in left), reverse=True)[:workers]
    needed = MOST_CHECKPOINTS * sum(sizes)
    if needed < _LARGE:
        return
    free = shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
    # What a run that goes on has written before, it will remove.
    here = sum(saved.stored_bytes() for job in left if (saved := checkpoints_of(job, folder)))
    told = (
        f"The checkpoints of unfinished runs take up to {in_bytes(needed)} in "
        f"{str(folder / 'checkpoints')!r}: {MOST_CHECKPOINTS} for each run, of at most "
        f"{in_bytes(sizes[0])}, with {len(sizes)} at a time. {in_bytes(free)} are free"
    )
    if free + here >= needed:
        console.print(f"{told}.", highlight=False, soft_wrap=True)
        return
    console.print(
        f"warning: {told}, which may not suffice. Free some room, give another folder, or run "
        "fewer workers; runs whose checkpoints cannot be written go on without.",
        style="yellow",
        highlight=False,
        soft_wrap=True,
    )
