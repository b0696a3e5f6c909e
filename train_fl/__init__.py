"""Real federated training inside the FLEdge environment."""

from train_fl.datasets import Dataset
from train_fl.task import Task, make_task
from train_fl.wrapper import TrainingWrapper

__all__ = ["Dataset", "Task", "TrainingWrapper", "make_task"]
