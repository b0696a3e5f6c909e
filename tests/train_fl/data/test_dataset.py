"""Data sets of one's own, and the scaling of images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from train_fl import Dataset
from train_fl.data.dataset import standardise

IMAGES = np.random.default_rng(0).normal(size=(6, 2, 3, 4))
LABELS = np.array([0, 4, 1, 1, 0, 2])


def from_arrays(**changes) -> Dataset:
    arrays = {
        "train_images": IMAGES,
        "train_labels": LABELS,
        "test_images": IMAGES[:3],
        "test_labels": LABELS[:3],
    }
    return Dataset.from_arrays("own", **arrays | changes)


def changed(array: np.ndarray, index: object, value: float) -> np.ndarray:
    array = array.copy()
    array[index] = value
    return array


def test_from_arrays__keeps_every_value_and_takes_nothing_else():
    dataset = from_arrays()
    assert dataset.name == "own"
    assert dataset.train_images.dtype == dataset.test_images.dtype == torch.float32
    assert dataset.train_labels.dtype == dataset.test_labels.dtype == torch.int64
    np.testing.assert_array_equal(dataset.train_images, IMAGES.astype(np.float32))
    np.testing.assert_array_equal(dataset.test_images, IMAGES[:3].astype(np.float32))
    np.testing.assert_array_equal(dataset.train_labels, LABELS)
    np.testing.assert_array_equal(dataset.test_labels, LABELS[:3])
    assert dataset.train_writers is None
    assert dataset.augment is None


@pytest.mark.parametrize(
    "convert",
    [
        np.ndarray.tolist,
        torch.as_tensor,
        lambda a: a.astype(np.uint8),
        lambda a: a[..., ::-1][..., ::-1],
        lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    ],
)
def test_from_arrays__takes_numbers_of_any_kind_and_copies_them(convert):
    images, labels = np.arange(24.0).reshape(6, 1, 2, 2), LABELS.copy()
    dataset = from_arrays(
        train_images=convert(images),
        train_labels=convert(labels),
        test_images=images,
        test_labels=labels,
    )
    images[:], labels[:] = -1, -1
    np.testing.assert_array_equal(dataset.train_images.flatten(), np.arange(24))
    np.testing.assert_array_equal(dataset.test_images, dataset.train_images)
    np.testing.assert_array_equal(dataset.train_labels, LABELS)


@given(st.lists(st.integers(0, 99), min_size=6, max_size=6), st.integers(0, 99))
def test_from_arrays__classes_reach_to_the_largest_label_of_either_split(labels, test_label):
    labels[0] = 0
    dataset = from_arrays(train_labels=labels, test_labels=[test_label] * 3)
    assert dataset.num_classes == max([*labels, test_label]) + 1


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("images", lambda a: a[:, 0], r"_images must have shape \(samples, channels, height"),
        ("images", lambda a: a[:0], r"_images must have shape .*, got \(0, 2, 3, 4\)"),
        ("images", lambda a: changed(a, (1, 1, 2, 3), np.nan), "_images must be finite"),
        ("labels", lambda a: a[:-1], r"_labels must be \d integers, one for each image"),
        ("labels", lambda a: a[:, None], "_labels must be .*, got int64 of shape"),
        ("labels", lambda a: a.astype(float), "_labels must be .*, got float64 of shape"),
        ("labels", lambda a: changed(a, 1, -2), "_labels must be at least 0, got -2"),
    ],
)
def test_from_arrays__wrong_input_is_named(split, name, change, message):
    array = {"images": IMAGES, "labels": LABELS}[name][: 6 if split == "train" else 3]
    with pytest.raises(ValueError, match=f"^{split}{message}"):
        from_arrays(**{f"{split}_{name}": change(array)})


def test_from_arrays__train_and_test_images_must_be_of_one_shape():
    message = r"must be of one shape, got \(2, 3, 4\) and \(2, 3, 3\)"
    with pytest.raises(ValueError, match=message):
        from_arrays(test_images=IMAGES[:3, ..., :3])


def test_standardise__each_channel_by_the_moments_of_the_training_images():
    rng = np.random.default_rng(1)
    scale, shift = np.array([1.0, 5.0, 0.1]), np.array([0.0, -3.0, 2.0])
    train, test = (
        (rng.normal(size=(n, 3, 4, 5)) * scale[:, None, None] + shift[:, None, None]).astype("f4")
        for n in (40, 30)
    )
    scaled = standardise(torch.from_numpy(train), torch.from_numpy(test))
    for channel in range(3):
        pixels = train[:, channel].astype(np.float64)
        for images, result in zip((train, test), scaled, strict=True):
            np.testing.assert_allclose(
                result[:, channel],
                (images[:, channel] - pixels.mean()) / pixels.std(ddof=1),
                rtol=1e-4,
                atol=1e-5,
            )
    assert [images.dtype for images in scaled] == [torch.float32] * 2
    train[:, 1] = test[:, 1] = 0.5
    for images in standardise(torch.from_numpy(train), torch.from_numpy(test)):
        assert (images[:, 1] == 0).all()  # a channel that says nothing, as of pictures without blue


class Pairs(torch.utils.data.Dataset):
    """Samples as torch's data sets give them."""

    def __init__(self, samples: list[object]) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> object:
        return self._samples[index]


def pairs(images: np.ndarray, labels: np.ndarray) -> Pairs:
    tensors = torch.from_numpy(images.astype(np.float32))
    return Pairs([(image, int(label)) for image, label in zip(tensors, labels, strict=True)])


def test_from_torch__is_that_of_its_arrays():
    made = Dataset.from_torch("own", pairs(IMAGES, LABELS), pairs(IMAGES[:3], LABELS[:3]))
    given = from_arrays()
    assert made.num_classes == given.num_classes == 5
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        assert torch.equal(getattr(made, name), getattr(given, name))


IMAGE = torch.zeros(1, 2, 2)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "train must hold samples, got none"),
        ([IMAGE], "pairs of an image and its class, sample 0 is a Tensor"),
        ([(IMAGE, 0), ("picture", 1)], "that of sample 1 is a str: give .*transform=ToTensor"),
        ([(IMAGE, 0.5)], "classes as integers, sample 0 has 0.5"),
        ([(IMAGE, 0), (IMAGE[:, :1], 1)], r"sample 0 has \(1, 2, 2\) and that of sample 1"),
        ([(IMAGE, torch.tensor(1))], "counted from 0, .* the least is 1: subtract it"),
    ],
)
def test_from_torch__names_what_is_no_sample(samples, message):
    with pytest.raises(ValueError, match=message):
        Dataset.from_torch("own", Pairs(samples), pairs(IMAGES, LABELS))


def write_pictures(folder: Path, classes: dict[str, int], rng: np.random.Generator) -> None:
    for name, count in classes.items():
        (folder / name).mkdir(parents=True)
        for index in range(count):
            pixels = rng.integers(256, size=(5, 4, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index}.png")


def test_from_folder__numbers_classes_by_name_and_standardises(tmp_path):
    rng = np.random.default_rng(0)
    write_pictures(tmp_path / "train", {"dog": 3, "cat": 2}, rng)
    write_pictures(tmp_path / "test", {"cat": 1, "dog": 1}, rng)
    dataset = Dataset.from_folder(tmp_path)
    assert dataset.name == tmp_path.name
    assert dataset.train_labels.tolist() == [0, 0, 1, 1, 1]
    assert dataset.test_labels.tolist() == [0, 1]
    pixels = [
        np.asarray(Image.open(path), dtype=np.float64).transpose(2, 0, 1)
        for path in sorted((tmp_path / "train").rglob("*.png"))
    ]
    mean = np.mean(pixels, axis=(0, 2, 3), keepdims=True)
    deviation = np.std(pixels, axis=(0, 2, 3), keepdims=True, ddof=1)
    np.testing.assert_allclose(dataset.train_images, (pixels - mean) / deviation, atol=1e-5)
    Image.fromarray(np.full((5, 4), 300, dtype=np.uint16)).save(tmp_path / "test/dog/0.png")
    with pytest.raises(ValueError, match=r"0\.png has more than 8 bits a channel: convert it"):
        Dataset.from_folder(tmp_path)
    (tmp_path / "test" / "dog" / "0.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=f"cannot read the pictures in '{tmp_path}"):
        Dataset.from_folder(tmp_path)
    (tmp_path / "test" / "dog" / "0.png").unlink()
    (tmp_path / "test" / "dog").rmdir()
    with pytest.raises(ValueError, match="the same classes, only one of them has dog"):
        Dataset.from_folder(tmp_path)
