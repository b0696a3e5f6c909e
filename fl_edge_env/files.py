"""Atomic writes, and reads with clear errors."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Beginning of the names of temporary files.
_PART = ".fl-edge-part-"
# Most characters of a text from outside in a message.
_LONGEST = 500
# Colours of a terminal, and other signs that nobody can read.
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x1f\x7f-\x9f]")


def user_path(path: str | os.PathLike[str]) -> Path:
    """A path that a user has given, where ``~`` is the home folder."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - keeps an unknown ~user


def user_cache() -> Path:
    """FLEdge's folder in the user's cache, which may not exist yet."""
    return user_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "fl-edge"


def file_name(title: str) -> str:
    """A title as a file can be called; other titles may have the same name."""
    return re.sub(r"[^\w.+-]+", "-", title)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`, renamed to `path` if the block succeeds.

    An `OSError` that names no other file, for example if the disk is full, names `path`.
    """
    temporary = path.with_name(f"{_PART}{path.stem[:40]}-{secrets.token_hex(8)}{path.suffix}")
    try:
        temporary.touch(exist_ok=False)
        yield temporary
        with temporary.open("rb+") as file:  # Windows does not sync what is read-only
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.filename in (None, str(temporary)):
            error.filename = str(path)
            del error.filename2  # None would be shown
        raise
    finally:
        with suppress(OSError):
            temporary.unlink()


def remove_abandoned(folder: Path, stem: str = "") -> None:
    """Remove the temporary files of killed processes from a folder, if it exists.

    If a `stem` is given, only the temporary files of files that begin with it are removed.
    """
    for path in [*folder.glob(f"{_PART}{stem[:40]}*")]:
        path.unlink(missing_ok=True)


def writable_folder(path: Path) -> Path:
    """Make a folder with its parents; `ValueError` if it cannot be made or written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise ValueError(f"cannot write to the folder {str(path)!r}: {error.strerror}") from None
    return path


def check_regular(path: Path) -> None:
    """Raise `ValueError` for a folder, a pipe or a device."""
    if path.exists() and not path.is_file():
        raise ValueError("it is not a regular file")


def read_text(path: Path) -> str:
    """The text of a regular file."""
    check_regular(path)
    return path.read_text(encoding="utf-8-sig")  # without a byte order mark


@contextmanager
def as_value_error(before: str, after: str = "") -> Iterator[None]:
    """Turn any exception in the block into a `ValueError` of one line.

    For files from outside: a damaged or hostile file can raise almost any exception.
    """
    try:
        yield
    except Exception as error:
        raise ValueError(f"{before}{reason(error)}{after}") from None


def reason(error: BaseException) -> str:
    """The message of an error in one line, without its number; if empty, the error's type."""
    return one_line(re.sub(r"^\[Errno \d+\] ", "", str(error))) or type(error).__name__


def one_line(text: str) -> str:
    """A text for a message: in one line, without control codes, and cut if it is long."""
    line = " ".join(_CONTROL.sub(" ", text).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"
