"""Inputs of any shape: tables and tokens."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from torch import nn

from fl_edge_env import Scenario
from tests.support import chosen
from train_fl import Dataset, Task, TrainingWrapper, make_task

N = 4
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(90, 3)).astype(np.float32)
TOKENS = RNG.integers(7, size=(90, 1))
CLASSES = (TOKENS[:, 0] % 3).astype(np.int64)


def table() -> Dataset:
    return Dataset.from_arrays("table", ROWS[:70], CLASSES[:70], ROWS[70:], CLASSES[70:])


def tokens() -> Dataset:
    return Dataset.from_arrays("tokens", TOKENS[:70], CLASSES[:70], TOKENS[70:], CLASSES[70:])


def embedding(rows: int = 7, **options) -> nn.Module:
    return nn.Sequential(nn.Embedding(rows, 3, **options), nn.Flatten())


def make_own(dataset: Dataset, **changes) -> Task:
    """A task in which an epoch is a step along the gradient over all of a device's data."""
    options = {"num_devices": N, "learning_rate": 0.5, "momentum": 0.0, "batch_size": 90}
    options |= {"model": lambda: nn.Linear(3, 3), "partition": "iid"}
    return make_task(dataset, **options | changes)


def play(task: Task, rounds: int) -> tuple[list[np.ndarray], dict]:
    """The models of rounds in which all devices take part, the first one before, and the info."""
    scenario = task.fit(
        Scenario.digits(num_devices=N, cohort_size=N, num_rounds=rounds, local_epochs=1)
    )
    env = TrainingWrapper(gym.make("FLEdge-v0", scenario=scenario), task)
    env.reset(seed=0)
    models = [env.parameters]
    for _ in range(rounds):
        *_, info = env.step(chosen(scenario, *range(N)))
        models.append(env.parameters)
    return models, info


def softmax_errors(scores: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Derivative of each sample's cross-entropy by its scores."""
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return shares - np.eye(3)[classes]


def test_table__a_round_is_a_step_along_the_gradient():
    models, info = play(make_own(table()), rounds=1)
    before, after = (model[:9].reshape(3, 3) for model in models)
    errors = softmax_errors(ROWS[:70] @ before.T + models[0][9:], CLASSES[:70])
    np.testing.assert_allclose(after, before - 0.5 * errors.T @ ROWS[:70] / 70, atol=1e-6)
    np.testing.assert_allclose(models[1][9:], models[0][9:] - 0.5 * errors.mean(axis=0), atol=1e-6)
    scores = ROWS[70:] @ after.T + models[1][9:]
    assert info["test_accuracy"] == np.mean(scores.argmax(axis=1) == CLASSES[70:])
    losses = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(20), CLASSES[70:]]
    assert info["test_loss"] == pytest.approx(losses.mean(), rel=1e-5)


def test_tokens__each_embedding_learns_from_its_samples():
    models, info = play(make_own(tokens(), model=embedding), rounds=40)
    before = models[0].reshape(7, 3)
    step = np.zeros((7, 3))
    np.add.at(step, TOKENS[:70, 0], softmax_errors(before[TOKENS[:70, 0]], CLASSES[:70]) / 70)
    np.testing.assert_allclose(models[1].reshape(7, 3), before - 0.5 * step, atol=1e-6)
    expected = np.mean(models[-1].reshape(7, 3)[TOKENS[70:, 0]].argmax(axis=1) == CLASSES[70:])
    assert info["test_accuracy"] == expected
