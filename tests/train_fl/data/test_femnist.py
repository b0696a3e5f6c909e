"""FEMNIST from files of LEAF and of the Hugging Face export: whole, damaged and hostile ones."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.support import draw_damage, little_memory, outcome
from train_fl import Dataset
from train_fl.data.dataset import DataSource
from train_fl.data.femnist import femnist

# Writers in the order of their names; the second and the last but one have too few samples.
SIZES = {"f0_1": 50, "f0_2": 49, "f1_0": 55, "f1_1": 67, "f1_3": 65, "f2_0": 4, "f3_9": 71}
ELIGIBLE = [writer for writer, size in SIZES.items() if size >= 50]

# Images of shape (samples, 28, 28) in 8 bits, and labels.
Samples = tuple[np.ndarray, np.ndarray]
Rows = list[dict[str, Any]]


def make_samples(number: int, size: int) -> Samples:
    """Samples that say in their first pixels who made them, which they are and their class."""
    rng = np.random.default_rng([number, size])
    images = np.full((size, 28, 28), 255, np.uint8)
    images[:, 10:14, 9:20] = rng.integers(0, 256, (size, 4, 11))
    labels = rng.integers(0, 62, size)
    images[:, 0, 0], images[:, 0, 1], images[:, 0, 2] = number, np.arange(size), labels
    return images, labels


PEOPLE = {writer: make_samples(n, size) for n, (writer, size) in enumerate(SIZES.items())}
ALONE = {"a": make_samples(0, 50)}


def in_thirds(people: dict[str, Samples]) -> list[dict[str, Samples]]:
    """Three files: every writer is in the first, and in one or both of the others."""
    files: list[dict[str, Samples]] = [{}, {}, {}]
    for number, (writer, (images, labels)) in enumerate(people.items()):
        cuts = [len(labels) // 5, [len(labels) // 2, len(labels)][number % 2]]
        pieces = zip(np.split(images, cuts), np.split(labels, cuts), strict=True)
        for file, piece in zip(files, pieces, strict=True):
            if len(piece[1]):
                file[writer] = piece
    return files


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


def png(image: np.ndarray, mode: str = "L", form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).convert(mode).save(buffer, format=form)
    return buffer.getvalue()


def parquet_rows(people: dict[str, Samples]) -> Rows:
    """The samples of all writers in turn, every other image in colour."""
    rows = [
        (index, {"image": {"bytes": png(image, ["L", "RGB"][index % 2])}}, writer, label)
        for writer, (images, labels) in people.items()
        for index, (image, label) in enumerate(zip(images, labels, strict=True))
    ]
    return [
        image | {"writer_id": writer, "hsf_id": 1, "character": int(label)}
        for _, image, writer, label in sorted(rows, key=lambda row: row[0])
    ]


def write_parquet(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, path, row_group_size=29, write_page_checksum=True)
    return path


def write(path: Path, people: dict[str, Samples]) -> Path:
    if path.suffix == ".json":
        return write_json(path, leaf(people))
    return write_parquet(path, parquet_rows(people))


def write_leaf_folder(folder: Path, people: dict[str, Samples], *, data_first: bool) -> None:
    for number, file in enumerate(in_thirds(people)):
        content = leaf(file) | {"hierarchies": [f"hsf_{n}" for n in range(len(file))]}
        if data_first:
            content = dict(reversed(content.items()))
        split = "train" if number else "test"
        write_json(folder / split / f"all_data_{number}_niid_keep_0_{split}_9.json", content)


FORMS = ["parquet", "leaf", "leaf with the data first"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    folders = {form: tmp_path_factory.mktemp(form.replace(" ", "_")) for form in FORMS}
    for number, file in enumerate(in_thirds(PEOPLE)):
        write_parquet(folders["parquet"] / "data" / f"{number}.parquet", parquet_rows(file))
    for form in FORMS[1:]:
        write_leaf_folder(folders[form], PEOPLE, data_first=form != "leaf")
    return folders


def load(folder: Path, num_devices: int = 1, seed: int = 0) -> Dataset:
    return femnist(DataSource(folder, num_devices=num_devices, seed=seed))


def signatures(images: torch.Tensor) -> np.ndarray:
    """Number of the writer, number of the sample and class, from the first pixels."""
    return np.rint(255 * images[:, 0, 0, :3].numpy()).astype(int)


def drawn_writers(dataset: Dataset) -> list[str]:
    return [list(SIZES)[n] for n in np.unique(signatures(dataset.train_inputs)[:, 0])]


def assert_equal(a: Dataset, b: Dataset, *, pixels: float = 0.0) -> None:
    for name in ("train", "test"):
        torch.testing.assert_close(
            getattr(a, f"{name}_inputs"), getattr(b, f"{name}_inputs"), rtol=0.0, atol=pixels
        )
        assert torch.equal(getattr(a, f"{name}_targets"), getattr(b, f"{name}_targets"))
    np.testing.assert_array_equal(a.train_writers, b.train_writers)


def test_femnist__every_sample_of_a_drawn_writer_is_in_one_split(folders):
    dataset = load(folders["parquet"], len(ELIGIBLE))
    found = []
    for images, labels in (
        (dataset.train_inputs, dataset.train_targets),
        (dataset.test_inputs, dataset.test_targets),
    ):
        assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)
        assert images.shape == (len(labels), 1, 28, 28)
        for image, label, (number, index, told) in zip(
            images[:, 0], labels, signatures(images), strict=True
        ):
            original = PEOPLE[list(SIZES)[number]][0][index]
            np.testing.assert_allclose(image, original / 255, atol=1e-6)
            assert label == told
            found.append((list(SIZES)[number], index))
    assert sorted(found) == [(writer, i) for writer in ELIGIBLE for i in range(SIZES[writer])]
    by_name = [ELIGIBLE[writer] for writer in dataset.train_writers]
    assert by_name == [list(SIZES)[n] for n in signatures(dataset.train_inputs)[:, 0]]
    assert dataset.num_classes == 62
    # A tenth of each writer's samples is held out.
    train = np.bincount(dataset.train_writers)
    total = np.array([SIZES[writer] for writer in ELIGIBLE])
    assert np.all(np.abs(train - 0.9 * total) <= 0.5)


@pytest.mark.parametrize("form", FORMS[1:])
@pytest.mark.parametrize("num_devices", [2, len(ELIGIBLE)])
def test_femnist__all_forms_give_the_same_data(folders, form, num_devices):
    datasets = [load(folders[f], num_devices, seed=4) for f in ("parquet", form)]
    assert_equal(*datasets, pixels=1e-6)


def test_femnist__the_draw_depends_on_the_seed_alone(folders, tmp_path):
    draws = {seed: drawn_writers(load(folders["parquet"], 2, seed)) for seed in range(12)}
    assert set().union(*draws.values()) == set(ELIGIBLE)
    assert len({tuple(draw) for draw in draws.values()}) >= 5
    shuffled = dict(reversed(PEOPLE.items())) | {"a": make_samples(90, 49)}
    write_parquet(tmp_path / "all.parquet", parquet_rows(shuffled))
    for seed in range(3):
        assert drawn_writers(load(tmp_path, 2, seed)) == draws[seed]
    assert_equal(load(tmp_path, 2, 5), load(tmp_path, 2, 5))
    held_out = [signatures(load(folders["parquet"], 5, seed).test_inputs) for seed in range(2)]
    for number in np.unique(held_out[0][:, 0]):
        first, second = (set(rows[rows[:, 0] == number, 1]) for rows in held_out)
        assert first != second
        assert first != set(range(len(first)))


@pytest.mark.parametrize("also", ["all_data", "raw_data"])
def test_femnist__what_else_leaf_leaves_in_the_folder_is_not_read_twice(tmp_path, also):
    write_leaf_folder(tmp_path, ALONE, data_first=False)
    alone = load(tmp_path)
    write_json(tmp_path / also / "all_data_0.json", leaf(ALONE))
    assert_equal(load(tmp_path), alone)
    for folder in ("train", "test"):
        shutil.rmtree(tmp_path / folder)
    if also == "all_data":
        write_json(tmp_path / "sampled_data" / "part.json", leaf(ALONE))
    assert len(load(tmp_path).train_targets) == 45


def test_femnist__what_the_folder_lacks_is_told(folders, tmp_path):
    message = re.escape(f"{str(folders['leaf'])!r} has 5 writers with at least 50 samples")
    with pytest.raises(ValueError, match=f"{message}, and num_devices is 6"):
        load(folders["leaf"], 6)
    with pytest.raises(ValueError, match="num_devices must be an integer of at least 1, got 0"):
        load(folders["leaf"], 0)
    message = re.escape(f"in {str(tmp_path)!r}")
    with pytest.raises(ValueError, match=rf"neither \.json nor \.parquet files {message}"):
        load(tmp_path)
    for name in ("a.json", "b.parquet"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=rf"both \.json and \.parquet files {message}"):
        load(tmp_path)


def assert_named(folder: Path, path: Path, num_devices: int = 1) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(repr(str(path)))} is damaged or not"):
        load(folder, num_devices)


def data(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], object]:
    """A change of the one writer's samples."""
    return lambda content: change(content["user_data"]["a"])


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: c.update(writers=c.pop("users")),
        lambda c: c.update(data=c.pop("user_data")),
        lambda c: c.update(num_samples=["many"]),
        lambda c: c.update(num_samples=[50, 60]),
        lambda c: c.update(num_samples=[70]),
        lambda c: c.update(users=["a", "a"], num_samples=[10, 50]),
        data(lambda d: d.update(labels=d.pop("y"))),
        data(lambda d: d["x"][0].__setitem__(0, float("nan"))),
        data(lambda d: d["x"][0].__setitem__(0, 1.01)),
        data(lambda d: d["x"][3].pop()),
        data(lambda d: [row.extend(row[:240]) for row in d["x"]]),
        data(lambda d: d["y"].__setitem__(7, 62)),
        data(lambda d: d["y"].__setitem__(7, -1)),
        data(lambda d: d["y"].__setitem__(7, 1.5)),
        data(lambda d: d["y"].pop()),
    ],
)
def test_femnist__a_leaf_file_with_something_wrong_is_named(tmp_path, damage):
    content = leaf(ALONE)
    damage(content)
    assert_named(tmp_path, write_json(tmp_path / "train" / "all_data_0.json", content))


PNG = png(ALONE["a"][0][0])


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        ({"character": 62}, [20]),
        ({"character": -1}, [20]),
        ({"image": None}, [20]),
        ({"image": {"bytes": b"no image at all"}}, [20]),
        ({"image": {"bytes": PNG[: len(PNG) // 2]}}, [20]),
        ({"image": {"bytes": PNG[:36] + bytes([PNG[36] ^ 105]) + PNG[37:]}}, [20]),
        ({"image": {"bytes": png(np.zeros((32, 32), np.uint8))}}, range(50)),
        ({"image": PNG}, range(50)),
        # Of other formats Pillow gives some to programs, such as Ghostscript.
        ({"image": {"bytes": png(ALONE["a"][0][0], form="GIF")}}, range(50)),
        ({"character": 1.0}, range(50)),
        ({}, "image"),
        ({}, "writer_id"),
    ],
)
def test_femnist__a_parquet_file_with_something_wrong_is_named(tmp_path, change, rows):
    content = parquet_rows(ALONE)
    for number in [] if isinstance(rows, str) else rows:
        content[number] |= change
    if isinstance(rows, str):  # a column that is missing
        content = [{key: value for key, value in row.items() if key != rows} for row in content]
    assert_named(tmp_path, write_parquet(tmp_path / "a.parquet", content))


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_femnist__of_several_files_the_damaged_one_is_named(tmp_path, form):
    paths = [tmp_path / f"{n}.{form}" for n in range(3)]
    for path, writer in zip(paths, "abc", strict=True):
        write(path, {writer: ALONE["a"]})
    whole = paths[1].read_bytes()
    for content in (whole[:-5], b"", b"version https://git-lfs.github.com/spec/v1"):
        paths[1].write_bytes(content)
        assert_named(tmp_path, paths[1], num_devices=3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, bytes]:
    """A file of each form."""
    folder = tmp_path_factory.mktemp("whole")
    return {form: write(folder / f"a.{form}", ALONE).read_bytes() for form in ("json", "parquet")}


def load_bytes(folder: Path, form: str, content: bytes) -> Dataset:
    (folder / f"a.{form}").write_bytes(content)
    return load(folder)


@given(st.data())
@pytest.mark.parametrize("form", ["json", "parquet"])
def test_femnist__damage_is_named_or_within_the_range_of_the_data(
    tmp_path_factory, whole, form, data
):
    folder, damaged = tmp_path_factory.mktemp(form), draw_damage(data, whole[form])
    dataset, message = outcome(lambda: load_bytes(folder, form, damaged))
    if message:
        assert f"a.{form}' is damaged or not a FEMNIST file" in message
    elif form == "json" and len(damaged) == len(whole[form]):  # it has no checksums
        assert len(dataset.train_targets) + len(dataset.test_targets) == 50
    else:  # what closes the last bracket alone, or a bit that means nothing
        assert_equal(dataset, load_bytes(folder, form, whole[form]))


def test_femnist__a_changed_class_in_a_parquet_file_is_named(tmp_path, whole):
    # Images have checksums of their own; of a class only its page has one.
    content = bytearray(whole["parquet"])
    classes = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0).column(3)
    assert classes.path_in_schema == "character"
    content[classes.dictionary_page_offset + classes.total_compressed_size - 2] ^= 1
    with pytest.raises(ValueError, match=r"a\.parquet' is damaged or not a FEMNIST file"):
        load_bytes(tmp_path, "parquet", bytes(content))


DEEP = b"[" * 50_000


@pytest.mark.parametrize(
    "content",
    [
        DEEP,
        b'{"users":["a"],"num_samples":[50],"user_data":{"a":{"y":[1],"x":' + DEEP,
        b'{"users":["a"],"num_samples":[50],"user_data":' + (b'{"a":' + b" " * 999) * len(DEEP),
    ],
)
def test_femnist__deep_brackets_are_refused_before_they_fill_the_memory(tmp_path, content):
    with little_memory(), pytest.raises(ValueError, match=r"a\.json' .*brackets open"):
        load_bytes(tmp_path, "json", content)


def test_femnist__more_samples_than_bytes_are_refused_without_counting_them(tmp_path):
    size = 5_000_000
    writers = pa.DictionaryArray.from_arrays(np.zeros(size, np.int32), ["a"])
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"writer_id": writers}), path, compression="zstd")
    assert path.stat().st_size < size / 50
    with little_memory(), pytest.raises(ValueError, match="more samples than it has bytes"):
        load(tmp_path)
