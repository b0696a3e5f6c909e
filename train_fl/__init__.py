"""Real federated training inside the FLEdge environment."""

from importlib.util import find_spec

for _package in ("torch", "torchvision", "sklearn", "ijson", "pyarrow"):
    if find_spec(_package) is None:
        raise ModuleNotFoundError(
            f"training models needs the package {_package}: install the extra `train`, "
            'for example by pip install -e ".[train]"'
        )

from train_fl.data.dataset import Dataset  # noqa: E402 - the check comes first
from train_fl.factory import TrainingEnvFactory  # noqa: E402
from train_fl.task import Task, make_task  # noqa: E402
from train_fl.wrapper import TrainingWrapper  # noqa: E402

__all__ = ["Dataset", "Task", "TrainingEnvFactory", "TrainingWrapper", "make_task"]
