"""The vector environment: each row is the single environment with its seed, bit for bit."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from fl_edge_env import Allocation, FLEdgeEnv, FLEdgeVectorEnv, Scenario

SCENARIO = Scenario.femnist(num_devices=7, cohort_size=3, num_rounds=4)
SEEDS = [5, 9, 2]


def actions(rounds: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.uniform(-1.2, 1.2, (rounds, len(SEEDS), 3, 7)).astype(np.float32)


def assert_row(vector_result, index: int, single_result) -> None:
    observation, reward, terminated, truncated, info = single_result
    for name, values in observation.items():
        np.testing.assert_array_equal(vector_result[0][name][index], values)
    assert vector_result[1][index] == reward
    assert vector_result[2][index] == terminated
    assert vector_result[3][index] == truncated
    for name, value in info.items():
        assert vector_result[4][f"_{name}"][index]
        if isinstance(value, dict):
            assert {k: vector_result[4][name][k][index] for k in value} == value
        else:
            np.testing.assert_array_equal(vector_result[4][name][index], value)


def make(mode: str) -> tuple[FLEdgeVectorEnv, list[FLEdgeEnv]]:
    vector = FLEdgeVectorEnv(len(SEEDS), SCENARIO, autoreset_mode=mode)
    singles = [FLEdgeEnv(SCENARIO) for _ in SEEDS]
    observation, _ = vector.reset(seed=SEEDS)
    for index, (env, seed) in enumerate(zip(singles, SEEDS, strict=True)):
        first, _ = env.reset(seed=seed)
        for name, values in first.items():
            np.testing.assert_array_equal(observation[name][index], values)
    return vector, singles


def test_next_step__a_finished_row_starts_anew_in_the_following_step():
    vector, singles = make("NextStep")
    finished = [False] * 3
    for action in actions(11):
        result = vector.step(action)
        for index, env in enumerate(singles):
            if finished[index]:
                observation, _ = env.reset()
                assert_row(result, index, (observation, 0.0, False, False, {}))
                assert not result[4]["_cohort"][index]
                finished[index] = False
            else:
                single = env.step(action[index])
                assert_row(result, index, single)
                finished[index] = single[3]


def test_same_step__a_finished_row_starts_anew_at_once_and_keeps_its_end_in_the_info():
    vector, singles = make("SameStep")
    for step, action in enumerate(actions(9)):
        result = vector.step(action)
        for index, env in enumerate(singles):
            observation, reward, terminated, truncated, info = env.step(action[index])
            assert truncated == (step % 4 == 3)
            if truncated:
                np.testing.assert_equal(result[4]["final_obs"][index], observation)
                np.testing.assert_array_equal(
                    result[4]["final_info"]["cohort"][index], info["cohort"]
                )
                observation, _ = env.reset()
            assert ("final_obs" in result[4]) == truncated
            assert_row(result, index, (observation, reward, terminated, truncated, info))


def test_disabled__rows_are_reset_by_a_mask_at_any_time():
    vector, singles = make("Disabled")
    rounds = actions(8)
    for step, action in enumerate(rounds):
        if step in (2, 4, 5):  # rows 1 and 2 early, row 0 at its end, then the others
            mask = np.array({2: [0, 1, 1], 4: [1, 0, 0], 5: [0, 1, 1]}[step], dtype=bool)
            seeds = [None if step == 5 else 100 + i for i in range(3)]
            observation, _ = vector.reset(seed=seeds, options={"reset_mask": mask})
            for index in np.flatnonzero(mask):
                first, _ = singles[index].reset(seed=seeds[index])
                np.testing.assert_array_equal(
                    observation["channel_gain"][index], first["channel_gain"]
                )
        result = vector.step(action)
        for index, env in enumerate(singles):
            assert_row(result, index, env.step(action[index]))


def test_disabled__a_finished_row_needs_a_reset():
    vector, _ = make("Disabled")
    for action in actions(4):
        vector.step(action)
    with pytest.raises(gym.error.ResetNeeded):
        vector.step(actions(1)[0])


def test_make_vec__gives_the_native_environment():
    envs = gym.make_vec(
        "FLEdge-v0",
        num_envs=4,
        vectorization_mode="vector_entry_point",
        scenario="digits",
        num_rounds=5,
    )
    assert isinstance(envs.unwrapped, FLEdgeVectorEnv)
    observation, _ = envs.reset(seed=3)
    assert envs.observation_space.contains(observation)
    single = gym.make("FLEdge-v0", scenario="digits", num_rounds=5)
    first, _ = single.reset(seed=5)
    np.testing.assert_array_equal(observation["channel_gain"][2], first["channel_gain"])
    envs.action_space.seed(0)
    observation, reward, *_ = envs.step(envs.action_space.sample())
    assert envs.observation_space.contains(observation)
    assert reward.shape == (4,)


def test_step__takes_a_batch_of_decisions():
    vector, singles = make("NextStep")
    shape = (3, 7)
    allocation = Allocation(
        np.full(shape, 1.5e9),
        np.full(shape, 0.05),
        np.full(shape, 1 / 7),
        np.tile([1, 2, 3], (3, 1)),
    )
    result = vector.step(allocation)
    for index, env in enumerate(singles):
        row = Allocation(*(getattr(allocation, n)[index] for n in ("f", "p", "q", "cohort")))
        assert_row(result, index, env.step(row))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": [1, 2]}, "seed must hold 3 seeds, got 2"),
        ({"options": {"reset_mask": [True]}}, r"reset_mask must be a bool array of shape \(3,\)"),
        ({"options": {"reset_mask": np.zeros(3, bool)}}, "at least one True"),
    ],
)
def test_reset__names_what_is_wrong(arguments, message):
    with pytest.raises(ValueError, match=message):
        FLEdgeVectorEnv(3, SCENARIO).reset(**arguments)


def test_vector_env__names_what_is_wrong():
    with pytest.raises(ValueError, match="num_envs must be an integer of at least 1, got 0"):
        FLEdgeVectorEnv(0, SCENARIO)
    with pytest.raises(gym.error.ResetNeeded):
        FLEdgeVectorEnv(2, SCENARIO).step(np.zeros((2, 3, 7), np.float32))
