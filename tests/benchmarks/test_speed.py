"""Ratios of two routes measured in one process: ``pytest -m benchmark -s`` prints them."""

from __future__ import annotations

import timeit
from collections.abc import Callable

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fl_edge_env import Allocation, Scenario
from train_fl import Dataset, Task, TrainingWrapper, make_task

pytestmark = pytest.mark.benchmark


def seconds(routine: Callable[[], object], calls: int, repeats: int = 7) -> float:
    """Mean time of a call after one to warm up, in the fastest of the repeats."""
    routine()
    return min(timeit.repeat(routine, number=calls, repeat=repeats)) / calls


def characters(model: str) -> Task:
    """Noise of FEMNIST's shape: the cost of training does not depend on what is on the images."""
    rng = np.random.default_rng(0)
    images = rng.random((2270, 1, 28, 28), dtype=np.float32)
    labels = np.append(rng.integers(62, size=2269), 61)
    dataset = Dataset.from_arrays("noise", images, labels, images[:10], labels[:10])
    options = {"partition": "iid", "learning_rate": 0.01, "model": model, "split_seed": 0}
    return make_task(dataset, num_devices=10, **options)


def bare_round(task: Task, epochs: int, cohort: list[int]) -> Callable[[], None]:
    """Local SGD of the cohort and the mean of its models, as PyTorch's tutorials write it."""
    model, dataset = task.make_model(), task.dataset
    state = {name: value.clone() for name, value in model.state_dict().items()}

    def play() -> None:
        updates = {name: torch.zeros_like(value) for name, value in state.items()}
        for device in cohort:
            model.load_state_dict(state)
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=task.options.momentum)
            part = torch.from_numpy(task.parts[device])
            for _ in range(epochs):
                for batch in part[torch.randperm(len(part))].split(task.options.batch_size):
                    optimizer.zero_grad()
                    loss = cross_entropy(
                        model(dataset.train_inputs[batch]), dataset.train_targets[batch]
                    )
                    loss.backward()
                    optimizer.step()
            for name, value in model.state_dict().items():
                updates[name] += (value - state[name]) / len(cohort)
        for name, value in updates.items():
            state[name] += value

    return play


def round_of(task: Task) -> Callable[[], object]:
    """A round of training with a cohort of two."""
    scenario = task.fit(Scenario(num_devices=len(task.parts), num_rounds=10**6))
    env = TrainingWrapper(gym.make("FLEdge-v0", scenario=scenario), task, eval_every=10**6)
    env.reset(seed=0)
    allocation = Allocation(scenario.f_mid, scenario.p_mid, cohort=[0, 1])
    return lambda: env.step(allocation)


@pytest.mark.parametrize(("name", "calls"), [("digits", 30), ("small", 10), ("cnn", 2)])
def test_round__against_a_bare_loop(name, calls):
    torch.set_num_threads(1)
    task = make_task("digits", split_seed=0) if name == "digits" else characters(name)
    loop, ours = (seconds(way, calls) for way in (bare_round(task, 2, [0, 1]), round_of(task)))
    print(
        f"round with training, {name}: {ours * 1e3:.2f} ms, bare PyTorch loop "
        f"{loop * 1e3:.2f} ms, ratio {ours / loop:.2f}"
    )
