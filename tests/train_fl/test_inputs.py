"""Inputs other than images: tokens."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from torch import nn

from fl_edge_env import Scenario
from tests.support import chosen
from train_fl import Dataset, TrainingWrapper, make_task

N = 4


def test_tokens__each_embedding_learns_from_its_samples():
    tokens = np.random.default_rng(0).integers(7, size=(90, 1))
    classes = tokens[:, 0] % 3
    dataset = Dataset.from_arrays("tokens", tokens[:70], classes[:70], tokens[70:], classes[70:])
    # An epoch is a step along the gradient over all of a device's data.
    task = make_task(
        dataset,
        num_devices=N,
        model=lambda: nn.Sequential(nn.Embedding(7, 3), nn.Flatten()),
        partition="iid",
        learning_rate=0.5,
        momentum=0.0,
        batch_size=90,
    )
    scenario = Scenario.digits(num_devices=N, cohort_size=N, num_rounds=40, local_epochs=1)
    env = TrainingWrapper(gym.make("FLEdge-v0", scenario=task.fit(scenario)), task)
    env.reset(seed=0)
    expected = env.parameters.reshape(7, 3).astype(float)
    shares = np.exp(expected) / np.exp(expected).sum(axis=1, keepdims=True)
    for token, label in zip(tokens[:70, 0], classes[:70], strict=True):
        expected[token] -= 0.5 * (shares[token] - np.eye(3)[label]) / 70
    *_, info = env.step(chosen(scenario, *range(N)))
    np.testing.assert_allclose(env.parameters.reshape(7, 3), expected, atol=1e-6)
    for _ in range(39):
        *_, info = env.step(chosen(scenario, *range(N)))
    best = env.parameters.reshape(7, 3)[tokens[70:, 0]].argmax(axis=1)
    assert info["test_accuracy"] == np.mean(best == classes[70:])
