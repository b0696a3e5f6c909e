"""Fashion-MNIST from small files in its exact format."""

from __future__ import annotations

import gzip
import re
import struct
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import assert_data, draw_damage, little_memory, outcome
from train_fl.data.dataset import DataSource
from train_fl.data.fashion_mnist import fashion_mnist, read_idx

IDX = {
    "train-images-idx3-ubyte": (20, 28, 28),
    "train-labels-idx1-ubyte": (20,),
    "t10k-images-idx3-ubyte": (8, 28, 28),
    "t10k-labels-idx1-ubyte": (8,),
}


def idx_header(*shape: int) -> bytes:
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)


def idx_bytes(array: np.ndarray) -> bytes:
    return idx_header(*array.shape) + array.astype(np.uint8).tobytes()


def write_idx(folder: Path, *, packed: bool = False) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.integers(0, 256 if "images" in name else 10, shape) for name, shape in IDX.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        data = idx_bytes(array)
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(data, 1) if packed else data)
    return arrays


@pytest.mark.parametrize(("place", "packed"), [(".", True), ("FashionMNIST/raw", False)])
def test_fashion_mnist__is_read_from_either_place_packed_or_not(
    tmp_path, monkeypatch, place, packed
):
    arrays = write_idx(tmp_path / place, packed=packed)
    # What is there is not fetched.
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: pytest.fail("downloads"))
    dataset = fashion_mnist(DataSource(tmp_path, download=True))
    assert dataset.num_classes == 10
    images = [arrays[name][:, None] / 255 for name in list(IDX)[::2]]
    assert_data(dataset, images, [arrays[name] for name in list(IDX)[1::2]])


def test_fashion_mnist__a_missing_file_is_named(tmp_path):
    write_idx(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").unlink()
    message = f"no file t10k-images-idx3-ubyte .*{re.escape(repr(str(tmp_path)))}"
    with pytest.raises(ValueError, match=message):
        fashion_mnist(DataSource(tmp_path))


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("train-labels-idx1-ubyte", np.zeros(19)),
        ("train-labels-idx1-ubyte", np.full(20, 10)),
        ("t10k-images-idx3-ubyte", np.arange(8 * 196).reshape(8, 14, 14)),
        ("train-images-idx3-ubyte", np.zeros((20, 28, 28))),
    ],
)
def test_fashion_mnist__data_of_another_kind_are_refused(tmp_path, name, array):
    write_idx(tmp_path)
    (tmp_path / name).write_bytes(idx_bytes(array))
    split = name.split("-")[0]
    message = f"^{split}-images-idx3-ubyte or {split}-labels-idx1-ubyte in .* is not Fashion-MNIST"
    with pytest.raises(ValueError, match=message):
        fashion_mnist(DataSource(tmp_path))


@given(st.data())
@pytest.mark.parametrize("packed", [False, True])
def test_idx__damage_is_named_or_within_the_pixels(tmp_path_factory, packed, data):
    array = np.arange(280, dtype=np.uint8).reshape(2, 5, 28)
    whole = gzip.compress(idx_bytes(array), mtime=0) if packed else idx_bytes(array)
    content = draw_damage(data, whole)
    path = tmp_path_factory.mktemp("idx") / ("images.gz" if packed else "images")
    path.write_bytes(content)
    result, message = outcome(lambda: read_idx(path))
    if message:
        assert message.startswith(repr(str(path)))
    else:  # a bit of a pixel; of the lengths no change of one bit keeps their product
        assert len(content) == len(whole)
        assert result.shape == array.shape
        assert np.sum(result != array) <= (0 if packed else 1)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not an IDX file"),
        (b"\0\0\x08\x02\0\0\0\x01", "is not an IDX file"),
        (b"\0\0\x0d\x01\0\0\0\x01\0\0\0\0", "is not an IDX file"),
        (idx_header(3) + b"ab", "announces 3 bytes and 2 follow"),
        (idx_header(2**32 - 1, 2**32 - 1, 2**32 - 1) + b"ab", "is damaged: its header announces"),
        (idx_header(3) + bytes(2**26), "announces 3 bytes and more follow"),
        (bytes(2**26), "is not an IDX file"),
        (idx_header(*[1] * 255) + b"a", "is not an IDX file"),
        (idx_header(0, 28, 28), "announces 0 bytes and 0 follow"),
    ],
)
def test_read_idx__what_is_no_whole_idx_file_is_named_without_reading_all_of_it(
    tmp_path, content, message, packed
):
    path = tmp_path / ("images.gz" if packed else "images")
    path.write_bytes(gzip.compress(content, 1) if packed else content)
    with little_memory(), pytest.raises(ValueError, match=message) as raised:
        read_idx(path)
    assert str(raised.value).startswith(repr(str(path)))
