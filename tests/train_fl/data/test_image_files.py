"""Fashion-MNIST and CIFAR-10 from small files in their exact formats, and the augmentation."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import pickle
import re
import struct
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.stats import chisquare
from torchvision.datasets import CIFAR10

from train_fl.data.cifar10 import cifar10, random_crop_and_flip
from train_fl.data.dataset import DataSource
from train_fl.data.fashion_mnist import fashion_mnist, read_idx

IDX = {
    "train-images-idx3-ubyte": (20, 28, 28),
    "train-labels-idx1-ubyte": (20,),
    "t10k-images-idx3-ubyte": (8, 28, 28),
    "t10k-labels-idx1-ubyte": (8,),
}
BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def idx_bytes(array: np.ndarray) -> bytes:
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def idx_arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        name: rng.integers(0, 256 if "images" in name else 10, shape) for name, shape in IDX.items()
    }


def write_idx(folder: Path, *, packed: bool = False) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in idx_arrays().items():
        data = idx_bytes(array)
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(data, 1) if packed else data)
    return idx_arrays()


def standard(train: np.ndarray, images: np.ndarray) -> np.ndarray:
    axes = (0, 2, 3)
    mean = train.mean(axis=axes, keepdims=True)
    return (images - mean) / train.std(axis=axes, ddof=1, keepdims=True)


def no_internet(request, *_, **__):
    url = getattr(request, "full_url", request)
    raise urllib.error.URLError(f"no route to {url}")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("place", [".", "FashionMNIST/raw"])
def test_fashion_mnist__is_read_from_either_place_packed_or_not(tmp_path, place, packed):
    arrays = write_idx(tmp_path / place, packed=packed)
    dataset = fashion_mnist(DataSource(tmp_path))
    train, test = (arrays[name][:, None] / 255 for name in list(IDX)[::2])
    assert dataset.name == "fashion_mnist"
    assert dataset.num_classes == 10
    assert dataset.train_writers is None
    assert dataset.augment is None
    for images, expected in ((dataset.train_images, train), (dataset.test_images, test)):
        assert images.dtype == torch.float32
        np.testing.assert_allclose(images, standard(train, expected), rtol=1e-4, atol=1e-5)
    for labels, name in (
        (dataset.train_labels, "train-labels-idx1-ubyte"),
        (dataset.test_labels, "t10k-labels-idx1-ubyte"),
    ):
        assert labels.dtype == torch.int64
        np.testing.assert_array_equal(labels, arrays[name])


@pytest.mark.parametrize("name", IDX)
def test_fashion_mnist__a_missing_file_is_named(tmp_path, name):
    write_idx(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ValueError, match=f"no file {name} .*{re.escape(repr(str(tmp_path)))}"):
        fashion_mnist(DataSource(tmp_path))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", IDX)
def test_fashion_mnist__a_truncated_file_is_named(tmp_path, name, packed):
    write_idx(tmp_path, packed=packed)
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"^{re.escape(repr(str(path)))} is damaged"):
        fashion_mnist(DataSource(tmp_path))


@pytest.mark.parametrize("split", ["train", "t10k"])
@pytest.mark.parametrize("shape", [(7,), (20, 28), (8, 1)])
def test_fashion_mnist__labels_of_another_length_or_form_are_refused(tmp_path, split, shape):
    write_idx(tmp_path)
    (tmp_path / f"{split}-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(shape)))
    with pytest.raises(ValueError, match=f"^{split}-images-idx3-ubyte or {split}-labels"):
        fashion_mnist(DataSource(tmp_path))


def test_fashion_mnist__images_that_are_no_images_are_refused(tmp_path):
    write_idx(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx_bytes(np.zeros((8, 784))))
    with pytest.raises(ValueError, match=r"^t10k-images-idx3-ubyte .* \(8, 784\), the labels"):
        fashion_mnist(DataSource(tmp_path))


@given(arrays(np.uint8, array_shapes(max_dims=4, max_side=5)), st.booleans())
def test_read_idx__gives_back_what_was_written(tmp_path_factory, array, packed):
    path = tmp_path_factory.mktemp("idx") / ("a.gz" if packed else "a")
    path.write_bytes(gzip.compress(idx_bytes(array)) if packed else idx_bytes(array))
    result = read_idx(path)
    assert result.dtype == np.uint8
    np.testing.assert_array_equal(result, array)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not an IDX file"),
        (b"\0\0\x08", "is not an IDX file"),
        (b"\0\0\x08\x02\0\0\0\x01", "is not an IDX file"),
        (b"\0\0\x0d\x01\0\0\0\x01\0\0\0\0", "is not an IDX file"),
        (b"<!DOCTYPE html>", "is not an IDX file"),
        (b"\0\0\x08\x01\0\0\0\x03ab", "announces 3 bytes and 2 follow"),
        (b"\0\0\x08\x01\0\0\0\x03abcd", "announces 3 bytes and more follow"),
        (b"\0\0\x08\x04" + 4 * b"\0\x01\0\0", f"announces {2**64} bytes and 0 follow"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_read_idx__what_is_no_whole_idx_file_is_named(tmp_path, data, message, packed):
    path = tmp_path / ("images.gz" if packed else "images")
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(ValueError, match=f"^{re.escape(repr(str(path)))} .*{message}"):
        read_idx(path)


@given(st.data())
def test_read_idx__a_packed_file_with_wrong_bytes_is_named_or_reads_as_before(
    tmp_path_factory, data
):
    array = np.arange(40, dtype=np.uint8).reshape(2, 20)
    packed = bytearray(gzip.compress(idx_bytes(array), mtime=0))
    position = data.draw(st.integers(0, len(packed) - 1))
    packed[position] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("idx") / "images.gz"
    path.write_bytes(packed)
    try:
        result, message = read_idx(path), ""
    except ValueError as error:
        result, message = array, str(error)
    np.testing.assert_array_equal(result, array)
    assert message == "" or repr(str(path)) in message


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


def test_cifar10__holds_every_image_of_every_batch(tmp_path, batches):
    dataset = cifar10(DataSource(tmp_path))
    train = np.concatenate([batches[name][0] for name in BATCHES[:5]])
    train, test = (data.reshape(-1, 3, 32, 32) / 255 for data in (train, batches["test_batch"][0]))
    np.testing.assert_allclose(dataset.train_images, standard(train, train), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dataset.test_images, standard(train, test), rtol=1e-4, atol=1e-5)
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


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (Path.unlink, "missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "damaged"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"!"), "damaged"),
        (lambda path: path.write_bytes(b""), "damaged"),
    ],
)
@pytest.mark.usefixtures("batches")
def test_cifar10__a_missing_or_damaged_batch_is_named(tmp_path, name, damage, word):
    path = tmp_path / "cifar-10-batches-py" / name
    damage(path)
    with pytest.raises(ValueError, match=f"^{re.escape(repr(str(path)))} is {word}"):
        cifar10(DataSource(tmp_path))


def test_cifar10__a_folder_without_it_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"data_batch_1' is missing: .*cifar-10-python\.tar\.gz"):
        cifar10(DataSource(tmp_path / "none"))


@pytest.mark.parametrize(("load", "name"), [(fashion_mnist, "FashionMNIST"), (cifar10, "CIFAR10")])
def test_download__that_fails_is_told(tmp_path, monkeypatch, load, name):
    monkeypatch.setattr(urllib.request, "urlopen", no_internet)
    message = f"^cannot download {name} to {re.escape(repr(str(tmp_path)))}: .+"
    with pytest.raises(ValueError, match=f"(?s){message}"):
        load(DataSource(tmp_path, download=True))


@pytest.mark.parametrize("load", [fashion_mnist, cifar10])
def test_download__is_not_tried_unless_asked_for(tmp_path, monkeypatch, load):
    tried = []
    monkeypatch.setattr(urllib.request, "urlopen", lambda *a, **_: tried.append(a))
    with pytest.raises(ValueError, match="use the option --download"):
        load(DataSource(tmp_path))
    assert tried == []


def test_download__fetches_nothing_that_is_there(tmp_path, batches, monkeypatch):
    monkeypatch.setattr(urllib.request, "urlopen", no_internet)
    write_idx(tmp_path / "FashionMNIST" / "raw")
    assert len(fashion_mnist(DataSource(tmp_path, download=True)).train_labels) == 20
    assert len(cifar10(DataSource(tmp_path, download=True)).test_labels) == len(
        batches["test_batch"][1]
    )


def slow_crop(image: np.ndarray, top: int, left: int, mirrored: bool) -> np.ndarray:
    channels, height, width = image.shape
    canvas = np.zeros((channels, height + 8, width + 8), image.dtype)
    canvas[:, 4 : 4 + height, 4 : 4 + width] = image
    crop = canvas[:, top : top + height, left : left + width]
    return crop[:, :, ::-1] if mirrored else crop


def chosen_crops(height: int, width: int, count: int, seed: int) -> list[tuple[int, int, bool]]:
    """What was done to each image, found by trying every possibility."""
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


@pytest.mark.parametrize(("height", "width"), [(10, 10), (9, 13), (32, 32)])
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
    assert counts[..., 1].sum() / counts.sum() == pytest.approx(0.5, abs=0.015)


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


@pytest.mark.parametrize("damage", [lambda p: p.unlink(), lambda p: p.write_bytes(b"x")])
@pytest.mark.usefixtures("batches")
def test_cifar10__missing_or_damaged_meta_file_is_named(tmp_path, damage):
    path = tmp_path / "cifar-10-batches-py" / "batches.meta"
    damage(path)
    with pytest.raises(ValueError, match=f"^{re.escape(repr(str(path)))} is (missing|damaged)"):
        cifar10(DataSource(tmp_path))


@pytest.mark.parametrize("packed", [False, True])
def test_download__fetches_nothing_that_lies_in_the_folder_itself(tmp_path, monkeypatch, packed):
    monkeypatch.setattr(urllib.request, "urlopen", no_internet)
    write_idx(tmp_path, packed=packed)
    assert len(fashion_mnist(DataSource(tmp_path, download=True)).train_labels) == 20


@pytest.mark.parametrize("data", [b"", b"<!DOCTYPE html><html>" * 50, b"\0\0\x08\x01\0\0\0\x05a"])
def test_download__a_damaged_file_that_is_there_is_named(tmp_path, monkeypatch, data):
    monkeypatch.setattr(urllib.request, "urlopen", no_internet)
    write_idx(tmp_path / "FashionMNIST" / "raw")
    path = tmp_path / "FashionMNIST" / "raw" / "train-images-idx3-ubyte"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=re.escape(path.name)):
        fashion_mnist(DataSource(tmp_path, download=True))


@pytest.mark.parametrize("load", [fashion_mnist, cifar10])
@pytest.mark.parametrize("error", [http.client.BadStatusLine("x"), http.client.IncompleteRead(b"")])
def test_download__an_answer_that_is_no_http_is_told(tmp_path, monkeypatch, load, error):
    def urlopen(*_, **__):
        raise error

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    with pytest.raises(ValueError, match=r"^cannot download"):
        load(DataSource(tmp_path, download=True))


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("t10k-images-idx3-ubyte", np.ones((8, 14, 14))),
        ("train-labels-idx1-ubyte", np.full(20, 200)),
        ("train-images-idx3-ubyte", np.zeros((20, 28, 28))),
    ],
)
def test_fashion_mnist__data_that_are_none_are_refused(tmp_path, name, array):
    write_idx(tmp_path)
    (tmp_path / name).write_bytes(idx_bytes(array))
    with pytest.raises(ValueError, match=name):
        fashion_mnist(DataSource(tmp_path))
