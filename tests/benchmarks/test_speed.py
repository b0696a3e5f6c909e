"""Speed of a decision and of the environment, as ratios.

Run with ``pytest -m benchmark``; nothing here fails for being slow.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable

import gymnasium as gym
import numpy as np
import pytest

from fl_edge_env import Allocation, Scenario
from policies import LROA, UniD, UniS, evaluate
from policies.p2 import solve_p2
from policies.p2.reference import solve_p2_cvxpy

pytestmark = pytest.mark.benchmark


def states(scenario: Scenario, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Gains, and queues as LROA has them when they have settled."""
    rng = np.random.default_rng(0)
    gains = scenario.channel.draw(rng, count, scenario.num_devices)
    settled = scenario.V / (2 * scenario.capacitance * scenario.f_mid**3)
    return gains, settled * rng.uniform(0, 1, gains.shape)


def test_decision__against_the_cvxpy_route(benchmark, report, seconds):
    scenario = Scenario.cifar10()
    gains, queues = states(scenario, 256)
    reference = seconds(lambda: solve_p2_cvxpy(gains[0], queues[0], scenario), 1)
    benchmark(solve_p2, gains[0], queues[0], scenario)
    single = seconds(lambda: solve_p2(gains[0], queues[0], scenario), 200)
    batch = seconds(lambda: solve_p2(gains, queues, scenario), 3) / len(gains)
    assert (
        solve_p2(gains[0], queues[0], scenario).objective
        <= solve_p2_cvxpy(gains[0], queues[0], scenario)[-1]
    )
    report(
        f"decision, N = 120: cvxpy with six subproblems {reference * 1e3:.1f} ms, "
        f"ours {single * 1e6:.1f} us ({reference / single:.0f} times faster), "
        f"in a batch of 256 {batch * 1e6:.1f} us ({reference / batch:.0f} times)"
    )


def test_certificate__against_the_decision(report, seconds):
    scenario = Scenario.cifar10()
    gains, queues = states(scenario, 1)
    plain = seconds(lambda: solve_p2(gains[0], queues[0], scenario), 200)
    proven = seconds(lambda: solve_p2(gains[0], queues[0], scenario).lower_bound, 100)
    report(f"decision with certificate over decision: {proven / plain:.1f}")


def test_decision__cost_against_the_number_of_devices(report, seconds):
    cost = {}
    for num_devices in (120, 1_000, 10_000, 100_000, 1_000_000):
        scenario = Scenario(num_devices=num_devices)
        gains, queues = states(scenario, 1)
        calls = max(1, 20_000 // num_devices)
        cost[num_devices] = seconds(
            lambda g=gains[0], q=queues[0], s=scenario: solve_p2(g, q, s), calls, repeats=3
        )
    per_device = {n: f"{1e9 * value / n:.0f} ns" for n, value in cost.items()}
    report(f"decision per device against N: {per_device}; N = 1,000,000: {cost[1_000_000]:.2f} s")


def test_decision__memory_of_a_million_devices(report):
    # The high-water mark of the process itself: ru_maxrss would begin with that of its parent.
    code = (
        "import numpy as np, re; from pathlib import Path; from fl_edge_env import Scenario;"
        "from policies.p2 import solve_p2; s = Scenario(num_devices=1_000_000);"
        "solve_p2(np.full(1_000_000, 0.1), np.ones(1_000_000), s);"
        "print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    report(f"peak memory of a decision for 1,000,000 devices: {int(result.stdout) / 1e6:.2f} GB")


def test_vector_env__against_a_loop_of_single_environments(report, seconds):
    scenario = Scenario.cifar10(num_rounds=10**6)
    envs = [gym.make("FLEdge-v0", scenario=scenario) for _ in range(64)]
    native, sync = (
        gym.make_vec("FLEdge-v0", num_envs=64, vectorization_mode=mode, scenario=scenario)
        for mode in ("vector_entry_point", "sync")
    )
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    native.reset(seed=0)
    sync.reset(seed=0)
    allocation = Allocation(scenario.f_mid, scenario.p_mid, np.full(120, 1 / 120))
    batch = Allocation(*(np.tile(x, (64, 1)) for x in (allocation.f, allocation.p, allocation.q)))
    actions = np.random.default_rng(0).uniform(-1, 1, (64, 3, 120)).astype(np.float32)

    def loop(decisions: Iterable[Allocation | np.ndarray]) -> None:
        for env, decision in zip(envs, decisions, strict=True):
            env.step(decision)

    # Random numbers are drawn ahead for 136 rounds: as many steps, so that all pay for them.
    one = seconds(lambda: envs[0].step(allocation), 5 * 136)
    fast = {
        "allocations": seconds(lambda: native.step(batch), 136),
        "actions": seconds(lambda: native.step(actions), 136),
    }
    slow = {
        "allocations": seconds(lambda: loop([allocation] * 64), 17),
        "actions": seconds(lambda: loop(actions), 17),
    }
    gymnasium = seconds(lambda: sync.step(actions), 17)
    report(
        f"env.step(Allocation): {1 / one:.0f} steps/s; vector env of 64: "
        f"{64 / fast['allocations']:.0f} steps/s with allocations, "
        f"{slow['allocations'] / fast['allocations']:.1f} times a bare loop over single envs; "
        f"{64 / fast['actions']:.0f} steps/s with actions, "
        f"{slow['actions'] / fast['actions']:.1f} times the bare loop and "
        f"{gymnasium / fast['actions']:.1f} times Gymnasium's, which stacks what it returns"
    )


def test_evaluate__system_side_of_both_scenarios(report: Callable[[str], None]):
    start = time.perf_counter()
    for scenario in (Scenario.cifar10(), Scenario.femnist()):
        policies = [LROA(scenario), UniD(scenario), UniS(scenario)]
        evaluate(policies, scenario, seeds=range(30))
    report(
        f"3 policies, 30 seeds, 1000 rounds, both scenarios: {time.perf_counter() - start:.1f} s"
    )


@pytest.mark.parametrize("num_devices", [120, 1000])
def test_frame__against_a_figure_of_its_own(num_devices, report, seconds):
    env = gym.make("FLEdge-v0", num_devices=num_devices, render_mode="rgb_array")
    env.reset(seed=0)

    def frame() -> None:
        env.step(env.action_space.sample())
        env.render()

    def figure() -> None:
        env.unwrapped._dashboard._canvas = None
        frame()

    ours, anew = seconds(frame, 10), seconds(figure, 3, 3)
    report(
        f"rendering, N = {num_devices}: {1 / ours:.0f} frames a second, "
        f"{anew / ours:.0f} times as many as with a new figure for each"
    )
