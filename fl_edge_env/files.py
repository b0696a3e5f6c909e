"""Files that are either whole or absent."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path that takes the place of `path` when the block ends without error.

    Parameters
    ----------
    path : Path
        The file to write, in an existing folder.

    Yields
    ------
    Path
        A file beside it, with the same suffix, to write instead.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())  # mkstemp makes files private
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def writable_folder(path: Path) -> Path:
    """Make a folder, with its parents, and check that files can be written in it.

    Parameters
    ----------
    path : Path
        The folder.

    Returns
    -------
    Path
        The same folder.

    Raises
    ------
    ValueError
        If it cannot be made or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise ValueError(f"cannot write to the folder {str(path)!r}: {error.strerror}") from None
    return path


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value
