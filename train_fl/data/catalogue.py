"""The data sets by name, one function each, and user-defined ones by file."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable

from fl_edge_env.checks import did_you_mean
from policies.user_code import load_own, names_own, running_own
from train_fl.data.dataset import Dataset, DataSource
from train_fl.data.femnist import femnist
from train_fl.data.images import cifar10, digits, fashion_mnist

DATASETS: dict[str, Callable[[DataSource], Dataset]] = {
    "digits": digits,
    "fashion_mnist": fashion_mnist,
    "cifar10": cifar10,
    "femnist": femnist,
}


def _call(function: Callable[[], object], name: str) -> Dataset:
    with running_own(f"{name} does not give its data"):
        dataset = function()
    if not isinstance(dataset, Dataset):
        raise ValueError(f"{name} must return a Dataset, got {type(dataset).__name__}")
    return dataset


def own_dataset(name: str) -> Dataset:
    """User-defined data, by ``my_file.py:function`` or ``my_module:function``.

    The function has no arguments and returns a `Dataset`.

    Raises
    ------
    ValueError
        If there is no such function, it fails, or it returns something else or other data on
        each call.
    """
    if names_own(name):
        function = load_own(name, kind="function that returns a Dataset", fits=callable)
        dataset = _call(function, name)
        # Once is enough, and not in each worker.
        once = multiprocessing.current_process().name == "MainProcess"
        if once and _call(function, name).fingerprint != dataset.fingerprint:
            raise ValueError(f"{name}() returns different data on each call: seed it")
        return dataset
    raise ValueError(
        f"data set must be one of {', '.join(DATASETS)}, or a function in a file as "
        f"my_file.py:function, got {name!r}{did_you_mean(name, DATASETS)}"
    )
