"""Built-in data sets by name, and user-defined ones from a function or a folder of images."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import NamedTuple

from fl_edge_env.checks import did_you_mean
from fl_edge_env.files import user_path
from policies.user_code import is_reference, load_reference, user_errors
from train_fl.data.dataset import Dataset, DataSource
from train_fl.data.femnist import femnist
from train_fl.data.images import cifar10, digits, fashion_mnist, image_folder


class Known(NamedTuple):
    """A built-in data set: its loader and its training defaults."""

    load: Callable[[DataSource], Dataset]
    model: str
    learning_rate: float
    num_devices: int = 120
    partition: str = "dirichlet"


# CIFAR-10 and FEMNIST are trained with the paper's settings.
DATASETS = {
    "digits": Known(digits, "digits", 0.02, num_devices=40),
    "fashion_mnist": Known(fashion_mnist, "cnn", 0.01),
    "cifar10": Known(cifar10, "resnet18", 0.05),
    "femnist": Known(femnist, "cnn", 0.1, partition="writer"),
}


def _call(function: Callable[[], object], name: str) -> Dataset:
    with user_errors(f"{name}() fails"):
        dataset = function()
    if not isinstance(dataset, Dataset):
        raise ValueError(f"{name} must return a Dataset, got {type(dataset).__name__}")
    return dataset


def own_dataset(name: str) -> Dataset:
    """Load user-defined data by ``my_file.py:function``, ``my_module:function`` or a folder.

    The function takes no arguments and returns a `Dataset`. A folder holds images; see
    `train_fl.data.images.image_folder`. Raises `ValueError` if the function is missing, fails,
    returns something else, or returns different data on each call, or an image is wrong.
    """
    if is_reference(name):
        function = load_reference(name, kind="function that returns a Dataset")
        dataset = _call(function, name)
        # The main process checks this once; workers need not.
        once = multiprocessing.current_process().name == "MainProcess"
        if once and _call(function, name).fingerprint != dataset.fingerprint:
            raise ValueError(f"{name}() returns different data on each call: seed it")
        return dataset
    folder = user_path(name)
    if folder.is_dir():
        return image_folder(folder)
    raise ValueError(
        f"data set must be one of {', '.join(DATASETS)}, a function in a file, such as "
        f"my_file.py:function, or a folder, got {name!r}{did_you_mean(name, DATASETS)}"
    )
