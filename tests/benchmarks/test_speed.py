"""A table of speeds with their targets and peers: ``pytest -m benchmark -s`` prints it.

Each ratio is of two routes in one process. Times are processor times, which depend on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from torch.nn.functional import cross_entropy

from fl_edge_env import Allocation, FLEdgeVectorEnv, Scenario
from policies import evaluate, make_policy
from policies.benchmark.bounds import find_prices
from policies.benchmark.play import play
from policies.p2 import solve_p2
from tests.benchmarks.scale import seconds
from tests.policies.p2.cvxpy_route import solve_p2_cvxpy
from tests.policies.p2.test_solver import random_state
from tests.support import chosen, python
from train_fl import Dataset, Task, TrainingWrapper, make_task

pytestmark = pytest.mark.benchmark

Row = Callable[[str, float, str, str], None]


@pytest.fixture(scope="module")
def row() -> Iterator[Row]:
    """Takes what was measured, its number, the target and the peer, and prints all at the end."""
    lines = ["| measured | here | target | peer |", "| --- | ---: | ---: | --- |"]
    yield lambda what, number, target, peer: lines.append(
        f"| {what} | {number:.3g} | {target} | {peer} |"
    )
    print("\n" + "\n".join(lines))


def ratio(ours: Callable[[], object], theirs: Callable[[], object]) -> float:
    """The median over pairs, because the machine's speed drifts."""
    return float(np.median([seconds(ours) / seconds(theirs) for _ in range(3)]))


def test_decision__against_the_cvxpy_route(row):
    scenario = Scenario.cifar10()
    states = [random_state(scenario, seed, 0.5) for seed in range(256)]  # of settled queues
    state = states[0]
    batch = [np.stack(values) for values in zip(*states, strict=True)]
    assert solve_p2(*state, scenario).objective <= solve_p2_cvxpy(*state, scenario)[-1]
    single = seconds(lambda: solve_p2(*state, scenario))
    many = seconds(lambda: solve_p2(*batch, scenario)) / 256
    peer = f"in a batch of 256: {many * 1e6:.3g}"
    row("LROA's decision, N = 120 [us]", single * 1e6, "25", peer)
    reference = seconds(lambda: solve_p2_cvxpy(*state, scenario))
    what = "cvxpy's time over ours"
    row(what, reference / single, "1000", "Clarabel: builds a problem, solves it six times")


@pytest.mark.parametrize("number", [1000, 10_000])
def test_quickest__against_lroa(row, number):
    scenario = Scenario.cifar10(num_devices=number, energy_budget_j=1800 / number)
    observation, info = gym.make("FLEdge-v0", scenario=scenario).reset(seed=0)
    quickest, lroa = (make_policy(name, scenario) for name in ("quickest", "lroa"))
    for policy in (quickest, lroa):
        policy.reset(0)
        policy.feedback(info)
    found = ratio(lambda: quickest.decide(observation), lambda: lroa.decide(observation))
    row(f"Quickest's decision, N = {number:,}", found, "3", "LROA's")


def test_steps__against_cart_pole(row):
    scenario = Scenario.cifar10(num_rounds=10**6)
    cart = gym.make("CartPole-v1")
    one = gym.make("FLEdge-v0", scenario=scenario)
    many = gym.make_vec(
        "FLEdge-v0", num_envs=64, vectorization_mode="vector_entry_point", scenario=scenario
    )
    for env in (cart, one, many):
        env.reset(seed=0)
    allocation = Allocation(scenario.f_mid, scenario.p_mid, np.full(120, 1 / 120))
    batch = allocation.of_shape((64, 120))

    def push() -> None:
        if cart.step(1)[2]:
            cart.reset()

    # Random numbers are drawn ahead for 136 rounds: as many steps, so that all pay for them.
    single = ratio(push, lambda: [one.step(allocation) for _ in range(136)]) * 136
    row("steps a second", single, "0.12", "CartPole's")
    whole = ratio(push, lambda: [many.step(batch) for _ in range(136)]) * 136 * 64
    row("steps a second in a batch of 64", whole, "1.4", "CartPole's")


def noise(model: str, shape: tuple[int, ...], classes: int) -> Task:
    """Random images: the cost of training does not depend on what is on them."""
    rng = np.random.default_rng(0)
    images = rng.random((2270, *shape), dtype=np.float32)
    labels = np.append(rng.integers(classes, size=2269), classes - 1)
    dataset = Dataset.from_arrays("noise", images, labels, images[:256], labels[:256])
    options = {"partition": "iid", "learning_rate": 0.01, "model": model, "split_seed": 0}
    return make_task(dataset, num_devices=10, **options)


def bare_round(task: Task, epochs: int, cohort: list[int], *, test: bool) -> Callable[[], None]:
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
        if test:
            model.load_state_dict(state)
            with torch.no_grad():
                model(dataset.test_inputs)

    return play


def round_of(task: Task, epochs: int, *, test: bool) -> Callable[[], object]:
    """A round of training with a cohort of two."""
    system = Scenario(num_devices=len(task.parts), num_rounds=10**6, local_epochs=epochs)
    scenario = task.fit(system)
    every = 1 if test else 10**6
    env = TrainingWrapper(gym.make("FLEdge-v0", scenario=scenario), task, eval_every=every)
    env.reset(seed=0)
    allocation = chosen(scenario, 0, 1)
    return lambda: env.step(allocation)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "epochs"),
    [
        ("digits", (1, 8, 8), 10, 2),
        ("small", (1, 28, 28), 62, 2),
        ("cnn", (1, 28, 28), 62, 1),
        ("resnet18", (3, 32, 32), 10, 1),
    ],
)
@pytest.mark.parametrize("test", [False, True])
def test_round__against_a_bare_loop(row, name, shape, classes, epochs, test):
    torch.set_num_threads(1)
    own = make_task("digits", split_seed=0)
    task = own if name == "digits" else noise(name, shape, classes)
    ours = round_of(task, epochs, test=test)
    found = ratio(ours, bare_round(task, epochs, [0, 1], test=test))
    what = f"round of training, {name}{' and evaluation' if test else ''}"
    row(what, found, "1.25" if test else "1.1", "bare PyTorch loop")


# Of each, the processor time of the first use, with what it imports.
FIRST_USES = {
    "LROA's first decision": ("make_policy('lroa', s).decide(o)", 2.8),
    "Opportunistic's first decision": ("make_policy('opportunistic', s).decide(o)", 6.3),
    "both bounds": ("evaluate([make_policy('uni-s', s)], s, [0])", 8),
}
FIRST_USE = """
import time, fl_edge_env, gymnasium, numba, pandas, rich.progress
from fl_edge_env import Scenario
from policies import evaluate, make_policy

s = Scenario.cifar10(num_rounds=2)
o, _ = gymnasium.make("FLEdge-v0", scenario=s).reset(seed=0)
begun = time.process_time()
{}
print(time.process_time() - begun)
"""


@pytest.mark.parametrize("what", FIRST_USES)
def test_solvers__compile_once(row, what, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    line, target = FIRST_USES[what]
    first, second = (float(python(FIRST_USE.format(line)).stdout) for _ in range(2))
    row(f"{what} [s]", first, str(target), f"second process: {second:.2g}")


MINE = """
from policies import UniD

class Mine(UniD):
    pass
"""


@pytest.mark.parametrize(("name", "target"), [("lroa", 1.2), ("uni-d", 1.2), ("mine.py:Mine", 1.3)])
def test_evaluate__against_a_bare_loop(row, name, target, tmp_path, monkeypatch):
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

    row(f"evaluate of {name}", ratio(ours, bare), str(target), "a bare loop of play")


MILLION = """
import resource, time
from fl_edge_env import FLEdgeVectorEnv, Scenario
from policies import make_policy
from policies.benchmark.bounds import find_prices, outcome_path_bound, path_bound

scenario = Scenario.cifar10(num_devices=10**6, energy_budget_j=0.0018, num_rounds=1)
prices = find_prices(scenario)
path_bound(scenario, 0, prices.energy)
outcome_path_bound(scenario, 0, prices.outcome)
env = FLEdgeVectorEnv(1, scenario)
env.step(make_policy("lroa", scenario).decide(env.reset(seed=0)[0]))
print(time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


def test_scale__of_a_million_devices(row):
    elapsed, memory = map(float, python(MILLION).stdout.split())
    row("system of 10^6 devices: prices, bounds, a round [s]", elapsed, "60", "–")
    row("its memory [GiB]", memory, "2", "–")
