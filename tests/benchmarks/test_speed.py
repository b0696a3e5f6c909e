"""Ratios of two routes measured in one process: ``pytest -m benchmark -s`` prints them."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Iterable
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from torch.nn.functional import cross_entropy

from fl_edge_env import Allocation, FLEdgeVectorEnv, Scenario
from fl_edge_env.physics import time_and_energy
from policies import evaluate, make_policy
from policies.benchmark.bounds import find_prices
from policies.benchmark.play import play
from policies.p2 import solve_p2
from tests.policies.p2.cvxpy_route import solve_p2_cvxpy
from tests.policies.p2.test_solver import random_state
from tests.support import chosen, python
from train_fl import Dataset, Task, TrainingWrapper, make_task

pytestmark = pytest.mark.benchmark

Numbers = np.ndarray


def seconds(routine: Callable[[], object], calls: int, repeats: int = 7) -> float:
    """Mean processor time of a call after one to warm up, in the fastest of the repeats."""
    routine()
    return (
        min(timeit.repeat(routine, timer=time.process_time, number=calls, repeat=repeats)) / calls
    )


def test_decision__against_the_cvxpy_route():
    scenario = Scenario.cifar10()
    states = [random_state(scenario, seed, 0.5) for seed in range(256)]  # of settled queues
    state = states[0]
    batch = [np.stack(values) for values in zip(*states, strict=True)]
    assert solve_p2(*state, scenario).objective <= solve_p2_cvxpy(*state, scenario)[-1]
    reference = seconds(lambda: solve_p2_cvxpy(*state, scenario), 1)
    single = seconds(lambda: solve_p2(*state, scenario), 200)
    many = seconds(lambda: solve_p2(*batch, scenario), 3) / 256
    proven = seconds(lambda: solve_p2(*state, scenario).lower_bound, 100)
    print(
        "decision, N = 120: cvxpy with Clarabel, which builds its problem in each decision and "
        f"solves it six times, {reference * 1e3:.1f} ms, "
        f"ours {single * 1e6:.1f} us ({reference / single:.0f} times faster, target 1000), "
        f"in a batch of 256 {many * 1e6:.1f} us ({reference / many:.0f} times); "
        f"with certificate {proven / single:.1f} times the decision"
    )


def test_vector_env__against_a_loop_of_single_environments():
    scenario = Scenario.cifar10(num_rounds=10**6)
    envs = [gym.make("FLEdge-v0", scenario=scenario) for _ in range(64)]
    native, sync = (
        gym.make_vec("FLEdge-v0", num_envs=64, vectorization_mode=mode, scenario=scenario)
        for mode in ("vector_entry_point", "sync")
    )
    for seed, env in enumerate([*envs, native, sync]):
        env.reset(seed=seed)
    allocation = Allocation(scenario.f_mid, scenario.p_mid, np.full(120, 1 / 120))
    batch = Allocation(*(np.tile(x, (64, 1)) for x in (allocation.f, allocation.p, allocation.q)))
    actions = np.random.default_rng(0).uniform(-1, 1, (64, 3, 120)).astype(np.float32)

    def loop(decisions: Iterable[Allocation | Numbers]) -> None:
        for env, decision in zip(envs, decisions, strict=True):
            env.step(decision)

    # Random numbers are drawn ahead for 136 rounds: as many steps, so that all pay for them.
    gymnasium = seconds(lambda: sync.step(actions), 17)
    state = envs[0].unwrapped.simulator.channel_gain, allocation.f, allocation.p, scenario
    physics_alone = seconds(lambda: time_and_energy(*state), 5 * 136)
    for name, decided in (("Allocation", allocation), ("action", actions[0])):
        one = seconds(lambda d=decided: envs[0].step(d), 5 * 136)
        print(
            f"env.step({name}): {1 / one:.0f} steps/s, {one / physics_alone:.1f} times the physics "
            "of its round"
        )
    for name, decided, single in (
        ("allocations", batch, [allocation] * 64),
        ("actions", actions, actions),
    ):
        fast = seconds(lambda d=decided: native.step(d), 136)
        slow = seconds(lambda d=single: loop(d), 17)
        print(
            f"vector env of 64, {name}: {64 / fast:.0f} steps/s, {slow / fast:.1f} times a bare "
            f"loop over single envs, {gymnasium / fast:.1f} times Gymnasium's with actions"
        )


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
    model = task.make_model()
    dataset = task.dataset
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
    allocation = chosen(scenario, 0, 1)
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


# Decides with each kernel, and computes both bounds.
USES_ALL_SOLVERS = """
import time
from fl_edge_env import Scenario
from policies import evaluate, make_policy

scenario = Scenario.cifar10(num_rounds=2)
names = ("lroa", "uni-d", "opportunistic", "fastest:dynamic")
evaluate([make_policy(name, scenario) for name in names], scenario, seeds=[0])
print(time.process_time())
"""


def test_solvers__compile_once(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    first, second = (float(python(USES_ALL_SOLVERS).stdout) for _ in range(2))
    print(f"all solvers compile in {first - second:.1f} s of processor time (target 10)")


MINE = """
from policies import UniD

class Mine(UniD):
    pass
"""


@pytest.mark.parametrize(("name", "target"), [("lroa", 1.2), ("uni-d", 1.2), ("mine.py:Mine", 1.3)])
def test_evaluate__against_a_bare_loop(name, target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    scenario = Scenario.cifar10()
    policy = make_policy(name, scenario)
    prices = find_prices(scenario, bounded=False)

    def bare() -> None:
        env = FLEdgeVectorEnv(30, scenario, autoreset_mode=AutoresetMode.DISABLED)
        play(policy, env, scenario, range(30), prices=prices)

    def ours() -> None:
        evaluate([policy], scenario, range(30), gaps=False)

    ratios = [seconds(ours, 1, repeats=1) / seconds(bare, 1, repeats=1) for _ in range(5)]
    ratio = np.median(ratios)  # of pairs, as the machine's speed drifts
    print(f"evaluate of {name}: {ratio:.2f} times a bare loop of play (target {target})")
