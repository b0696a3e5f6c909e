"""FEMNIST from LEAF's files, whole and damaged ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from train_fl import Dataset
from train_fl.data.dataset import DataSource
from train_fl.data.femnist import femnist

pytestmark = pytest.mark.usefixtures("cache")

# Writers in the order of their names; the second and the last but one have too few samples.
SIZES = {"f0_1": 50, "f0_2": 49, "f1_0": 55, "f1_1": 67, "f1_3": 65, "f2_0": 4, "f3_9": 71}
ELIGIBLE = [writer for writer, size in SIZES.items() if size >= 50]

# Images of shape (samples, 28, 28) in 8 bits, and labels.
Samples = tuple[np.ndarray, np.ndarray]


def make_samples(number: int, size: int) -> Samples:
    """Samples that say in their first pixels who made them, which they are and their class."""
    rng = np.random.default_rng([number, size])
    images = np.full((size, 28, 28), 255, np.uint8)
    images[:, 10:14, 9:20] = rng.integers(0, 256, (size, 4, 11))
    labels = rng.integers(0, 62, size)
    images[:, 0, 0] = number
    images[:, 0, 1] = np.arange(size)
    images[:, 0, 2] = labels
    return images, labels


PEOPLE = {writer: make_samples(n, size) for n, (writer, size) in enumerate(SIZES.items())}
ALONE = {"a": make_samples(0, 50)}


def leaf(people: dict[str, Samples]) -> dict[str, Any]:
    return {
        "users": list(people),
        "num_samples": [len(labels) for _, labels in people.values()],
        "user_data": {
            writer: {"x": (images.reshape(-1, 784) / 255).tolist(), "y": labels.tolist()}
            for writer, (images, labels) in people.items()
        },
    }


def write_json(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Three files: every writer is in two of them."""
    folder = tmp_path_factory.mktemp("leaf")
    files: list[dict[str, Samples]] = [{}, {}, {}]
    for number, (writer, (images, labels)) in enumerate(PEOPLE.items()):
        half = len(labels) // 2
        files[number % 3][writer] = images[:half], labels[:half]
        files[(number + 1) % 3][writer] = images[half:], labels[half:]
    for number, file in enumerate(files):
        content = leaf(file) | {"hierarchies": [f"hsf_{n}" for n in range(len(file))]}
        split = "train" if number else "test"
        write_json(folder / split / f"all_data_{number}_niid_keep_0_{split}_9.json", content)
    return folder


def load(folder: Path, num_devices: int = 1, seed: int = 0) -> Dataset:
    return femnist(DataSource(folder, num_devices=num_devices, seed=seed))


def signatures(images: torch.Tensor) -> np.ndarray:
    """Number of the writer, number of the sample and class, from the first pixels."""
    return np.rint(255 * images[:, 0, 0, :3].numpy()).astype(int)


def drawn_writers(dataset: Dataset) -> list[str]:
    return [list(SIZES)[n] for n in np.unique(signatures(dataset.train_inputs)[:, 0])]


def assert_equal(a: Dataset, b: Dataset) -> None:
    for name in ("train_inputs", "train_targets", "test_inputs", "test_targets"):
        assert torch.equal(getattr(a, name), getattr(b, name))
    np.testing.assert_array_equal(a.train_writers, b.train_writers)


def test_femnist__every_sample_of_a_drawn_writer_is_in_one_split(folder):
    dataset = load(folder, len(ELIGIBLE))
    images = torch.cat([dataset.train_inputs, dataset.test_inputs])
    labels = torch.cat([dataset.train_targets, dataset.test_targets])
    assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)
    assert images.shape == (len(labels), 1, 28, 28)
    found = []
    for image, label, (number, index, told) in zip(images, labels, signatures(images), strict=True):
        writer = list(SIZES)[number]
        np.testing.assert_allclose(image[0], PEOPLE[writer][0][index] / 255, atol=1e-6)
        assert label == told
        found.append((writer, index))
    assert sorted(found) == [(writer, i) for writer in ELIGIBLE for i in range(SIZES[writer])]
    by_name = [ELIGIBLE[writer] for writer in dataset.train_writers]
    assert by_name == [writer for writer, _ in found[: len(by_name)]]
    assert dataset.num_classes == 62
    # A tenth of each writer's samples is held out.
    total = np.array([SIZES[writer] for writer in ELIGIBLE])
    assert np.all(np.abs(np.bincount(dataset.train_writers) - 0.9 * total) <= 0.5)


def test_femnist__the_draw_depends_on_the_seed_alone(folder, tmp_path):
    draws = [drawn_writers(load(folder, 2, seed)) for seed in range(8)]
    assert set().union(*draws) == set(ELIGIBLE)
    assert len(set(map(tuple, draws))) >= 5
    shuffled = dict(reversed(PEOPLE.items())) | {"a": make_samples(90, 49)}
    write_json(tmp_path / "all.json", leaf(shuffled))
    assert [drawn_writers(load(tmp_path, 2, seed)) for seed in range(3)] == draws[:3]
    assert_equal(load(tmp_path, 2, 5), load(tmp_path, 2, 5))
    held_out = [signatures(load(folder, 5, seed).test_inputs) for seed in range(2)]
    for number in range(len(SIZES)):
        first, second = (set(rows[rows[:, 0] == number, 1]) for rows in held_out)
        assert not first or first != second


# Folders of copies of the same 50 samples, and where FLEdge reads them.
PLACES = {
    "train test": "train test",
    "train test all_data . raw_data": "train test",
    "train all_data . .cache": "all_data",
    ". train": ".",
}


@pytest.mark.parametrize(("places", "read"), PLACES.items())
def test_femnist__reads_each_sample_from_one_place(tmp_path, places, read):
    images, labels = ALONE["a"]
    for place in places.split():
        half = {"train": slice(40), "test": slice(40, None)}.get(place, slice(None))
        write_json(tmp_path / place / "0.json", leaf({"a": (images[half], labels[half])}))
    dataset = load(tmp_path)
    found = np.concatenate([signatures(dataset.train_inputs), signatures(dataset.test_inputs)])
    assert sorted(found[:, 1]) == list(range(50))
    for place in set(places.split()) - set(read.split()):
        (tmp_path / place / "0.json").write_text("never read")
    assert_equal(load(tmp_path), dataset)


@pytest.mark.parametrize("share", [0.02, 1.0])
def test_femnist__repeated_samples_are_used_once(tmp_path, share):
    images, labels = ALONE["a"]
    again = slice(round(share * 50))
    write_json(tmp_path / "0.json", leaf(ALONE))
    expected = load(tmp_path)
    write_json(tmp_path / "1.json", leaf({"a": (images[again], labels[again])}))
    assert_equal(load(tmp_path), expected)


def test_femnist__reads_the_text_of_a_file_once(tmp_path, cache, monkeypatch):
    write_json(tmp_path / "0.json", leaf(ALONE))
    expected = load(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(json, "loads", lambda _: pytest.fail("reads it again"))
        assert_equal(load(tmp_path), expected)
    (kept,) = cache.iterdir()
    kept.write_bytes(kept.read_bytes().replace(b"\0", b"\1"))  # damaged
    assert_equal(load(tmp_path), expected)
    monkeypatch.setenv("XDG_CACHE_HOME", str(kept))  # no folder
    assert_equal(load(tmp_path), expected)


def test_femnist__what_the_folder_lacks_is_told(folder, tmp_path):
    message = re.escape(f"{str(folder)!r} has 5 writers with at least 50 samples")
    with pytest.raises(ValueError, match=f"{message}, but num_devices is 6"):
        load(folder, 6)
    with pytest.raises(ValueError, match=re.escape(f"{str(tmp_path)!r} has no .json files")):
        load(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.update(labels=d.pop("y")),
        lambda d: d["x"][0].__setitem__(0, float("nan")),
        lambda d: d["x"][0].__setitem__(0, 1.01),
        lambda d: d["x"][0].__setitem__(0, "0.5"),
        lambda d: d["x"][3].pop(),
        lambda d: d["x"].pop(),
        lambda d: d["y"].__setitem__(7, 62),
        lambda d: d["y"].__setitem__(7, -1),
        lambda d: d["y"].__setitem__(7, True),
    ],
)
def test_femnist__a_leaf_file_with_something_wrong_is_named(tmp_path, damage):
    content = leaf(ALONE)
    damage(content["user_data"]["a"])
    path = write_json(tmp_path / "all_data_0.json", content)
    with pytest.raises(ValueError, match=f"^{re.escape(repr(str(path)))} is damaged or not"):
        load(tmp_path)


@pytest.mark.parametrize("content", ['{"data": {}}', "", "version https://git", "[" * 50_000])
def test_femnist__of_several_files_the_damaged_one_is_named(tmp_path, content):
    paths = [write_json(tmp_path / f"{w}.json", leaf({w: ALONE["a"]})) for w in "abc"]
    paths[1].write_text(content)
    with pytest.raises(ValueError, match=f"^{re.escape(repr(str(paths[1])))} is damaged or not"):
        load(tmp_path, 3)
