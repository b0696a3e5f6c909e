"""Speed of training environments for agents, as ratios. Run with ``pytest -m benchmark``."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import fl_edge_env  # noqa: F401 - registers the environment

pytestmark = pytest.mark.benchmark


def test_views__against_a_dummy_vec_env(benchmark, report, seconds):
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    from fl_edge_env import Scenario
    from policies.learning.views import DeviceView

    scenario, count = Scenario.cifar10(), 8
    dummy = DummyVecEnv([lambda: Monitor(gym.make("FLEdgeFlat-v0"))] * count)
    dummy.reset()
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (count, 360)).astype(np.float32)
    loop = seconds(lambda: dummy.step(actions), 20)
    for credit in ("team", "difference"):
        view = DeviceView(scenario, count, credit=credit)
        view.reset()
        rows = rng.uniform(-1, 1, (view.num_envs, 3)).astype(np.float32)
        batch = seconds(lambda: view.step(rows), 50)  # noqa: B023 - called at once
        report(
            f"SB3 step of {count} systems: DummyVecEnv {loop * 1e3:.2f} ms, a row for each device "
            f"with {credit} reward {batch * 1e3:.2f} ms ({loop / batch:.1f} times faster)"
        )
    benchmark(view.step, rows)
