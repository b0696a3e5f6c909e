"""Data files that are cut short, changed or hostile are named, in little memory; nothing is run."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tarfile
import tracemalloc
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torchvision.datasets import CIFAR10, FashionMNIST

from tests.support import Malicious, draw_damage
from train_fl import Dataset
from train_fl.data.cifar10 import cifar10
from train_fl.data.dataset import DataSource
from train_fl.data.fashion_mnist import fashion_mnist, read_idx
from train_fl.data.femnist import femnist

PIXELS = np.random.default_rng(0).integers(0, 256, (50, 28, 28), dtype=np.uint8)
LABELS = np.arange(50) % 62


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**25


def outcome(read: Callable[[], Any]) -> tuple[Any, str]:
    """What is read, or None and the message of a refusal."""
    try:
        return read(), ""
    except ValueError as error:
        return None, str(error)


def idx_header(*shape: int) -> bytes:
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)


@given(st.data())
@pytest.mark.parametrize("packed", [False, True])
def test_idx__damage_is_named_or_within_the_pixels(tmp_path_factory, packed, data):
    array = PIXELS[:2, :5]
    whole = idx_header(*array.shape) + array.tobytes()
    whole = gzip.compress(whole, mtime=0) if packed else whole
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
        (idx_header(2**31) + b"ab", "announces 2147483648 bytes"),
        (idx_header(2**32 - 1, 2**32 - 1, 2**32 - 1) + b"ab", "is damaged: its header announces"),
        (idx_header(3) + bytes(2**26), "announces 3 bytes and more follow"),
        (bytes(2**26), "is not an IDX file"),
        (idx_header(*[1] * 255) + b"a", "is not an IDX file"),
        (idx_header(0, 28, 28), "announces 0 bytes and 0 follow"),
    ],
)
def test_idx__of_any_announced_size_is_refused_without_reading_it(
    tmp_path, content, message, packed
):
    path = tmp_path / ("images.gz" if packed else "images")
    path.write_bytes(gzip.compress(content, 1) if packed else content)
    with little_memory(), pytest.raises(ValueError, match=message) as raised:
        read_idx(path)
    assert str(raised.value).startswith(repr(str(path)))


@pytest.mark.parametrize("name", ["images", "images.gz"])
def test_idx__a_folder_in_its_place_is_named(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=f"{name}' is damaged"):
        read_idx(tmp_path / name)


def test_cifar10__a_pickle_of_a_stranger_is_never_opened(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name, _ in [*CIFAR10.train_list, *CIFAR10.test_list, ["batches.meta", ""]]:
        (folder / name).write_bytes(pickle.dumps(Malicious(tmp_path / "run")))
    with pytest.raises(ValueError, match="data_batch_1' is damaged"):
        cifar10(DataSource(tmp_path))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_cifar10__what_is_no_file_is_named(tmp_path, make):
    path = tmp_path / "cifar-10-batches-py" / "data_batch_1"
    path.parent.mkdir()
    make(path)
    with pytest.raises(ValueError, match="data_batch_1' is damaged"):
        cifar10(DataSource(tmp_path))


def test_cifar10__a_batch_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    def forbidden(path: str, _: str) -> bool:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("train_fl.data.cifar10.check_integrity", forbidden)
    path = tmp_path / "cifar-10-batches-py" / "data_batch_1"
    path.parent.mkdir()
    path.touch()
    with pytest.raises(ValueError, match="data_batch_1' is damaged"):
        cifar10(DataSource(tmp_path))


def member(name: str, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def no_internet(*_: object, **__: object) -> None:
    raise urllib.error.URLError("no route")


@pytest.mark.parametrize(
    "info",
    [
        member("../outside", size=3),
        member("cifar-10-batches-py/../../outside", size=3),
        member("cifar-10-batches-py", type=tarfile.SYMTYPE, linkname=".."),
        member("cifar-10-batches-py/a", type=tarfile.LNKTYPE, linkname="../../outside"),
        member("cifar-10-batches-py/a", type=tarfile.CHRTYPE),
    ],
)
def test_download__an_archive_that_leaves_its_folder_is_refused(tmp_path, monkeypatch, info):
    root = tmp_path / "data"
    root.mkdir()
    with tarfile.open(root / CIFAR10.filename, "w:gz") as archive:
        archive.addfile(info, io.BytesIO(b"abc"))
    # It has not the checksum of the archive: it is fetched anew, and not unpacked.
    monkeypatch.setattr(urllib.request, "urlopen", no_internet)
    with pytest.raises(ValueError, match=r"^cannot download CIFAR10"):
        cifar10(DataSource(root, download=True))
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert not (root / "cifar-10-batches-py").is_symlink()


@pytest.mark.parametrize("content", [b"", b"no pickle", b"\x80\x05K\x01"])
def test_download__old_files_of_torchvision_that_are_damaged_are_told(tmp_path, content):
    folder = tmp_path / "FashionMNIST" / "processed"
    folder.mkdir(parents=True)
    for name in (FashionMNIST.training_file, FashionMNIST.test_file):
        (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"^cannot download FashionMNIST .*"):
        fashion_mnist(DataSource(tmp_path, download=True))


def leaf() -> bytes:
    pixels = np.where(PIXELS > 250, 0.5, 1.0)
    data = {"x": pixels.reshape(50, 784).tolist(), "y": LABELS.tolist()}
    return json.dumps({"users": ["a"], "num_samples": [50], "user_data": {"a": data}}).encode()


def png(image: np.ndarray, form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format=form)
    return buffer.getvalue()


def parquet(images: list[bytes]) -> bytes:
    """With checksums."""
    table = pa.table(
        {
            "image": [{"bytes": image} for image in images],
            "writer_id": ["a"] * len(images),
            "character": LABELS[: len(images)],
        }
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer, write_page_checksum=True)
    return buffer.getvalue()


WHOLE = {"json": leaf(), "parquet": parquet([png(image) for image in PIXELS])}


def load(folder: Path, form: str, content: bytes) -> Dataset:
    (folder / f"a.{form}").write_bytes(content)
    return femnist(DataSource(folder, num_devices=1))


def assert_same(dataset: Dataset, other: Dataset) -> None:
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        assert torch.equal(getattr(dataset, name), getattr(other, name))


@given(st.data())
@pytest.mark.parametrize("form", ["json", "parquet"])
def test_femnist__a_file_cut_short_is_named_or_whole(tmp_path_factory, form, data):
    folder, whole = tmp_path_factory.mktemp(form), WHOLE[form]
    length = data.draw(st.integers(0, len(whole) - 1))
    dataset, message = outcome(lambda: load(folder, form, whole[:length]))
    if message:
        assert f"a.{form}' is damaged or not a FEMNIST file" in message
    else:  # what closes the last bracket alone
        assert form == "json"
        assert_same(dataset, load(folder, form, whole))


@given(st.data())
@pytest.mark.parametrize("form", ["json", "parquet"])
def test_femnist__a_changed_bit_is_named_or_within_the_range_of_the_data(
    tmp_path_factory, form, data
):
    folder, whole = tmp_path_factory.mktemp(form), bytearray(WHOLE[form])
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    dataset, message = outcome(lambda: load(folder, form, bytes(whole)))
    if message:
        assert f"a.{form}' is damaged or not a FEMNIST file" in message
    elif form == "json":  # it has no checksums
        assert len(dataset.train_labels) + len(dataset.test_labels) == 50
    else:
        assert_same(dataset, load(folder, form, WHOLE[form]))


DEEP = 50_000


@pytest.mark.parametrize(
    "content",
    [
        b"[" * DEEP,
        b'{"a":' * DEEP,
        b'{"users":' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"users":["a"],"num_samples":[50],"user_data":{"a":{"y":[1],"x":'
        + b"[" * DEEP
        + b"]" * DEEP
        + b"}}}",
        b'{"users":["a"],"num_samples":[50],"user_data":' + (b'{"a":' + b" " * 999) * DEEP,
    ],
)
def test_femnist__deep_brackets_are_refused_before_they_fill_the_memory(tmp_path, content):
    with little_memory(), pytest.raises(ValueError, match=r"a\.json' .*brackets open"):
        load(tmp_path, "json", content)


def test_femnist__more_samples_than_bytes_are_refused_without_counting_them(tmp_path):
    size = 5_000_000
    writers = pa.DictionaryArray.from_arrays(np.zeros(size, np.int32), ["a"])
    buffer = io.BytesIO()
    pq.write_table(pa.table({"writer_id": writers}), buffer, compression="zstd")
    assert len(buffer.getvalue()) < size / 50
    with little_memory(), pytest.raises(ValueError, match="more samples than it has bytes"):
        load(tmp_path, "parquet", buffer.getvalue())


@pytest.mark.parametrize("form", ["EPS", "TIFF", "GIF", "BMP"])
def test_femnist__images_that_are_no_png_are_not_opened(tmp_path, form):
    # Pillow gives EPS to Ghostscript, which is an interpreter.
    images = [png(image, form) for image in PIXELS]
    with pytest.raises(ValueError, match=r"a\.parquet' .*cannot identify image file"):
        load(tmp_path, "parquet", parquet(images))


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_femnist__a_folder_or_a_link_into_nothing_is_named(tmp_path, form):
    for name, make in (("a", Path.mkdir), ("b", lambda path: path.symlink_to("nowhere"))):
        folder = tmp_path / name
        folder.mkdir()
        make(folder / f"x.{form}")
        with pytest.raises(ValueError, match=rf"x\.{form}' is damaged or not"):
            femnist(DataSource(folder, num_devices=1))
