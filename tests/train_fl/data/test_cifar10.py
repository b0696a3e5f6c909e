"""CIFAR-10 from small files in its exact format, and the augmentation."""

from __future__ import annotations

import hashlib
import pickle
import re
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torchvision.datasets import CIFAR10

from tests.support import Malicious, standard_images
from train_fl.data.cifar10 import cifar10, random_crop_and_flip
from train_fl.data.dataset import DataSource

BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


@pytest.fixture
def batches(tmp_path, monkeypatch) -> dict[str, tuple[np.ndarray, list[int]]]:
    """Small batches in the folder, and checksums that fit them."""
    rng = np.random.default_rng(1)
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    written, checksums = {}, {}
    for name in BATCHES:
        data = rng.integers(0, 256, (4, 3072), dtype=np.uint8)
        labels = rng.integers(0, 10, 4).tolist()
        written[name] = data, labels
        entry = {
            b"batch_label": name.encode(),
            b"labels": labels,
            b"data": data,
            b"filenames": [b"a.png"] * 4,
        }
        checksums[name] = write_pickle(folder / name, entry)
    meta = write_pickle(folder / "batches.meta", {b"label_names": [b"airplane"] * 10})
    monkeypatch.setattr(CIFAR10, "train_list", [[name, checksums[name]] for name in BATCHES[:5]])
    monkeypatch.setattr(CIFAR10, "test_list", [["test_batch", checksums["test_batch"]]])
    monkeypatch.setattr(CIFAR10, "meta", CIFAR10.meta | {"md5": meta})
    return written


def write_pickle(path: Path, entry: dict[bytes, object]) -> str:
    # The real files are written by Python 2, whose strings are read as latin-1.
    text = {key.decode("latin1"): value for key, value in entry.items()}
    path.write_bytes(pickle.dumps(text, protocol=2))
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def test_cifar10__holds_every_image_of_every_batch(tmp_path, batches, monkeypatch):
    # What is there is not fetched.
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: pytest.fail("downloads"))
    dataset = cifar10(DataSource(tmp_path, download=True))
    train = np.concatenate([batches[name][0] for name in BATCHES[:5]])
    train, test = (data.reshape(-1, 3, 32, 32) / 255 for data in (train, batches["test_batch"][0]))
    np.testing.assert_allclose(
        dataset.train_images, standard_images(train, train), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        dataset.test_images, standard_images(train, test), rtol=1e-4, atol=1e-5
    )
    train_labels = np.concatenate([batches[name][1] for name in BATCHES[:5]])
    np.testing.assert_array_equal(dataset.train_labels, train_labels)
    assert dataset.test_labels.tolist() == batches["test_batch"][1]
    assert dataset.train_images.dtype == dataset.test_images.dtype == torch.float32
    assert dataset.train_labels.dtype == dataset.test_labels.dtype == torch.int64
    assert dataset.train_images.is_contiguous()
    assert dataset.name == "cifar10"
    assert dataset.num_classes == 10
    assert dataset.train_writers is None
    assert dataset.augment is random_crop_and_flip


@pytest.mark.parametrize("name", ["data_batch_1", "data_batch_5", "test_batch", "batches.meta"])
@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (Path.unlink, "missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"!"), "damaged"),
    ],
)
@pytest.mark.usefixtures("batches")
def test_cifar10__a_missing_or_damaged_file_is_named(tmp_path, name, damage, word):
    path = tmp_path / "cifar-10-batches-py" / name
    damage(path)
    message = rf"^{re.escape(repr(str(path)))} is {word}: .*cifar-10-python\.tar\.gz"
    with pytest.raises(ValueError, match=message):
        cifar10(DataSource(tmp_path))


def test_cifar10__a_pickle_of_a_stranger_is_never_opened(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name, _ in [*CIFAR10.train_list, *CIFAR10.test_list, ["batches.meta", ""]]:
        (folder / name).write_bytes(pickle.dumps(Malicious(tmp_path / "run")))
    with pytest.raises(ValueError, match="data_batch_1' is damaged"):
        cifar10(DataSource(tmp_path))
    assert not (tmp_path / "run").exists()


def test_cifar10__a_batch_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    def forbidden(path: str, _: str) -> bool:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("train_fl.data.cifar10.check_integrity", forbidden)
    path = tmp_path / "cifar-10-batches-py" / "data_batch_1"
    path.parent.mkdir()
    path.touch()
    with pytest.raises(ValueError, match="data_batch_1' is damaged"):
        cifar10(DataSource(tmp_path))


def slow_crop(image: np.ndarray, top: int, left: int, mirrored: bool) -> np.ndarray:
    channels, height, width = image.shape
    canvas = np.zeros((channels, height + 8, width + 8), image.dtype)
    canvas[:, 4 : 4 + height, 4 : 4 + width] = image
    crop = canvas[:, top : top + height, left : left + width]
    return crop[:, :, ::-1] if mirrored else crop


def chosen_crops(height: int, width: int, count: int, seed: int) -> list[tuple[int, int, bool]]:
    """The changes of each image, found by trying every possibility."""
    image = np.arange(1, 2 * height * width + 1, dtype=np.float32).reshape(2, height, width)
    options = {
        slow_crop(image, top, left, mirrored).tobytes(): (top, left, mirrored)
        for top in range(9)
        for left in range(9)
        for mirrored in (False, True)
    }
    assert len(options) == 162
    images = torch.from_numpy(image).expand(count, -1, -1, -1)
    result = random_crop_and_flip(images, np.random.default_rng(seed))
    assert result.shape == images.shape
    return [options[crop.tobytes()] for crop in result.numpy()]


@pytest.mark.parametrize(("height", "width"), [(9, 13), (32, 32)])
def test_random_crop_and_flip__every_result_is_a_crop_and_no_two_images_are_mixed(height, width):
    rng = np.random.default_rng(0)
    images = rng.normal(size=(50, 3, height, width)).astype(np.float32)
    result = random_crop_and_flip(torch.from_numpy(images), np.random.default_rng(5)).numpy()
    choices = chosen_crops(height, width, 50, seed=5)
    for image, crop, choice in zip(images, result, choices, strict=True):
        np.testing.assert_array_equal(crop, slow_crop(image, *choice))


def test_random_crop_and_flip__all_81_offsets_and_mirroring_are_equally_likely():
    counts = np.zeros((9, 9, 2))
    for top, left, mirrored in chosen_crops(9, 10, 16_200, seed=0):
        counts[top, left, int(mirrored)] += 1
    assert counts.min() > 0
    assert chisquare(counts.ravel()).pvalue > 1e-3


def test_random_crop_and_flip__follows_the_rng_and_leaves_the_images_alone():
    images = torch.randn(20, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    kept, state = images.clone(), torch.random.get_rng_state()
    rng = np.random.default_rng(3)
    first, next_one = (random_crop_and_flip(images, rng) for _ in range(2))
    assert torch.equal(first, random_crop_and_flip(images, np.random.default_rng(3)))
    assert not torch.equal(first, next_one)
    assert torch.equal(images, kept)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert first.dtype == images.dtype
    assert first.is_contiguous()
