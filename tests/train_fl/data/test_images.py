"""Data sets of images from small files in their exact formats, and the augmentation."""

from __future__ import annotations

import gzip
import http.client
import pickle
import re
import shutil
import struct
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import chisquare

from fl_edge_env import Scenario
from tests.support import assert_data
from train_fl import TrainingEnvFactory
from train_fl.data.dataset import DataSource
from train_fl.data.images import (
    cifar10,
    digits,
    fashion_mnist,
    image_folder,
    random_crop_and_flip,
    standardise,
)

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


def write_images(folder: Path, num_classes: int, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Three images of each class to train and two to test, in the order of their names."""
    rng = np.random.default_rng(0)
    written = []
    for split, count in (("train", 3), ("test", 2)):
        images = rng.integers(0, 256, (num_classes, count, *shape), dtype=np.uint8)
        for label, number in np.ndindex(images.shape[:2]):
            path = folder / split / f"class {label}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[label, number]).save(path)
        written.append(images.reshape(-1, *shape))
    return written


@pytest.mark.parametrize(
    ("load", "shape", "num_classes"),
    [
        (image_folder, (4, 5), 3),
        (image_folder, (4, 5, 3), 2),
        (lambda folder: cifar10(DataSource(folder)), (32, 32, 3), 10),
    ],
)
def test_class_folders__hold_every_image(tmp_path, cache, monkeypatch, load, shape, num_classes):
    images = write_images(tmp_path, num_classes, shape)
    pixels = [split.reshape(len(split), *shape[:2], -1).transpose(0, 3, 1, 2) for split in images]
    labels = [np.repeat(np.arange(num_classes), count) for count in (3, 2)]
    first = load(tmp_path)
    monkeypatch.setattr(Image, "open", lambda _: pytest.fail("decodes it again"))
    for dataset in (first, load(tmp_path)):
        assert_data(dataset, [split / 255 for split in pixels], labels)
        assert dataset.num_classes == num_classes
        assert dataset.augment == (random_crop_and_flip if num_classes == 10 else None)
    assert len([*cache.iterdir()]) == 1


@pytest.mark.usefixtures("cache")
def test_class_folders__are_known_by_their_content(tmp_path):
    scenario = Scenario.digits(num_devices=3)

    def identity(folder: Path) -> list[object]:
        options = {"model": "small_colour", "learning_rate": 0.1}
        return TrainingEnvFactory(scenario, str(folder), **options).identity

    here = tmp_path / "here"
    images = write_images(here, 2, (32, 32, 3))
    before = identity(here)
    there = shutil.copytree(here, tmp_path / "there")
    assert identity(there) == before
    Image.fromarray(images[0][1]).save(there / "test/class 0/0.png")
    assert identity(there) != before


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda f: shutil.rmtree(f / "test/class 0"),
            "same classes, but only one has 'class 0'",
        ),
        (
            lambda f: (f / "test/class 0/1.png").write_bytes(b"P"),
            "cannot read .*test/class 0/1.png",
        ),
        (lambda f: Image.new("L", (5, 4)).save(f / "train/class 1/9.png"), "'L of .*class 1/9"),
        (lambda f: Image.new("RGB", (5, 3)).save(f / "test/class 0/1.jpg"), "5 by 3 .*/1.jpg"),
        (lambda f: Image.new("P", (5, 4)).save(f / "train/class 0/0.png"), "'P of .*class 0/0"),
        (
            lambda f: [path.unlink() for path in f.glob("train/class 1/*")],
            "cannot read images .*no valid file for the classes class 1",
        ),
        (lambda f: shutil.rmtree(f / "test"), "No such file or directory: .*test"),
    ],
)
def test_class_folders__what_is_wrong_is_named(tmp_path, change, message):
    write_images(tmp_path, 2, (4, 5, 3))
    change(tmp_path)
    with pytest.raises(ValueError, match=message):
        image_folder(tmp_path)


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
