"""One command at a time in a folder of results."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

# In the folder while a command runs, and after one that was killed.
LOCK = ".lock"


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Keep other commands out of a folder during the block.

    The lock is one of the operating system on a file in the folder: it ends with the process, even
    where that is killed, and the file that is then left keeps nobody out. Nor does anything where
    the file system knows no locks.

    Parameters
    ----------
    folder : Path
        A folder that can be written.

    Raises
    ------
    ValueError
        If another command has the folder; tells its process, and since when.
    """
    file = _open_locked(folder / LOCK)
    try:
        with suppress(OSError):  # no room to say who it is
            file.truncate(0)
            file.write(_who().encode())
        yield
    finally:
        if sys.platform == "win32":  # where an open file cannot be removed
            file.close()
        with suppress(OSError):
            (folder / LOCK).unlink()
        file.close()


def _open_locked(path: Path) -> BinaryIO:
    """The file, locked and not one that its last holder is about to remove."""
    while True:
        try:
            file = path.open("a+b", buffering=0)
        except OSError as error:
            raise ValueError(f"cannot write {str(path)!r}: {error.strerror}") from None
        if not _lock(file):
            with file:
                file.seek(0)
                who = file.read(200).decode(errors="replace") or "another process"
            raise ValueError(
                f"another command is at work in {str(path.parent)!r} ({who}): wait until it has "
                "ended, or give another folder with --out"
            )
        with suppress(OSError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()


def _who() -> str:
    now = datetime.now().astimezone().isoformat(" ", "seconds")
    return f"process {os.getpid()} on {socket.gethostname()}, since {now}"


if sys.platform == "win32":
    import msvcrt

    def _lock(file: BinaryIO) -> bool:
        """Whether nobody else has the lock: of a byte far behind the content, which can be read."""
        file.seek(1 << 30)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _lock(file: BinaryIO) -> bool:
        """Whether nobody else has the lock."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno not in (errno.EAGAIN, errno.EACCES)
        return True
