"""Files are whole or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from fl_edge_env.files import atomic_path, writable_folder


def test_atomic_path__keeps_the_old_file_when_writing_fails(tmp_path: Path):
    path = tmp_path / "table.csv"
    path.write_text("old")

    def write() -> None:
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_atomic_path__replaces_the_file_at_the_end(tmp_path: Path):
    path = tmp_path / "table.csv"
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
        assert temporary.suffix == path.suffix
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_writable_folder__makes_parents(tmp_path: Path):
    assert writable_folder(tmp_path / "a" / "b").is_dir()


def test_writable_folder__names_what_is_in_the_way(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot write to the folder .*file/below"):
        writable_folder(tmp_path / "file" / "below")
