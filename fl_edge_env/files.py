"""Files that are either whole or absent, and how large they are."""

from __future__ import annotations

import os
import secrets
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`, which it replaces when the block ends without error.

    Raises `ValueError` if no file can be made there.
    """
    temporary = path.with_name(f".{path.stem}-{secrets.token_hex(8)}{path.suffix}")
    try:
        temporary.touch(exist_ok=False)
    except OSError as error:
        raise ValueError(f"cannot write {str(path)!r}: {error.strerror}") from None
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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
    """Raise `ValueError` for a folder, a pipe or a device, which may be without end."""
    if path.exists() and not path.is_file():
        raise ValueError("it is not a regular file")


def check_zip(path: Path) -> list[str]:
    """Names of the parts of a ZIP file as NumPy and torch write them, uncompressed.

    Raises `ValueError` if it is no such file, or damaged: their readers see a checksum only if they
    read its part to the end, which a changed shape can prevent. As nothing is compressed, no part
    is longer than the file.
    """
    check_regular(path)
    with path.open("rb") as opened:
        # At the start, where torch looks, and not only at the end, where zipfile does.
        if opened.read(4) != b"PK\x03\x04":
            raise ValueError("it is not a ZIP file, as NumPy and torch write them")
        with zipfile.ZipFile(opened) as file:
            parts = file.infolist()
            if any(part.compress_type != zipfile.ZIP_STORED for part in parts):
                raise ValueError("it is compressed, which NumPy and torch do not do here")
            if (announced := sum(part.file_size for part in parts)) > path.stat().st_size:
                raise ValueError(f"its parts announce {announced} bytes, more than it has")
            if (damaged := file.testzip()) is not None:
                raise ValueError(f"its part {damaged!r} is damaged")
            return [part.filename for part in parts]


@contextmanager
def as_value_error(before: str, after: str = "") -> Iterator[None]:
    """Raise whatever goes wrong in the block as a `ValueError` of one line.

    For what comes from outside: what a damaged or hostile file can raise has no end.
    """
    try:
        yield
    except Exception as error:
        raise ValueError(f"{before}{reason(error)}{after}") from None


def reason(error: Exception) -> str:
    """The message of an error in one line; its type where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def in_bytes(size: float) -> str:
    """A size in bytes for people, such as ``1.6 GB``."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size:.0f} bytes"
