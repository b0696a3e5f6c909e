"""The data sets by name, one function each."""

from __future__ import annotations

from collections.abc import Callable

from train_fl.data.cifar10 import cifar10
from train_fl.data.dataset import Dataset, DataSource
from train_fl.data.digits import digits
from train_fl.data.fashion_mnist import fashion_mnist
from train_fl.data.femnist import femnist

DATASETS: dict[str, Callable[[DataSource], Dataset]] = {
    "digits": digits,
    "fashion_mnist": fashion_mnist,
    "cifar10": cifar10,
    "femnist": femnist,
}
