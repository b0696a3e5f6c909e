"""Workers that end when the process is gone that gave them their work."""

from __future__ import annotations

import os
import threading
import time
from functools import lru_cache

# Time between two looks at the parent [s].
_LOOK_EVERY = 0.5


@lru_cache(maxsize=1)  # one thread in each process is enough
def end_with(parent: int) -> None:
    """End this process soon after its parent, even if that was killed and could not say so.

    A worker would otherwise go on with its job for hours, and nobody would read the result. What
    it was writing is then left under its temporary name.

    Parameters
    ----------
    parent : int
        The process that gives out the work. Where this is the very process, nothing is done.
    """
    if os.getpid() != parent:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:  # an orphan is given another parent
        time.sleep(_LOOK_EVERY)
    os._exit(1)  # from a thread nothing else ends the others
