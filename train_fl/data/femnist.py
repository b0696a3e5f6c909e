"""FEMNIST: characters by many writers, from LEAF's JSON files or the Hugging Face export."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import ijson
import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from PIL import Image

from fl_edge_env.files import as_value_error
from fl_edge_env.typing import IntArray
from train_fl.data.dataset import Dataset, DataSource

# The paper drops writers with fewer samples.
_LEAST_SAMPLES = 50
_HELD_OUT = 0.1
_NUM_CLASSES = 62
_SIDE = 28

_T = TypeVar("_T")

# Between an opening bracket and the next one lies an image, so that few open at a time.
_MOST_BRACKETS = 1000


class _Samples(NamedTuple):
    """Some samples of one writer: pixels in [0, 1] of shape (samples, 28, 28), and classes."""

    writer: str
    images: NDArray[np.float32]
    labels: IntArray


def femnist(source: DataSource) -> Dataset:
    """Handwritten digits and letters of 28 by 28 pixels, by writer, in 62 classes.

    The folder holds either LEAF's JSON files or the Parquet files of the export on Hugging Face
    with the columns ``image``, ``writer_id`` and ``character``. Of the subfolders that LEAF's
    scripts make, ``train`` and ``test`` are read together, or else ``all_data``. Of the
    writers with at least 50 samples as many as there are devices are drawn; a tenth of each
    writer's samples is held out, and together they are the test set. Pixels are those of LEAF:
    from 0 to 1, on a white ground of 1.

    Raises
    ------
    ValueError
        If files are missing or damaged or there are too few writers.
    """
    form, paths = _find_files(source.folder)
    count_samples, read_samples = {
        ".json": (_leaf_counts, _read_leaf),
        ".parquet": (_parquet_counts, _read_parquet),
    }[form]
    counts = [_told(count_samples, path) for path in paths]
    rng = np.random.default_rng(source.seed)
    chosen = _draw_writers(sum(counts, Counter()), source, rng)
    pieces: dict[str, list[_Samples]] = {writer: [] for writer in chosen}
    for path, present in zip(paths, counts, strict=True):
        wanted = Counter({w: n for w, n in present.items() if w in pieces and n > 0})
        if wanted:
            for samples in _told(partial(_read_all, read_samples, wanted), path):
                pieces[samples.writer].append(samples)
    return _split(pieces, rng)


def _find_files(folder: Path) -> tuple[str, list[Path]]:
    """The files to read and their suffix."""
    places = [folder / "train", folder / "test"]
    if not all(any(place.rglob("*.json")) for place in places):
        places = [folder / "all_data" if any(folder.glob("all_data/*.json")) else folder]
    paths = sorted(path for place in places for path in place.rglob("*.json"))
    parquet = sorted(folder.rglob("*.parquet"))
    if bool(paths) == bool(parquet):
        what = "both .json and .parquet" if paths else "neither .json nor .parquet"
        raise ValueError(
            f"there are {what} files in {str(folder)!r}: give the folder (--data-dir) that has "
            "nothing but the FEMNIST files of LEAF (github.com/TalwalkarLab/leaf) or those of "
            "huggingface.co/datasets/flwrlabs/femnist; they cannot be downloaded from here"
        )
    return (".json", paths) if paths else (".parquet", parquet)


def _read_all(
    read: Callable[[Path, Collection[str]], Iterator[_Samples]], wanted: Counter[str], path: Path
) -> list[_Samples]:
    """All samples of some writers in a file, if they are as many as were counted."""
    pieces = list(read(path, wanted))
    found: Counter[str] = Counter()
    for samples in pieces:
        found[samples.writer] += len(samples.labels)
    for writer, count in wanted.items():
        if found[writer] != count:
            raise ValueError(f"it lists {count} samples of writer {writer} and has {found[writer]}")
    return pieces


def _draw_writers(counts: Counter[str], source: DataSource, rng: np.random.Generator) -> list[str]:
    eligible = sorted(writer for writer, count in counts.items() if count >= _LEAST_SAMPLES)
    if len(eligible) < source.num_devices:
        raise ValueError(
            f"{str(source.folder)!r} has {len(eligible)} writers with at least {_LEAST_SAMPLES} "
            f"samples, and num_devices is {source.num_devices}"
        )
    drawn = rng.choice(len(eligible), size=source.num_devices, replace=False)
    return [eligible[index] for index in np.sort(drawn)]


def _split(pieces: dict[str, list[_Samples]], rng: np.random.Generator) -> Dataset:
    """Hold out a tenth of each writer's samples."""
    train: list[tuple[Any, ...]] = []
    test: list[tuple[Any, ...]] = []
    for writer, samples in enumerate(pieces.values()):
        images = np.concatenate([piece.images for piece in samples])
        labels = np.concatenate([piece.labels for piece in samples])
        order = rng.permutation(len(labels))
        held_out = round(_HELD_OUT * len(labels))
        for part, chosen in ((test, order[:held_out]), (train, order[held_out:])):
            part.append((images[chosen, None], labels[chosen], np.full(len(chosen), writer)))
    (images, labels, writers), (test_images, test_labels, _) = (
        [np.concatenate(arrays) for arrays in zip(*part, strict=True)] for part in (train, test)
    )
    return Dataset(
        "femnist",
        torch.from_numpy(images),
        torch.from_numpy(labels),
        torch.from_numpy(test_images),
        torch.from_numpy(test_labels),
        num_classes=_NUM_CLASSES,
        train_writers=writers,
    )


class _Shallow:
    """A JSON file that is not nested deeply, for which ijson takes the square of the depth."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._depth = 0

    def read(self, size: int = -1) -> bytes:
        """The next bytes, if not too many brackets are open."""
        data = self._file.read(size)
        opened = data.count(b"[") + data.count(b"{")
        if self._depth + opened > _MOST_BRACKETS:
            raise ValueError(f"more than {_MOST_BRACKETS} brackets open within {len(data)} bytes")
        self._depth = max(0, self._depth + opened - data.count(b"]") - data.count(b"}"))
        return data


def _leaf_counts(path: Path) -> Counter[str]:
    """Samples of each writer, from the lists ``users`` and ``num_samples``."""
    users: list[str] = []
    numbers: list[int] = []
    with path.open("rb") as file:
        for prefix, event, value in ijson.parse(_Shallow(file), use_float=True):
            if prefix == "users.item":
                users.append(str(value))
            elif prefix == "num_samples.item":
                numbers.append(int(value))
            elif (prefix, event) == ("user_data", "start_map") and users and numbers:
                break  # the lists come first, and what follows is nearly the whole file
    if not users or len(users) != len(numbers) or len(set(users)) != len(users):
        raise ValueError(
            f"it lists {len(users)} users, of them {len(set(users))} distinct, and {len(numbers)} "
            "num_samples"
        )
    return Counter(dict(zip(users, numbers, strict=True)))


def _read_leaf(path: Path, writers: Collection[str]) -> Iterator[_Samples]:
    """Samples of some writers, one writer in memory at a time."""
    with path.open("rb") as file:
        for writer, data in ijson.kvitems(_Shallow(file), "user_data", use_float=True):
            if writer in writers:
                images = np.asarray(data["x"], dtype=np.float32)
                yield _checked(writer, images.reshape(-1, _SIDE, _SIDE), np.asarray(data["y"]))


def _parquet_counts(path: Path) -> Counter[str]:
    """Samples of each writer."""
    counts: Counter[str] = Counter()
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        for batch in file.iter_batches(columns=["writer_id"], use_threads=False):
            counts.update(map(str, batch["writer_id"].to_pylist()))
            if counts.total() > path.stat().st_size:
                raise ValueError("it announces more samples than it has bytes")
    return counts


def _read_parquet(path: Path, writers: Collection[str]) -> Iterator[_Samples]:
    """Samples of some writers, some rows in memory at a time."""
    columns = ["image", "writer_id", "character"]
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        for batch in file.iter_batches(batch_size=1024, columns=columns, use_threads=False):
            rows: dict[str, list[tuple[NDArray[np.uint8], int]]] = {}
            for row in batch.to_pylist():
                if str(row["writer_id"]) in writers:
                    # Of other formats some run programs, such as Ghostscript.
                    image = Image.open(io.BytesIO(row["image"]["bytes"]), formats=["PNG"])
                    if image.size != (_SIDE, _SIDE):
                        raise ValueError(f"it has an image of {image.size[0]} by {image.size[1]}")
                    rows.setdefault(str(row["writer_id"]), []).append(
                        (np.asarray(image.convert("L")), row["character"])
                    )
            for writer, samples in rows.items():
                images, labels = zip(*samples, strict=True)
                scaled = np.stack(images).astype(np.float32) / np.float32(255)
                yield _checked(writer, scaled, np.asarray(labels))


def _checked(writer: str, images: NDArray[np.float32], labels: NDArray[np.integer]) -> _Samples:
    if images.shape[1:] != (_SIDE, _SIDE) or labels.shape != images.shape[:1]:
        raise ValueError(
            f"writer {writer} has images of shape {images.shape} and labels of {labels.shape}"
        )
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= _NUM_CLASSES:
        raise ValueError(f"writer {writer} has a label that is no integer from 0 to 61")
    if not (np.all(images >= 0) and np.all(images <= 1)):  # NaN fails both
        raise ValueError(f"writer {writer} has a pixel that is not from 0 to 1")
    return _Samples(writer, images, labels.astype(np.int64))


def _told(read: Callable[[Path], _T], path: Path) -> _T:
    """The result of `read` for a file; its errors name the file."""
    with as_value_error(f"{str(path)!r} is damaged or not a FEMNIST file (", "): get it again"):
        return read(path)
