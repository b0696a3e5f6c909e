"""Fetching the data sets that torchvision knows."""

from __future__ import annotations

from pathlib import Path

from torchvision.datasets import CIFAR10, FashionMNIST

from fl_edge_env.files import as_value_error


def download(dataset: type[FashionMNIST | CIFAR10], folder: Path) -> None:
    """Let torchvision fetch what is missing of a data set.

    Parameters
    ----------
    dataset : type
        Torchvision's class.
    folder : Path
        Where the files go.

    Raises
    ------
    ValueError
        If it cannot be had, whatever the reason.
    """
    with as_value_error(f"cannot download {dataset.__name__} to {str(folder)!r}: "):
        dataset(folder, download=True)
