"""FEMNIST from small files in the formats of LEAF and of the Hugging Face export."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from train_fl import Dataset, make_task
from train_fl.data.dataset import DataSource
from train_fl.data.femnist import femnist

# Writers in the order of their names; the second and the last but one have too few samples.
SIZES = {"f0_1": 50, "f0_2": 49, "f1_0": 55, "f1_1": 64, "f1_3": 65, "f2_0": 4, "f3_9": 71}
ELIGIBLE = [writer for writer, size in SIZES.items() if size >= 50]

# Images of shape (samples, 28, 28) in 8 bits, and labels.
Samples = tuple[np.ndarray, np.ndarray]


def make_samples(number: int, size: int) -> Samples:
    """Samples that say in their first pixels who made them, which they are and their class."""
    rng = np.random.default_rng([number, size])
    images = np.full((size, 28, 28), 255, np.uint8)
    images[:, 10:14, 9:20] = rng.integers(0, 256, (size, 4, 11))
    labels = rng.integers(0, 62, size)
    images[:, 0, 0], images[:, 0, 1], images[:, 0, 2] = number, np.arange(size), labels
    return images, labels


@pytest.fixture(scope="module")
def people() -> dict[str, Samples]:
    return {writer: make_samples(n, size) for n, (writer, size) in enumerate(SIZES.items())}


def in_thirds(people: dict[str, Samples]) -> list[dict[str, Samples]]:
    """Three files: every writer is in the first, and in one or both of the others."""
    files: list[dict[str, Samples]] = [{}, {}, {}]
    for number, (writer, (images, labels)) in enumerate(people.items()):
        first, second = len(labels) // 5, [len(labels) // 2, len(labels)][number % 2]
        for file, piece in zip(
            files, (slice(first), slice(first, second), slice(second, None)), strict=True
        ):
            if len(labels[piece]):
                file[writer] = images[piece], labels[piece]
    return files


def leaf(people: dict[str, Samples]) -> dict[str, object]:
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


def png(image: np.ndarray, mode: str = "L") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).convert(mode).save(buffer, format="PNG")
    return buffer.getvalue()


def parquet_rows(people: dict[str, Samples]) -> list[dict[str, object]]:
    """The samples of all writers in turn."""
    rows = [
        (index, writer, image, label)
        for writer, (images, labels) in people.items()
        for index, (image, label) in enumerate(zip(images, labels, strict=True))
    ]
    return [
        {
            "image": {"bytes": png(image), "path": f"{writer}_{index}.png"},
            "writer_id": writer,
            "hsf_id": 1,
            "character": int(label),
        }
        for index, writer, image, label in sorted(rows, key=lambda row: row[0])
    ]


def write_parquet(path: Path, rows: list[dict[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=29)
    return path


def write_leaf_folder(folder: Path, people: dict[str, Samples], *, data_first: bool) -> None:
    test, *train = in_thirds(people)
    paths = [folder / "test" / "all_data_0_niid_keep_0_test_9.json"]
    paths += [folder / "train" / f"all_data_{n}_niid_keep_0_train_9.json" for n in range(2)]
    for path, file in zip(paths, (test, *train), strict=True):
        content = leaf(file) | {"hierarchies": [f"hsf_{n}" for n in range(len(file))]}
        if data_first:
            content = dict(reversed(content.items()))
        write_json(path, content)


def write_parquet_folder(folder: Path, people: dict[str, Samples]) -> None:
    for number, file in enumerate(in_thirds(people)):
        path = folder / "data" / f"train-{number:05d}-of-00003.parquet"
        write_parquet(path, parquet_rows(file))


FORMS = ["leaf", "leaf with the data first", "parquet"]


@pytest.fixture(scope="module")
def folders(people, tmp_path_factory) -> dict[str, Path]:
    folders = {form: tmp_path_factory.mktemp(form.replace(" ", "_")) for form in FORMS}
    write_leaf_folder(folders["leaf"], people, data_first=False)
    write_leaf_folder(folders["leaf with the data first"], people, data_first=True)
    write_parquet_folder(folders["parquet"], people)
    return folders


def load(folder: Path, num_devices: int, seed: int = 0) -> Dataset:
    return femnist(DataSource(folder, num_devices=num_devices, seed=seed))


def signatures(images: torch.Tensor) -> np.ndarray:
    """Number of the writer, number of the sample and class, from the first pixels."""
    return np.rint(255 * images[:, 0, 0, :3].numpy()).astype(int)


def drawn_writers(dataset: Dataset) -> list[str]:
    numbers = np.unique(signatures(dataset.train_images)[:, 0])
    return [list(SIZES)[number] for number in numbers]


def assert_equal(a: Dataset, b: Dataset, *, pixels: float = 0.0) -> None:
    for name in ("train", "test"):
        torch.testing.assert_close(
            getattr(a, f"{name}_images"), getattr(b, f"{name}_images"), rtol=0.0, atol=pixels
        )
        assert torch.equal(getattr(a, f"{name}_labels"), getattr(b, f"{name}_labels"))
    np.testing.assert_array_equal(a.train_writers, b.train_writers)


@pytest.mark.parametrize("form", FORMS)
def test_femnist__every_sample_of_a_drawn_writer_is_in_one_split(folders, people, form):
    dataset = load(folders[form], len(ELIGIBLE))
    train, test = signatures(dataset.train_images), signatures(dataset.test_images)
    found = sorted(map(tuple, np.concatenate([train, test])))
    expected = [
        (number, index, int(label))
        for number, writer in enumerate(SIZES)
        if writer in ELIGIBLE
        for index, label in enumerate(people[writer][1])
    ]
    assert found == expected
    np.testing.assert_array_equal(dataset.train_labels, train[:, 2])
    np.testing.assert_array_equal(dataset.test_labels, test[:, 2])


@pytest.mark.parametrize("form", FORMS)
def test_femnist__pixels_go_from_0_to_1_and_train_writers_say_who_made_them(folders, people, form):
    dataset = load(folders[form], 3)
    chosen = drawn_writers(dataset)
    assert len(chosen) == 3
    for images, labels in (
        (dataset.train_images, dataset.train_labels),
        (dataset.test_images, dataset.test_labels),
    ):
        assert images.dtype == torch.float32
        assert labels.dtype == torch.int64
        assert images.shape == (len(labels), 1, 28, 28)
        for image, (number, index, _) in zip(images[:, 0], signatures(images), strict=True):
            original = people[list(SIZES)[number]][0][index]
            np.testing.assert_allclose(image, original / 255, atol=1e-6)
    by_name = [chosen[writer] for writer in dataset.train_writers]
    assert by_name == [list(SIZES)[n] for n in signatures(dataset.train_images)[:, 0]]
    assert dataset.train_writers.dtype.kind == "i"
    assert dataset.num_classes == 62
    assert dataset.name == "femnist"
    assert dataset.augment is None


@pytest.mark.parametrize("size", [50, 55, 74])
def test_femnist__a_tenth_of_each_writer_is_held_out(tmp_path, size):
    people = {f"f{number}": make_samples(number, size + number) for number in range(3)}
    write_parquet(tmp_path / "a.parquet", parquet_rows(people))
    dataset = load(tmp_path, 3)
    train = np.bincount(signatures(dataset.train_images)[:, 0])
    test = np.bincount(signatures(dataset.test_images)[:, 0])
    np.testing.assert_array_equal(train + test, [size, size + 1, size + 2])
    assert np.all(np.abs(test - (train + test) / 10) <= 0.5)


def test_femnist__the_draw_depends_on_the_seed_alone(folders, people, tmp_path):
    draws = {seed: drawn_writers(load(folders["parquet"], 2, seed)) for seed in range(12)}
    assert set().union(*draws.values()) == set(ELIGIBLE)
    assert len({tuple(draw) for draw in draws.values()}) >= 5
    shuffled = dict(reversed(people.items())) | {"a": make_samples(90, 49)}
    write_parquet(tmp_path / "all.parquet", parquet_rows(shuffled))
    for seed in range(3):
        assert drawn_writers(load(tmp_path, 2, seed)) == draws[seed]
    assert_equal(load(tmp_path, 2, 5), load(tmp_path, 2, 5))
    held_out = [signatures(load(folders["parquet"], 5, seed).test_images) for seed in range(2)]
    for number in np.unique(held_out[0][:, 0]):
        first, second = (set(rows[rows[:, 0] == number, 1]) for rows in held_out)
        assert first != second
        assert first != set(range(len(first)))


@pytest.mark.parametrize("form", FORMS[1:])
def test_femnist__both_forms_give_the_same_data(folders, form):
    datasets = [load(folders[f], 2, seed=4) for f in ("leaf", form)]
    assert_equal(*datasets, pixels=1e-6)


def test_femnist__pixels_of_8_bits_are_those_of_leaf_rounded(tmp_path):
    exact = np.random.default_rng(0).random((52, 28, 28))
    labels = np.arange(52)
    content = leaf({"a": (255 * exact, labels)})
    write_json(tmp_path / "leaf" / "a.json", content)
    rounded = np.rint(255 * exact).astype(np.uint8)
    write_parquet(tmp_path / "hf" / "a.parquet", parquet_rows({"a": (rounded, labels)}))
    assert_equal(load(tmp_path / "leaf", 1), load(tmp_path / "hf", 1), pixels=0.5 / 255 + 1e-6)


def test_femnist__images_in_colour_are_those_in_grey(tmp_path, rows):
    write_parquet(tmp_path / "grey" / "a.parquet", rows)
    images, _ = make_samples(0, 50)
    rows = [
        row | {"image": {"bytes": png(image, "RGB")}}
        for row, image in zip(rows, images, strict=True)
    ]
    write_parquet(tmp_path / "colour" / "a.parquet", rows)
    assert_equal(load(tmp_path / "grey", 1), load(tmp_path / "colour", 1))


def test_femnist__takes_more_rows_than_are_in_memory_at_a_time(tmp_path):
    people = {writer: make_samples(number, 250) for number, writer in enumerate("abcdef")}
    write_parquet(tmp_path / "a.parquet", parquet_rows(people))
    dataset = load(tmp_path, 6)
    found = np.concatenate([signatures(dataset.train_images), signatures(dataset.test_images)])
    assert len(np.unique(found[:, :2], axis=0)) == len(found) == 1500


def test_femnist__too_few_writers_are_told(folders):
    message = re.escape(f"{str(folders['leaf'])!r} has 5 writers with at least 50 samples")
    with pytest.raises(ValueError, match=f"{message}, and num_devices is 6"):
        load(folders["leaf"], 6)


def test_femnist__files_of_no_form_or_of_both_are_told(tmp_path):
    message = re.escape(f"in {str(tmp_path)!r}")
    with pytest.raises(ValueError, match=rf"neither \.json nor \.parquet files {message}"):
        load(tmp_path, 1)
    (tmp_path / "a.json").touch()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a.parquet").touch()
    with pytest.raises(ValueError, match=rf"both \.json and \.parquet files {message}"):
        load(tmp_path, 1)


def assert_named(folder: Path, path: Path, num_devices: int = 1) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(repr(str(path)))} is damaged or not"):
        load(folder, num_devices)


@pytest.fixture(scope="module")
def one_leaf() -> str:
    return json.dumps(leaf({"a": make_samples(0, 50)}))


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    return parquet_rows({"a": make_samples(0, 50)})


def data(change: Callable[[dict], object]) -> Callable[[dict], object]:
    """A change of the one writer's samples."""
    return lambda content: change(content["user_data"]["a"])


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: c.update(writers=c.pop("users")),
        lambda c: c.update(counts=c.pop("num_samples")),
        lambda c: c.update(data=c.pop("user_data")),
        lambda c: c.update(num_samples=["many"]),
        lambda c: c.update(num_samples=[50, 60]),
        lambda c: c.update(num_samples=[70]),
        lambda c: c.update(users=["a", "a"], num_samples=[10, 50]),
        lambda c: c["user_data"].pop("a"),
        data(lambda d: d.update(labels=d.pop("y"))),
        data(lambda d: d["x"][0].__setitem__(0, float("nan"))),
        data(lambda d: d["x"][0].__setitem__(0, "white")),
        data(lambda d: d["x"][0].__setitem__(0, None)),
        data(lambda d: d["x"][0].__setitem__(0, 1.01)),
        data(lambda d: d["x"][3].pop()),
        data(lambda d: [row.extend(row[:240]) for row in d["x"]]),
        data(lambda d: d.update(x=3.0)),
        data(lambda d: d["y"].__setitem__(7, 62)),
        data(lambda d: d["y"].__setitem__(7, -1)),
        data(lambda d: d["y"].__setitem__(7, 1.5)),
        data(lambda d: d["y"].__setitem__(7, None)),
        data(lambda d: d["y"].pop()),
        data(lambda d: d.update(x=d["x"][:3], y=d["y"][:3])),
    ],
)
def test_femnist__a_leaf_file_with_something_wrong_is_named(tmp_path, one_leaf, damage):
    content = json.loads(one_leaf)
    damage(content)
    assert_named(tmp_path, write_json(tmp_path / "train" / "all_data_0.json", content))


@pytest.mark.parametrize("text", ["", "{}", "version https://git-lfs.github.com/spec/v1"])
@pytest.mark.parametrize("form", ["json", "parquet"])
def test_femnist__a_file_of_another_kind_is_named(tmp_path, text, form):
    path = tmp_path / f"data.{form}"
    path.write_text(text)
    assert_named(tmp_path, path)


def test_femnist__of_several_files_the_damaged_one_is_named(tmp_path, one_leaf, rows):
    (tmp_path / "json").mkdir()
    paths = [tmp_path / "json" / f"{n}.json" for n in range(3)]
    for path, writer in zip(paths, "abc", strict=True):
        path.write_text(one_leaf.replace('"a"', f'"{writer}"'))
    paths[1].write_text(one_leaf.replace('"a"', '"b"')[:-5])
    assert_named(tmp_path / "json", paths[1], num_devices=3)

    paths = [tmp_path / "parquet" / f"{n}.parquet" for n in range(3)]
    for path, writer in zip(paths, "abc", strict=True):
        write_parquet(path, [row | {"writer_id": writer} for row in rows])
    paths[1].write_bytes(paths[1].read_bytes()[:-5])
    assert_named(tmp_path / "parquet", paths[1], num_devices=3)


PNG = png(make_samples(0, 1)[0][0])


def in_row_20(**change: object) -> Callable[[int], dict]:
    return lambda number: change if number == 20 else {}


def in_all(**change: object) -> Callable[[int], dict]:
    return lambda _: change


@pytest.mark.parametrize(
    "change",
    [
        in_row_20(character=62),
        in_row_20(character=-1),
        in_row_20(character=None),
        in_row_20(image=None),
        in_row_20(image={"bytes": b"no image at all"}),
        in_row_20(image={"bytes": PNG[: len(PNG) // 2]}),
        in_row_20(image={"bytes": PNG[:36] + bytes([PNG[36] ^ 105]) + PNG[37:]}),
        in_row_20(image={"bytes": png(np.zeros((28, 27), np.uint8))}),
        in_all(image={"bytes": png(np.zeros((32, 32), np.uint8))}),
        in_all(image=PNG),
        in_all(character=1.0),
        in_all(character="7"),
        "image",
        "writer_id",
        "character",
    ],
)
def test_femnist__a_parquet_file_with_something_wrong_is_named(tmp_path, rows, change):
    if isinstance(change, str):  # a missing column
        rows = [{key: value for key, value in row.items() if key != change} for row in rows]
    else:
        rows = [row | change(number) for number, row in enumerate(rows)]
    assert_named(tmp_path, write_parquet(tmp_path / "a.parquet", rows))


@pytest.mark.parametrize("also", ["all_data", "raw_data"])
def test_femnist__what_else_leaf_leaves_in_the_folder_is_not_read_twice(tmp_path, also):
    people = {"a": make_samples(0, 50)}
    write_leaf_folder(tmp_path, people, data_first=False)
    alone = femnist(DataSource(tmp_path, num_devices=1))
    write_json(tmp_path / also / "all_data_0.json", leaf(people))
    dataset = femnist(DataSource(tmp_path, num_devices=1))
    assert len(dataset.train_labels) + len(dataset.test_labels) == 50
    torch.testing.assert_close(dataset.train_images, alone.train_images)
    for folder in ("train", "test"):
        shutil.rmtree(tmp_path / folder)
    if also == "all_data":
        (tmp_path / "sampled_data").mkdir()
        write_json(tmp_path / "sampled_data" / "part.json", leaf(people))
    assert len(femnist(DataSource(tmp_path, num_devices=1)).train_labels) == 45


@pytest.mark.parametrize("num_devices", [0, 2.5])
def test_make_task__femnist_refuses_what_is_no_number_of_devices(tmp_path, num_devices):
    write_parquet(tmp_path / "a.parquet", parquet_rows({"a": make_samples(0, 50)}))
    with pytest.raises(ValueError, match="num_devices must be"):
        make_task("femnist", data_dir=tmp_path, num_devices=num_devices)
