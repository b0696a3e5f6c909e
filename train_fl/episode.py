"""What the seed of an episode decides about training, wherever the devices train."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from train_fl.task import Task


class TrainingSeeds(NamedTuple):
    """The streams of training in an episode.

    Attributes
    ----------
    model : numpy.random.SeedSequence
        Of the initial parameters.
    order : numpy.random.SeedSequence
        Of the order in which devices see their samples; see `sample_order`.
    split : numpy.random.SeedSequence
        Of the split of the samples over the devices; see `Task.episode`.
    """

    model: np.random.SeedSequence
    order: np.random.SeedSequence
    split: np.random.SeedSequence

    @classmethod
    def of(cls, training: np.random.SeedSequence) -> TrainingSeeds:
        """The streams that come from an episode's training stream.

        Parameters
        ----------
        training : numpy.random.SeedSequence
            As `FLEdgeEnv.training_seed` gives it; it is not changed.
        """
        fresh = np.random.SeedSequence(training.entropy, spawn_key=training.spawn_key)
        return cls(*fresh.spawn(len(cls._fields)))


def initial_model(task: Task, seed: np.random.SeedSequence) -> nn.Module:
    """The network that an episode begins with; torch's generators are left as they were.

    Parameters
    ----------
    task : Task
        Makes the network.
    seed : numpy.random.SeedSequence
        `TrainingSeeds.model`.
    """
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which reseeds every GPU as well.
        torch.default_generator.manual_seed(int(seed.generate_state(1, np.uint64)[0]))
        return task.make_model()


def sample_order(
    seed: np.random.SeedSequence, completed_rounds: int, device: int
) -> np.random.Generator:
    """The stream of a device's training in a round: who else takes part changes nothing.

    Parameters
    ----------
    seed : numpy.random.SeedSequence
        `TrainingSeeds.order`.
    completed_rounds : int
        Rounds played so far.
    device : int
        The device.
    """
    key = (*seed.spawn_key, completed_rounds, device)
    return np.random.default_rng(np.random.SeedSequence(seed.entropy, spawn_key=key))


def learning_rate(task: Task, completed_rounds: int, num_rounds: int) -> float:
    """The learning rate of the coming round: halved at 50 % and at 75 % of the rounds.

    Parameters
    ----------
    task : Task
        Supplies the initial learning rate.
    completed_rounds : int
        Rounds played so far.
    num_rounds : int
        Rounds of the episode.
    """
    halvings = (completed_rounds >= 0.5 * num_rounds) + (completed_rounds >= 0.75 * num_rounds)
    rate = task.options.learning_rate
    assert rate is not None  # make_task has put the data set's own in its place
    return rate * 0.5**halvings
