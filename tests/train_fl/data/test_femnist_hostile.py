"""FEMNIST files that are cut short, changed or hostile are named, in little memory."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.support import draw_damage, little_memory, outcome
from train_fl import Dataset
from train_fl.data.dataset import DataSource
from train_fl.data.femnist import femnist

PIXELS = np.random.default_rng(0).integers(0, 256, (50, 28, 28), dtype=np.uint8)
LABELS = np.arange(50) % 62


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


@given(st.data())
@pytest.mark.parametrize("form", ["json", "parquet"])
def test_femnist__damage_is_named_or_within_the_range_of_the_data(tmp_path_factory, form, data):
    folder, damaged = tmp_path_factory.mktemp(form), draw_damage(data, WHOLE[form])
    dataset, message = outcome(lambda: load(folder, form, damaged))
    if message:
        assert f"a.{form}' is damaged or not a FEMNIST file" in message
    elif form == "json" and len(damaged) == len(WHOLE[form]):  # it has no checksums
        assert len(dataset.train_labels) + len(dataset.test_labels) == 50
    else:  # what closes the last bracket alone, or a bit that means nothing
        whole = load(folder, form, WHOLE[form])
        for name in ("train_images", "train_labels", "test_images", "test_labels"):
            assert torch.equal(getattr(dataset, name), getattr(whole, name))


def test_femnist__a_changed_class_in_a_parquet_file_is_named(tmp_path):
    # Images have checksums of their own; of a class only its page has one.
    whole = bytearray(WHOLE["parquet"])
    classes = pq.ParquetFile(io.BytesIO(whole)).metadata.row_group(0).column(2)
    assert classes.path_in_schema == "character"
    whole[classes.dictionary_page_offset + classes.total_compressed_size - 2] ^= 1
    with pytest.raises(ValueError, match=r"a\.parquet' is damaged or not a FEMNIST file"):
        load(tmp_path, "parquet", bytes(whole))


DEEP = 50_000


@pytest.mark.parametrize(
    "content",
    [
        b"[" * DEEP,
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


@pytest.mark.parametrize("form", ["EPS", "GIF"])
def test_femnist__images_that_are_no_png_are_not_opened(tmp_path, form):
    # Pillow gives EPS to Ghostscript, which is an interpreter.
    images = [png(image, form) for image in PIXELS]
    with pytest.raises(ValueError, match=r"a\.parquet' .*cannot identify image file"):
        load(tmp_path, "parquet", parquet(images))
