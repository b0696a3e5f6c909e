"""Cost of a round with training, against a bare PyTorch loop over the same steps."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fl_edge_env import Allocation, Scenario
from train_fl import Dataset, Task, TrainingWrapper, make_task

pytestmark = pytest.mark.benchmark


def characters(num_devices: int, num_samples: int, model: str = "cnn") -> Task:
    """Noise of FEMNIST's shape: the cost of training does not depend on what is on the images."""
    rng = np.random.default_rng(0)
    count = num_devices * num_samples
    images = rng.random((count, 1, 28, 28), dtype=np.float32)
    labels = np.append(rng.integers(62, size=count - 1), 61)
    dataset = Dataset.from_arrays("noise", images, labels, images[:10], labels[:10])
    options = {"partition": "iid", "learning_rate": 0.01, "model": model, "split_seed": 0}
    return make_task(dataset, num_devices=num_devices, **options)


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


def round_of(task: Task, **options: object) -> Callable[[], object]:
    """A round of training with a cohort of two."""
    scenario = task.fit(Scenario(num_devices=len(task.parts), num_rounds=10**6))
    base = gym.make("FLEdge-v0", scenario=scenario)
    env = TrainingWrapper(base, task, eval_every=10**6, **options)
    env.reset(seed=0)
    allocation = Allocation(scenario.f_mid, scenario.p_mid, cohort=[0, 1])
    return lambda: env.step(allocation)


def medians(ways: dict[str, Callable[[], object]], calls: int, seconds) -> dict[str, float]:
    """Seconds of a call, measured in turn, so that all meet the same machine."""
    torch.set_num_threads(1)
    times = [{way: seconds(call, calls, repeats=1) for way, call in ways.items()} for _ in range(5)]
    return {way: float(np.median([each[way] for each in times])) for way in ways}


@pytest.mark.parametrize(("name", "calls"), [("digits", 30), ("small", 10), ("cnn", 2)])
def test_round__against_a_bare_loop(name, calls, report, seconds):
    task = make_task("digits", split_seed=0) if name == "digits" else characters(10, 227, name)
    bare = bare_round(task, 2, [0, 1])
    loop, ours = medians({"bare": bare, "ours": round_of(task)}, calls, seconds).values()
    report(
        f"round with training, {name}: {ours * 1e3:.2f} ms, bare PyTorch loop "
        f"{loop * 1e3:.2f} ms, ratio {ours / loop:.2f}"
    )
