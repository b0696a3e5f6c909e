"""Data sets of images from small files in their exact formats, and the augmentation."""

from __future__ import annotations

import gzip
import http.client
import pickle
import re
import struct
import urllib.error
import urllib.request

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from tests.support import assert_data
from train_fl.data.dataset import DataSource
from train_fl.data.images import cifar10, digits, fashion_mnist, random_crop_and_flip, standardise

BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
IDX = {
    "train-images-idx3-ubyte": (20, 28, 28),
    "train-labels-idx1-ubyte": (20,),
    "t10k-images-idx3-ubyte": (8, 28, 28),
    "t10k-labels-idx1-ubyte": (8,),
}


def test_standardise__a_channel_that_says_nothing_is_zero():
    for images in standardise(torch.ones(4, 3, 2, 2), torch.ones(2, 3, 2, 2)):
        assert torch.equal(images, torch.zeros_like(images))


def test_digits__holds_all_images_standardised():
    dataset = digits(DataSource())
    assert len(dataset.train_inputs) + len(dataset.test_inputs) == 1797
    moments = torch.std_mean(dataset.train_inputs)
    assert [*map(float, moments)] == pytest.approx([1, 0], abs=1e-5)
    assert set(dataset.test_targets.tolist()) == set(range(10))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Where Debian's package installs its files, which is not this machine's folder."""
    monkeypatch.setattr("train_fl.data.images._DEBIAN", tmp_path / "package")


@pytest.mark.parametrize(
    ("place", "kind"), [("FashionMNIST/raw", ""), ("", ".gz"), ("package", ".gz")]
)
@pytest.mark.usefixtures("package")
def test_fashion_mnist__holds_every_image_of_every_file(tmp_path, place, kind):
    rng = np.random.default_rng(0)
    folder = tmp_path / place
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {
        name: rng.integers(0, 256 if "images" in name else 10, shape) for name, shape in IDX.items()
    }
    for name, array in arrays.items():
        header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        content = header + array.astype(np.uint8).tobytes()
        (folder / f"{name}{kind}").write_bytes(gzip.compress(content) if kind else content)
    dataset = fashion_mnist(DataSource(tmp_path))
    assert dataset.num_classes == 10
    images = [arrays[name][:, None] / 255 for name in list(IDX)[::2]]
    assert_data(dataset, images, [arrays[name] for name in list(IDX)[1::2]])
    (folder / f"{name}{kind}").write_bytes(b"damaged")  # the last one, which holds test labels
    with pytest.raises(ValueError, match=f"^cannot read FashionMNIST in '{folder}' "):
        fashion_mnist(DataSource(tmp_path))


def test_cifar10__holds_every_image_of_every_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: pytest.fail("downloads"))
    # The checksums are those of the real files.
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    rng = np.random.default_rng(1)
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    batches = {
        name: {
            "data": rng.integers(0, 256, (4, 3072), dtype=np.uint8),
            "labels": rng.integers(0, 10, 4).tolist(),
        }
        for name in BATCHES
    }
    for name, content in (batches | {"batches.meta": {"label_names": ["airplane"] * 10}}).items():
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))  # Python 2's, as theirs
    dataset = cifar10(DataSource(tmp_path, download=True))
    pixels, labels = (
        [
            np.concatenate([batches[name][part] for name in names])
            for names in (BATCHES[:5], BATCHES[5:])
        ]
        for part in ("data", "labels")
    )
    assert_data(dataset, [data.reshape(-1, 3, 32, 32) / 255 for data in pixels], labels)
    assert (dataset.num_classes, dataset.augment) == (10, random_crop_and_flip)


@pytest.mark.parametrize(
    ("load", "name", "place"),
    [
        (fashion_mnist, "FashionMNIST", "FashionMNIST/raw"),
        (cifar10, "CIFAR10", "cifar-10-batches-py"),
    ],
)
@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("error", [urllib.error.URLError("x"), http.client.IncompleteRead(b"")])
def test_download__is_tried_if_asked_for_and_told_where_it_fails(
    tmp_path, monkeypatch, load, name, place, error
):
    tried = []

    def urlopen(*_, **__):
        tried.append(name)
        raise error

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    folder = re.escape(repr(str(tmp_path / place)))
    for download in (False, True):
        message = rf"{name}( in {folder} \(.+\))?: put its files there, give --download, or "
        with pytest.raises(ValueError, match=message):
            load(DataSource(tmp_path, download=download))
        assert bool(tried) == download


def test_random_crop_and_flip__follows_the_rng_alone():
    images = torch.randn(50, 3, 9, 13, generator=torch.Generator().manual_seed(0))
    kept = images.clone()
    state = torch.random.get_rng_state()
    rng = np.random.default_rng(5)
    first, next_one = (random_crop_and_flip(images, rng) for _ in range(2))
    assert torch.equal(first, random_crop_and_flip(images, np.random.default_rng(5)))
    assert not torch.equal(first, next_one)
    assert torch.equal(images, kept)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert first.is_contiguous()


def test_random_crop_and_flip__all_crops_are_equally_likely():
    # Each pixel says its image and its place; what is black comes from beyond the edge.
    image = np.arange(1, 181, dtype=np.float32).reshape(2, 9, 10)
    canvas = np.pad(image, ((0, 0), (4, 4), (4, 4)))
    options = {}
    for top, left in np.ndindex(9, 9):
        crop = canvas[:, top : top + 9, left : left + 10]
        for mirrored in (crop, crop[:, :, ::-1]):
            options[mirrored.tobytes()] = len(options)
    offset = 1000 * np.arange(16_200, dtype=np.float32)[:, None, None, None]
    crops = random_crop_and_flip(torch.from_numpy(image + offset), np.random.default_rng(0)).numpy()
    found = [options[crop.tobytes()] for crop in np.where(crops > 0, crops - offset, 0)]
    assert chisquare(np.bincount(found, minlength=162)).pvalue > 1e-3
