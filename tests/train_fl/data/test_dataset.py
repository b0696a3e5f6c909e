"""User-defined data sets."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from train_fl import Dataset

IMAGES = np.random.default_rng(0).normal(size=(6, 2, 3, 4))
LABELS = np.array([0, 4, 1, 1, 0, 2])


def from_arrays(**changes) -> Dataset:
    arrays = {
        "train_inputs": IMAGES,
        "train_targets": LABELS,
        "test_inputs": IMAGES[:3],
        "test_targets": LABELS[:3],
    }
    return Dataset.from_arrays(**{"name": "own"} | arrays | changes)


def changed(array: np.ndarray, index: object, value: float) -> np.ndarray:
    array = array.copy()
    array[index] = value
    return array


@pytest.mark.parametrize("convert", [np.ndarray.tolist, torch.as_tensor, np.uint8])
def test_from_arrays__takes_numbers_of_any_kind_and_copies_them(convert):
    images = np.arange(24.0).reshape(6, 1, 2, 2)
    arrays = images.copy(), LABELS.copy()
    given = [convert(array) for array in arrays]
    dataset = Dataset.from_arrays("own", *given, *arrays)
    for array in arrays:
        array[:] = -1
    for found in (dataset.train_inputs, dataset.test_inputs):
        assert found.dtype == torch.float32
        np.testing.assert_array_equal(found, images)
    for found in (dataset.train_targets, dataset.test_targets):
        assert found.dtype == torch.int64
        np.testing.assert_array_equal(found, LABELS)


@pytest.mark.parametrize(("test_label", "num_classes"), [(2, 5), (8, 9)])
def test_from_arrays__classes_reach_to_the_largest_label(test_label, num_classes):
    assert from_arrays(test_targets=[test_label] * 3).num_classes == num_classes


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("inputs", lambda a: a[:0], r"_inputs must have shape .*, got \(0, 2, 3, 4\)"),
        ("inputs", lambda a: changed(a, (1, 1, 2, 3), np.nan), "_inputs must be finite"),
        (
            "targets",
            lambda a: a[:-1],
            r"_targets must have shape \(\d,\), got",
        ),
        ("targets", lambda a: a > 0, "_targets must hold 64-bit integers, .*, got bool"),
        ("targets", lambda a: a + 0.5, "_targets must hold 64-bit integers, .*, got float64"),
        ("inputs", lambda a: a + 1j, "_inputs must hold real numbers, .*, got complex"),
        ("targets", lambda a: changed(a, 1, -2), "_targets must be at least 0 and .*, got -2"),
        ("targets", lambda a: changed(a, 1, 10**9), "_targets must be .* below 1000000, got 10000"),
        (
            "targets",
            lambda a: [2**64] * len(a),
            "_targets must hold 64-bit .*, got object",
        ),
    ],
)
def test_from_arrays__wrong_input_is_named(split, name, change, message):
    array = {"inputs": IMAGES, "targets": LABELS}[name][: 6 if split == "train" else 3]
    with pytest.raises(ValueError, match=f"^{split}{message}"):
        from_arrays(**{f"{split}_{name}": change(array)})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_inputs": IMAGES[:3, ..., :3]}, r"alike, .* \(2, 3, 4\) and .* \(2, 3, 3\)"),
        (
            {"test_inputs": np.ones((3, 3, 4), dtype=int)},
            r"alike, .* and torch.int64",
        ),
        ({"train_writers": [0, 1]}, r"train_writers must have shape \(6,\), got \(2,\)"),
        ({"train_writers": [0, 1, 2, -1, 0, 1]}, "train_writers must be at least 0, got -1"),
        *(({"name": name}, "name must be printable text, got") for name in (3, None, " ", "a\nb")),
    ],
)
def test_from_arrays__what_does_not_fit_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        from_arrays(**changes)


def test_from_arrays__keeps_the_writers_of_the_training_samples():
    writers = [2, 0, 1, 1, 0, 2]
    np.testing.assert_array_equal(from_arrays(train_writers=writers).train_writers, writers)


def pairs(images: np.ndarray, labels: np.ndarray) -> list[tuple[torch.Tensor, int]]:
    tensors = torch.from_numpy(images.astype(np.float32))
    return [(image, int(label)) for image, label in zip(tensors, labels, strict=True)]


def test_from_torch__is_that_of_its_arrays():
    made = Dataset.from_torch("own", pairs(IMAGES, LABELS), pairs(IMAGES[:3], LABELS[:3]))
    given = from_arrays()
    assert made.num_classes == given.num_classes == 5
    for name in ("train_inputs", "train_targets", "test_inputs", "test_targets"):
        assert torch.equal(getattr(made, name), getattr(given, name))


IMAGE = torch.zeros(1, 2, 2)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "train must hold samples"),
        ([IMAGE], r"train must hold samples \(input, class\)"),
        ([(IMAGE, 0), ("picture", 1)], "got a str: pass transform=ToTensor"),
        ([(IMAGE, "cat")], "train_targets must hold 64-bit .*, got <U3"),
        ([(IMAGE, 0), (IMAGE[:, :1], 1)], "must have the same shape"),
        ([(IMAGE, torch.tensor(1))], "classes from 0, but the smallest is 1: subtract it"),
    ],
)
def test_from_torch__names_what_is_no_sample(samples, message):
    with pytest.raises(ValueError, match=message):
        Dataset.from_torch("own", samples, pairs(IMAGES, LABELS))
