"""User-defined data sets."""

from __future__ import annotations

import dataclasses

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
    assert from_arrays(test_targets=[8] * 3).num_classes == 9


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("inputs", lambda a: changed(a, (1, 1, 2, 3), np.nan), "_inputs must be finite"),
        ("inputs", lambda a: a + 1j, "_inputs must hold real numbers, .*, got complex"),
        ("targets", lambda a: a > 0, "_targets must hold 64-bit integers, .*, got bool"),
        ("targets", lambda a: [2**64] * len(a), "_targets must hold 64-bit .*, got object"),
        ("targets", lambda a: changed(a, 1, 10**9), "_targets must .* 0 to 999999, .* to 10000"),
        ("targets", lambda a: a[:0], r"_targets must be .* of shape \(6,\), .* of shape \(0,\)"),
    ],
)
@pytest.mark.parametrize("split", ["train", "test"])
def test_from_arrays__wrong_input_is_named(split, name, change, message):
    array = {"inputs": IMAGES, "targets": LABELS}[name]
    given = {"test_inputs": IMAGES, "test_targets": LABELS} | {f"{split}_{name}": change(array)}
    with pytest.raises(ValueError, match=f"^{split}{message}"):
        from_arrays(**given)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("train_inputs", lambda a: a[:0], r"train_inputs must have shape .* got \(0, 2, 3, 4\)"),
        ("test_inputs", lambda a: a[:, 0, 0, 0], r"test_inputs must .* \(3,\): write a single col"),
        ("train_targets", lambda a: a[:-1], r"\(6,\), as many as train_inputs, got .* \(5,\)"),
        ("test_targets", lambda a: a[:, None], r"\(3,\), as many as test_inputs, got .* \(3, 1\)"),
        ("test_targets", torch.Tensor.int, "test_targets must be int64 .*, got torch.int32"),
        ("train_targets", lambda a: a - 1, "train_targets must be from 0 to 4, got -1 to 3"),
        ("test_targets", lambda a: a + 1, "test_targets must be from 0 to 4, got 1 to 5"),
        ("test_inputs", lambda a: a[..., :3], r"alike, .* \(2, 3, 4\) and .* \(2, 3, 3\)"),
        ("test_inputs", torch.Tensor.long, "alike, .* and torch.int64"),
        ("train_writers", lambda _: np.arange(5), r"\(6,\), as many as train_inputs, got \(5,\)"),
        ("train_writers", lambda _: np.arange(-1, 5), "train_writers must be at least 0, got -1"),
        *(("name", lambda _, n=n: n, "name must be printable") for n in (3, None, " ", "a\nb")),
    ],
)
def test_dataset__arrays_that_do_not_fit_are_named(name, change, message):
    dataset = from_arrays()
    value = change(getattr(dataset, name))
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(dataset, **{name: value})


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
        ([(IMAGE, 0), ("picture", 1)], "transform=.* expected Tensor .* got str"),
        ([(IMAGE, "cat")], "train_targets must hold 64-bit .*, got <U3"),
        ([(IMAGE, 0), (IMAGE[:, :1], 1)], "inputs of one shape, .* got .*1, 2, 2"),
        ([(IMAGE, torch.tensor(1))], "classes from 0, but the smallest is 1: subtract it"),
    ],
)
def test_from_torch__names_what_is_no_sample(samples, message):
    with pytest.raises(ValueError, match=message):
        Dataset.from_torch("own", samples, pairs(IMAGES, LABELS))
