"""Policies side by side in a GIF."""

from __future__ import annotations

import pytest
from PIL import Image

from train_fl.command_line import main


def animate(*arguments: object) -> None:
    main(["animate", *map(str, arguments)])


def test_animate__has_a_frame_for_every_so_many_rounds_and_repeats_itself(tmp_path):
    paths = [tmp_path / "new" / "one.gif", tmp_path / "two.gif"]
    for path in paths:
        animate("--out", path, "--rounds", 7, "--every", 2, "--num-devices", 10)
    with Image.open(paths[0]) as picture:
        assert picture.n_frames == 3
        assert picture.size == (2 * 720, 600)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--every", 0], "every must be 1 to 300 rounds, got 0"),
        (["--every", 9, "--rounds", 8], "every must be 1 to 8 rounds, got 9"),
        (["--policies"], "at least one policy"),
        (["--out", "a.png"], "out must end in .gif"),
    ],
)
def test_animate__wrong_options_are_named(capsys, tmp_path, arguments, message):
    with pytest.raises(SystemExit) as raised:
        animate("--out", tmp_path / "a.gif", *arguments)
    assert raised.value.code == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
