"""Files are whole or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from fl_edge_env.files import atomic_path, remove_abandoned
from tests.support import python


def test_atomic_path__makes_a_file_like_any_other_at_the_end(tmp_path: Path):
    usual = tmp_path / "usual"
    path = tmp_path / "table.csv"
    usual.write_text("")
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
        assert temporary.suffix == path.suffix
    assert path.read_text() == "new"
    assert path.stat().st_mode == usual.stat().st_mode
    assert set(tmp_path.iterdir()) == {usual, path}


def test_atomic_path__names_the_file_that_cannot_be_written(tmp_path: Path):
    for path, kind in ((tmp_path / "none" / "a.toml", FileNotFoundError), (tmp_path, OSError)):
        with pytest.raises(kind) as raised, atomic_path(path):
            pass
        assert raised.value.filename == str(path)
    assert not list(tmp_path.iterdir())


def test_atomic_path__a_full_disk_names_the_file_that_was_to_be(tmp_path: Path):
    def write(temporary: Path) -> None:
        temporary.unlink()
        temporary.symlink_to("/dev/full")
        temporary.write_text("a")

    path = tmp_path / "a.csv"
    with pytest.raises(OSError, match="No space") as raised, atomic_path(path) as temporary:
        write(temporary)
    assert raised.value.filename == str(path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(OSError) as raised, atomic_path(path):
        (tmp_path / "none").read_text()
    assert raised.value.filename == str(tmp_path / "none")


def test_remove_abandoned__removes_only_temporary_files(tmp_path: Path):
    code = (
        "import os, sys; from pathlib import Path; from fl_edge_env.files import atomic_path\n"
        "with atomic_path(Path(sys.argv[1])): os._exit(1)"
    )
    (tmp_path / "below").mkdir()
    for name in ("a.csv", "b.csv", "below/a.csv"):
        python(code, str(tmp_path / name))
    # Files of others, and those of a command that works in another folder.
    kept = {tmp_path / name for name in ("part-a.csv", ".part-mine")}
    for path in kept:
        path.touch()
    for stem, names in (("a", {"b", "below"}), ("", {"below"})):
        remove_abandoned(tmp_path, stem)
        left = {path for path in tmp_path.rglob("*") if path.is_file()} - kept
        assert {p.name.split("-")[3] if p.parent == tmp_path else "below" for p in left} == names
    remove_abandoned(tmp_path / "none")
    assert all(path.exists() for path in kept)
