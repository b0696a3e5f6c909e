"""FEMNIST: characters by many writers, from LEAF's JSON files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fl_edge_env.files import as_value_error
from train_fl.data.cache import kept_arrays
from train_fl.data.dataset import Dataset, DataSource

# The paper drops writers with fewer samples.
_LEAST_SAMPLES = 50
_HELD_OUT = 0.1
_NUM_CLASSES = 62


def femnist(source: DataSource) -> Dataset:
    """FEMNIST: handwritten digits and letters of 28 by 28 pixels, by writer, in 62 classes.

    The folder holds LEAF's JSON files, in ``train`` and ``test``, in ``all_data`` or in itself. For
    each device one writer with at least 50 samples is drawn. Repeated samples of a writer are used
    once. A tenth of each writer's samples is held out; together they form the test set. Pixels are
    as in LEAF: from 0 to 1, on a white background of 1.

    Raises
    ------
    ValueError
        If files are missing or damaged, or there are too few writers.
    """
    paths = _find_files(source.folder)
    # Each file twice, which takes less memory than all files at once.
    counts = Counter(writer for path in paths for writer in _read(path)["writers"].tolist())
    rng = np.random.default_rng(source.seed)
    drawn = _draw_writers(counts, source, rng)
    writers, images, labels = _samples_of(drawn, paths)
    train: list[int] = []
    test: list[int] = []
    for writer in drawn:
        rows = np.flatnonzero(writers == writer)
        # LEAF's scripts repeat the first sample of each writer.
        first = {(images[row].tobytes(), labels[row]): row for row in rows[::-1]}
        order = rng.permutation(np.sort([*first.values()])).tolist()
        held_out = round(_HELD_OUT * len(order))
        test += order[:held_out]
        train += order[held_out:]
    pixels = torch.from_numpy(images)
    targets = torch.from_numpy(labels)
    return Dataset(
        "femnist",
        pixels[train],
        targets[train],
        pixels[test],
        targets[test],
        num_classes=_NUM_CLASSES,
        train_writers=np.searchsorted(drawn, writers[train]),
    )


def _find_files(folder: Path) -> list[Path]:
    """LEAF's files in ``test`` and ``train``, otherwise in ``all_data`` or in the folder itself."""
    test, train, whole, own = (
        sorted((folder / name).glob("*.json")) for name in ("test", "train", "all_data", ".")
    )
    found = test + train if test and train else whole or own
    if not found:
        raise ValueError(
            f"{str(folder)!r} has no .json files in train and test, in all_data or in itself: make "
            "them with LEAF (github.com/TalwalkarLab/leaf) and give their folder with --data-dir; "
            "--no-train compares without training"
        )
    return found


def _read(path: Path) -> dict[str, Any]:
    """The arrays of a file: `writers`, `images` and `labels` of its samples."""
    with as_value_error(f"{str(path)!r} is damaged or not a FEMNIST file (", "): regenerate it"):
        return kept_arrays(
            [__file__, path], lambda: _arrays(json.loads(path.read_bytes())["user_data"])
        )


def _arrays(people: dict[str, Any]) -> dict[str, Any]:
    """Check and convert the pixels ``x`` and classes ``y`` of each writer."""
    rows = [
        (writer, *sample)
        for writer, person in people.items()
        for sample in zip(person["x"], person["y"], strict=True)
    ]
    writers, pixels, labels = zip(*rows, strict=True)
    images = np.array(pixels).reshape(len(rows), 1, 28, 28)
    if images.dtype.kind not in "if" or not np.all((images >= 0) & (images <= 1)):  # NaN fails
        raise ValueError("pixels must be numbers from 0 to 1")
    if not all(type(label) is int and 0 <= label < _NUM_CLASSES for label in labels):
        raise ValueError("labels must be integers from 0 to 61")
    images = images.astype(np.float32)
    return {"writers": np.array(writers), "images": images, "labels": np.array(labels)}


def _samples_of(drawn: list[str], paths: list[Path]) -> Iterator[NDArray[Any]]:
    """The writers, images and labels of the samples of these writers, in order of the files."""
    parts = []
    for path in paths:
        arrays = _read(path)
        own = np.isin(arrays["writers"], drawn)
        parts.append([array[own] for array in arrays.values()])
    return map(np.concatenate, zip(*parts, strict=True))


def _draw_writers(counts: Counter[str], source: DataSource, rng: np.random.Generator) -> list[str]:
    eligible = sorted(writer for writer, count in counts.items() if count >= _LEAST_SAMPLES)
    if len(eligible) < source.num_devices:
        raise ValueError(
            f"{str(source.folder)!r} has {len(eligible)} writers with at least {_LEAST_SAMPLES} "
            f"samples, but num_devices is {source.num_devices}"
        )
    drawn = rng.choice(len(eligible), size=source.num_devices, replace=False)
    return [eligible[index] for index in np.sort(drawn)]
