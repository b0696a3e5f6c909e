"""Data sets of images from small files in their exact formats, and the augmentation."""

from __future__ import annotations

import gzip
import http.client
import pickle
import re
import shutil
import struct
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import chisquare

from fl_edge_env import Scenario
from tests.support import assert_data, global_states
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
    arrays = []
    contents = []
    for name, shape in IDX.items():
        arrays.append(rng.integers(0, 256 if "images" in name else 10, shape, dtype=np.uint8))
        content = struct.pack(f">I{len(shape)}I", 2048 + len(shape), *shape) + arrays[-1].tobytes()
        contents.append(gzip.compress(content) if kind else content)
        (folder / f"{name}{kind}").write_bytes(contents[-1])
    dataset = fashion_mnist(DataSource(tmp_path))
    assert dataset.num_classes == 10
    assert_data(dataset, [images[:, None] / 255 for images in arrays[::2]], arrays[1::2])
    (folder / f"{name}{kind}").write_bytes(contents[1])  # test labels of the other split
    message = r"test_targets must .*\(8,\), as many as test_inputs, .*\(20,\)"
    with pytest.raises(ValueError, match=rf"^cannot read FashionMNIST in '{folder}' \({message}"):
        fashion_mnist(DataSource(tmp_path))
    (folder / f"{name}{kind}").rename(folder / "t10k-labels.idx1-ubyte")  # as others call it
    with pytest.raises(ValueError, match=r"No such file.*put .*, t10k-labels-idx1-ubyte, also as"):
        fashion_mnist(DataSource(tmp_path))


def test_cifar10__holds_every_image_of_every_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: pytest.fail("downloads"))
    # The checksums are those of the real files.
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    pixels = np.random.default_rng(1).integers(0, 256, (24, 3, 32, 32), dtype=np.uint8)
    labels = np.arange(24) % 10
    contents: list[object] = [{"label_names": ["airplane"] * 10}]
    for batch in np.split(np.arange(24), 6):
        contents.append({"data": pixels[batch].reshape(4, -1), "labels": labels[batch].tolist()})
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name, content in zip(["batches.meta", *BATCHES], contents, strict=True):
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))  # Python 2's, as theirs
    dataset = cifar10(DataSource(tmp_path, download=True))
    assert_data(dataset, np.split(pixels / 255, [20]), np.split(labels, [20]))
    assert (dataset.num_classes, dataset.augment) == (10, random_crop_and_flip)


def write_images(folder: Path, num_classes: int, *shape: int) -> list[np.ndarray]:
    """Three images of each class to train and two to test, in the order of their names."""
    images = np.random.default_rng(0).integers(0, 256, (5, num_classes, *shape), dtype=np.uint8)
    for number, label in np.ndindex(5, num_classes):
        path = folder / ("train" if number < 3 else "test") / f"class {label}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[number, label].transpose(1, 2, 0).squeeze()).save(path)
    return [each.swapaxes(0, 1).reshape(-1, *shape) / 255 for each in np.split(images, [3])]


@pytest.mark.usefixtures("cache")
def test_class_folders__hold_every_image(tmp_path, monkeypatch):
    images = write_images(tmp_path, 10, 3, 32, 32)
    cifar10(DataSource(tmp_path))
    monkeypatch.setattr(Image, "open", lambda _: pytest.fail("decodes it again"))
    dataset = cifar10(DataSource(tmp_path))
    assert_data(dataset, images, [np.repeat(range(10), count) for count in (3, 2)])
    assert (dataset.num_classes, dataset.augment) == (10, random_crop_and_flip)


@pytest.mark.usefixtures("cache")
def test_class_folders__are_known_by_their_content(tmp_path):
    scenario = Scenario.digits(num_devices=3)
    here = tmp_path / "here"
    write_images(here, 2, 1, 28, 28)
    there = shutil.copytree(here, tmp_path / "there")
    one, other = (
        TrainingEnvFactory(scenario, str(place), model="small", learning_rate=0.1)
        for place in (here, there)
    )
    assert one.identity == other.identity
    shutil.copy(here / "train/class 0/0.png", here / "test/class 0/3.png")
    assert one.identity != other.identity
    with pytest.raises(ValueError, match=r"CIFAR10 has 10 classes .*, got .* 2 classes\)"):
        cifar10(DataSource(here))


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("file", "image", "message"),
    [
        ("test/class 2/0.png", ("RGB", (5, 4)), "only one of .* has the class 'class 2'"),
        ("train/class 2/0.txt", None, "cannot read images in .* no valid .* classes class 2"),
        ("test/class 0/9.png", None, "cannot read .*test/class 0/9.png' \\(cannot identify"),
        ("train/class 1/9.jpg", ("L", (5, 4)), "{'RGB .*, 'L .*train/class 1/9.jpg'}"),
        ("train/class 0/0.png", ("P", (5, 4)), "{'P .*train/class 0/0.png'}"),
    ],
)
def test_class_folders__what_is_wrong_is_named(tmp_path, file, image, message):
    write_images(tmp_path, 2, 3, 4, 5)
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.touch() if image is None else Image.new(*image).save(path)
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
def test_download__is_tried_if_asked_for_and_told_where_it_fails(
    tmp_path, monkeypatch, load, name, place
):
    tried = []

    def urlopen(*_, **__):
        tried.append(name)
        raise http.client.IncompleteRead(b"")

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    folder = re.escape(repr(str(tmp_path / place)))
    for download in (False, True):
        message = rf"{name}( in {folder} \(.+\))?: put .+ there, give --download, or "
        with pytest.raises(ValueError, match=message):
            load(DataSource(tmp_path, download=download))
        assert bool(tried) == download


def test_random_crop_and_flip__follows_the_rng_alone():
    images = torch.arange(17_550.0).reshape(50, 3, 9, 13)
    kept = images.clone()
    before = global_states()
    one, other = (random_crop_and_flip(images, np.random.default_rng(5)) for _ in range(2))
    assert torch.equal(one, other)
    assert torch.equal(images, kept)
    assert global_states() == before
    assert one.is_contiguous()


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
