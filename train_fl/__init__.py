"""Real federated training inside the FLEdge environment."""

from train_fl.datasets import Dataset
from train_fl.factory import TrainingEnvFactory
from train_fl.task import Task, make_task
from train_fl.wrapper import TrainingWrapper

__all__ = ["Dataset", "Task", "TrainingEnvFactory", "TrainingWrapper", "make_task"]
