"""The vector environment: each row is the single environment with its seed, bit for bit."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from fl_edge_env import FLEdgeVectorEnv, Scenario
from tests.support import random_actions

SCENARIO = Scenario.femnist(num_devices=7, cohort_size=3, num_rounds=4)
LOSSY = SCENARIO.replace(csi="delayed", availability=0.6, upload_failure=0.3)
SEEDS = [5, 9, 2]


def assert_covers(info: dict, expected: dict) -> None:
    """Where `expected` has a value, `info` has the same one."""
    for name in [name for name in expected if not name.startswith("_")]:
        mask = expected[f"_{name}"]
        assert info[f"_{name}"][mask].all()
        if name == "final_obs":
            np.testing.assert_array_equal(info["_final_obs"], mask)
        if name == "final_info":
            np.testing.assert_array_equal(info[name]["_cohort"], mask)
            assert_covers(info[name], expected[name])
        else:
            np.testing.assert_equal([*info[name][mask]], [*expected[name][mask]])


def test_step__needs_a_reset_of_every_row():
    vector = FLEdgeVectorEnv(3, SCENARIO)
    action = random_actions(3, 3, 7)
    vector.reset(seed=1, options={"reset_mask": np.array([True, False, True])})
    with pytest.raises(gym.error.ResetNeeded, match=r"call reset\(\) before step"):
        vector.step(action)
    vector.reset(seed=1, options={"reset_mask": np.array([False, True, False])})
    vector.step(action)


def test_vector_env__names_a_wrong_mode_or_number():
    with pytest.raises(ValueError, match=r"autoreset_mode must be one of .*got 'Sometimes'"):
        FLEdgeVectorEnv(2, autoreset_mode="Sometimes")
    with pytest.raises(ValueError, match="num_envs must be an integer of at least 1, got 0"):
        FLEdgeVectorEnv(0)
    with pytest.raises(ValueError, match=r"num_envs must be at most .*, got 1,000,000,000"):
        FLEdgeVectorEnv(10**9)


# Rows 0 and 2 start anew after two rounds, so that the episodes end at different times, and within
# a block of random numbers drawn ahead: here of three rounds.
@pytest.mark.parametrize(
    ("scenario", "mode", "most_compared"),
    [
        (SCENARIO, "NextStep", 0),  # as with many devices, the draws of each row are searched
        (SCENARIO, "SameStep", 100),
        (LOSSY, "SameStep", 0),
        (LOSSY, "Disabled", 100),
    ],
)
def test_batch__equals_gymnasiums_own_vector_environment(
    monkeypatch, scenario, mode, most_compared
):
    monkeypatch.setattr("fl_edge_env.simulator._BLOCK_NUMBERS", 21)
    monkeypatch.setattr("fl_edge_env.simulator._MOST_COMPARED", most_compared)
    native = FLEdgeVectorEnv(3, scenario, autoreset_mode=mode)
    reference = gym.make_vec(
        "FLEdge-v0",
        num_envs=3,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
        scenario=scenario,
    )
    np.testing.assert_equal(native.reset(seed=SEEDS), reference.reset(seed=SEEDS))
    ended = np.zeros(3, dtype=int)
    mask = np.zeros(3, dtype=bool)
    for step, action in enumerate(random_actions(15, 3, 3, 7)):
        mask |= (np.arange(3) != 1) & (step == 2)
        if mask.any():
            if mode == "Disabled" and step > 2:
                with pytest.raises(gym.error.ResetNeeded):
                    native.step(action)
            for envs in (native, reference):
                envs.reset(seed=[None, 100 + step, None], options={"reset_mask": mask.copy()})
        result = native.step(action)
        expected = reference.step(action)
        np.testing.assert_equal(result[:4], expected[:4])
        assert_covers(result[4], expected[4])
        ended += expected[3]
        mask = expected[3].copy() if mode == "Disabled" else np.zeros(3, dtype=bool)
    np.testing.assert_equal(native.reset(), reference.reset())
    assert ended.tolist() == ([2, 3, 2] if mode == "NextStep" else [3, 3, 3])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        ({"seed": [0, 1.5, 2]}, "seed must be an integer of at least 0, got 1.5"),
        ({"seed": [1, 2]}, "seeds must hold 3 seeds, got 2"),
        ({"options": {"reset_mask": np.array([1, 0, 1])}}, "reset_mask must be a bool array"),
        ({"options": {"reset_mask": np.ones(4, bool)}}, r"of shape \(3,\) with at least"),
        ({"options": {"reset_mask": np.zeros(3, bool)}}, "at least one True, got array"),
    ],
)
def test_reset__refused_leaves_every_row_as_it_was(arguments, message):
    vector = FLEdgeVectorEnv(3, SCENARIO)
    twin = FLEdgeVectorEnv(3, SCENARIO)
    vector.reset(seed=SEEDS), twin.reset(seed=SEEDS)
    with pytest.raises(ValueError, match=message):
        vector.reset(**arguments)
    action = random_actions(3, 3, 7)
    np.testing.assert_equal(vector.step(action), twin.step(action))
