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

from tests.support import Malicious, assert_data
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
        checksums[name] = write_pickle(folder / name, {"labels": labels, "data": data})
    meta = write_pickle(folder / "batches.meta", {"label_names": ["airplane"] * 10})
    monkeypatch.setattr(CIFAR10, "train_list", [[name, checksums[name]] for name in BATCHES[:5]])
    monkeypatch.setattr(CIFAR10, "test_list", [["test_batch", checksums["test_batch"]]])
    monkeypatch.setattr(CIFAR10, "meta", CIFAR10.meta | {"md5": meta})
    return written


def write_pickle(path: Path, entry: dict[str, object]) -> str:
    path.write_bytes(pickle.dumps(entry, protocol=2))  # the real files are Python 2's
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def test_cifar10__holds_every_image_of_every_batch(tmp_path, batches, monkeypatch):
    # What is there is not fetched.
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: pytest.fail("downloads"))
    dataset = cifar10(DataSource(tmp_path, download=True))
    pixels, labels = (
        [
            np.concatenate([batches[name][part] for name in names])
            for names in (BATCHES[:5], BATCHES[5:])
        ]
        for part in (0, 1)
    )
    assert_data(dataset, [data.reshape(-1, 3, 32, 32) / 255 for data in pixels], labels)
    assert (dataset.num_classes, dataset.augment) == (10, random_crop_and_flip)


@pytest.mark.parametrize("name", ["data_batch_1", "test_batch", "batches.meta"])
@pytest.mark.parametrize("word", ["missing", "damaged"])
@pytest.mark.usefixtures("batches")
def test_cifar10__a_missing_or_damaged_file_is_named_and_never_unpickled(tmp_path, name, word):
    path = tmp_path / "cifar-10-batches-py" / name
    path.unlink()
    if word == "damaged":
        path.write_bytes(pickle.dumps(Malicious(tmp_path / "run")))
    message = rf"^{re.escape(repr(str(path)))} is {word}: .*cifar-10-python\.tar\.gz"
    with pytest.raises(ValueError, match=message):
        cifar10(DataSource(tmp_path))
    assert not (tmp_path / "run").exists()


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


def test_random_crop_and_flip__every_result_is_a_crop_that_follows_the_rng_alone():
    images = torch.randn(50, 3, 9, 13, generator=torch.Generator().manual_seed(0))
    kept, state = images.clone(), torch.random.get_rng_state()
    rng = np.random.default_rng(5)
    first, next_one = (random_crop_and_flip(images, rng) for _ in range(2))
    choices = chosen_crops(9, 13, 50, seed=5)
    for image, crop, choice in zip(images.numpy(), first.numpy(), choices, strict=True):
        np.testing.assert_array_equal(crop, slow_crop(image, *choice))
    assert not torch.equal(first, next_one)
    assert torch.equal(images, kept)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert first.is_contiguous()


def test_random_crop_and_flip__all_81_offsets_and_mirroring_are_equally_likely():
    counts = np.zeros((9, 9, 2))
    for top, left, mirrored in chosen_crops(9, 10, 16_200, seed=0):
        counts[top, left, int(mirrored)] += 1
    assert counts.min() > 0
    assert chisquare(counts.ravel()).pvalue > 1e-3
