"""Arrays of files that take long to read, kept in the user's cache."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from fl_edge_env.files import atomic_path, user_cache


def kept_arrays(files: Iterable[str | Path], read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The arrays that `read` makes, which the user's cache keeps under a hash of files.

    `files` determine the arrays, and include the one with the code of `read`.
    """
    digest = hashlib.sha256()
    for file in files:
        digest.update(Path(file).read_bytes())
    kept = user_cache() / f"{digest.hexdigest()}.npz"
    # Without it, or if it is damaged, which can raise anything.
    with suppress(Exception), kept.open("rb") as stream:
        return dict(np.load(stream))
    arrays = read()
    with suppress(OSError):  # a full or read-only disk
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with atomic_path(kept) as temporary:
            np.savez_compressed(temporary, **arrays)
    return arrays
