"""Speed of training environments for agents, as ratios. Run with ``pytest -m benchmark``."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import fl_edge_env  # noqa: F401 - registers the environment
from fl_edge_env.scaling import ScaledEnv

pytestmark = pytest.mark.benchmark


def test_views__against_a_dummy_vec_env(benchmark, report, seconds):
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    from fl_edge_env import Scenario
    from policies.learning.views import DeviceView, JointView

    scenario, count = Scenario.cifar10(), 64
    dummy = DummyVecEnv([lambda: Monitor(ScaledEnv(gym.make("FLEdge-v0")))] * count)
    joint = JointView(scenario, count)
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (count, 3, 120)).astype(np.float32)
    for env in (dummy, joint):
        env.reset()
    loop = seconds(lambda: dummy.step(actions), 20)
    batch = seconds(lambda: joint.step(actions), 200)
    report(
        f"SB3 step of 64 systems: DummyVecEnv {loop * 1e3:.2f} ms, native batch "
        f"{batch * 1e3:.2f} ms ({loop / batch:.1f} times faster)"
    )
    for credit in ("team", "local", "difference"):
        view = DeviceView(scenario, 8, credit=credit)
        view.reset()
        rows = rng.uniform(-1, 1, (view.num_envs, 3)).astype(np.float32)
        report(
            f"device view of 8 systems (960 rows), {credit} reward: "
            f"{seconds(lambda: view.step(rows), 50) * 1e3:.2f} ms"  # noqa: B023 - called at once
        )
    benchmark(joint.step, actions)
