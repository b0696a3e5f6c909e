"""Speed of decisions and of the environment, as ratios. Run with ``pytest -m benchmark``."""

from __future__ import annotations

from collections.abc import Iterable

import gymnasium as gym
import numpy as np
import pytest

from fl_edge_env import Allocation, Scenario
from policies.p2 import solve_p2
from tests.policies.p2.cvxpy_route import solve_p2_cvxpy

pytestmark = pytest.mark.benchmark

Numbers = np.ndarray


def p2_states(scenario: Scenario, count: int) -> tuple[Numbers, Numbers]:
    """Gains, and queues as LROA has them when they have settled."""
    rng = np.random.default_rng(0)
    gains = scenario.channel.draw(rng, count, scenario.num_devices)
    settled = scenario.V / (2 * scenario.capacitance * scenario.f_mid**3)
    return gains, settled * rng.uniform(0, 1, gains.shape)


def test_decision__against_the_cvxpy_route(report, seconds):
    scenario = Scenario.cifar10()
    batch = p2_states(scenario, 256)
    state = tuple(x[0] for x in batch)
    assert solve_p2(*state, scenario).objective <= solve_p2_cvxpy(*state, scenario)[-1]
    reference = seconds(lambda: solve_p2_cvxpy(*state, scenario), 1)
    single = seconds(lambda: solve_p2(*state, scenario), 200)
    many = seconds(lambda: solve_p2(*batch, scenario), 3) / 256
    proven = seconds(lambda: solve_p2(*state, scenario).lower_bound, 100)
    report(
        f"decision, N = 120: cvxpy with six subproblems {reference * 1e3:.1f} ms, "
        f"ours {single * 1e6:.1f} us ({reference / single:.0f} times faster), "
        f"in a batch of 256 {many * 1e6:.1f} us ({reference / many:.0f} times); "
        f"with certificate {proven / single:.1f} times the decision"
    )


def test_vector_env__against_a_loop_of_single_environments(report, seconds):
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
    one = seconds(lambda: envs[0].step(allocation), 5 * 136)
    gymnasium = seconds(lambda: sync.step(actions), 17)
    report(f"env.step(Allocation): {1 / one:.0f} steps/s")
    for name, decided, single in (
        ("allocations", batch, [allocation] * 64),
        ("actions", actions, actions),
    ):
        fast = seconds(lambda d=decided: native.step(d), 136)
        slow = seconds(lambda d=single: loop(d), 17)
        report(
            f"vector env of 64, {name}: {64 / fast:.0f} steps/s, {slow / fast:.1f} times a bare "
            f"loop over single envs, {gymnasium / fast:.1f} times Gymnasium's with actions"
        )
