"""Real federated training inside the FLEdge environment."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from train_fl.data.dataset import Dataset
    from train_fl.factory import TrainingEnvFactory
    from train_fl.task import Task, make_task
    from train_fl.wrapper import TrainingWrapper

__all__ = ["Dataset", "Task", "TrainingEnvFactory", "TrainingWrapper", "make_task"]

# Imported on first use, as the command line must also work without torch.
_MODULES = {
    "Dataset": "train_fl.data.dataset",
    "Task": "train_fl.task",
    "TrainingEnvFactory": "train_fl.factory",
    "TrainingWrapper": "train_fl.wrapper",
    "make_task": "train_fl.task",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for package in ("torch", "torchvision", "sklearn"):
        if find_spec(package) is None:
            raise ModuleNotFoundError(
                f"training models needs the package {package}: install the extra `train`, "
                'for example with pip install -e ".[train]"'
            )
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
