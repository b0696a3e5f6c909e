"""The vector environment: each row is the single environment with its seed, bit for bit."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from fl_edge_env import FLEdgeEnv, FLEdgeVectorEnv, Scenario

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


def assert_covers(info: dict, expected: dict) -> None:
    """Where `expected` has a value, `info` has the same one."""
    for name in [name for name in expected if not name.startswith("_")]:
        mask = expected[f"_{name}"]
        assert info[f"_{name}"][mask].all()
        if name == "final_info":
            np.testing.assert_array_equal(info[name]["_cohort"], mask)
        if name == "final_obs":
            np.testing.assert_equal(list(info[name][mask]), list(expected[name][mask]))
            np.testing.assert_array_equal(info[f"_{name}"], mask)
        elif isinstance(expected[name], dict):
            assert_covers(info[name], expected[name])
        else:
            np.testing.assert_array_equal(info[name][mask], expected[name][mask])


def make(mode: str) -> tuple[FLEdgeVectorEnv, list[FLEdgeEnv]]:
    vector = FLEdgeVectorEnv(len(SEEDS), SCENARIO, autoreset_mode=mode)
    singles = [FLEdgeEnv(SCENARIO) for _ in SEEDS]
    observation, _ = vector.reset(seed=SEEDS)
    for index, (env, seed) in enumerate(zip(singles, SEEDS, strict=True)):
        first, _ = env.reset(seed=seed)
        for name, values in first.items():
            np.testing.assert_array_equal(observation[name][index], values)
    return vector, singles


# Rows 0 and 2 start anew after two rounds, so that the episodes end at different times.
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_batch__equals_gymnasiums_own_vector_environment(mode):
    native = FLEdgeVectorEnv(3, SCENARIO, autoreset_mode=mode)
    reference = gym.make_vec(
        "FLEdge-v0",
        num_envs=3,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
        scenario=SCENARIO,
    )
    np.testing.assert_equal(native.reset(seed=SEEDS), reference.reset(seed=SEEDS))
    ended = np.zeros(3, dtype=int)
    for step, action in enumerate(actions(15)):
        if step == 2:
            mask = np.array([True, False, True])
            for envs in (native, reference):
                envs.reset(options={"reset_mask": mask.copy()})
        result, expected = native.step(action), reference.step(action)
        np.testing.assert_equal(result[:4], expected[:4])
        assert_covers(result[4], expected[4])
        ended += expected[3]
    assert ended.tolist() == ([2, 3, 2] if mode == "NextStep" else [3, 3, 3])


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


def test_step__needs_a_reset_of_every_row():
    vector = FLEdgeVectorEnv(3, SCENARIO)
    action = actions(1)[0]
    vector.reset(seed=1, options={"reset_mask": np.array([True, False, True])})
    with pytest.raises(gym.error.ResetNeeded, match=r"call reset\(\) before step"):
        vector.step(action)
    vector.reset(seed=1, options={"reset_mask": np.array([False, True, False])})
    vector.step(action)


def test_reset__an_integer_seeds_each_row_with_the_next_number():
    left, right = FLEdgeVectorEnv(3, SCENARIO), FLEdgeVectorEnv(3, SCENARIO)
    np.testing.assert_equal(left.reset(seed=4), right.reset(seed=[4, 5, 6]))
    # No seed at all: every row goes on to its next episode.
    np.testing.assert_equal(left.reset(), right.reset(seed=[None] * 3))
    gains = left.reset(seed=4)[0]["channel_gain"]
    assert np.unique(gains, axis=0).shape[0] == 3


def test_disabled__a_finished_row_needs_a_reset():
    vector, _ = make("Disabled")
    for action in actions(4):
        vector.step(action)
    with pytest.raises(gym.error.ResetNeeded):
        vector.step(actions(1)[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"seed": "abc"}, "seed must be integers or None, got 'abc'"),
        ({"seed": [0, 1.5, 2]}, "seed must be integers or None"),
        ({"seed": [0, -1, 2]}, "seed must be at least 0"),
        ({"seed": [1, 2]}, "seed must hold 3 seeds, got 2"),
        ({"options": {"reset_mask": np.array([1, 0, 1])}}, "reset_mask must be a bool array"),
        ({"options": {"reset_mask": np.zeros(3, bool)}}, "at least one True"),
    ],
)
def test_reset__names_what_is_wrong_and_leaves_every_row_as_it_was(arguments, message):
    vector, singles = make("NextStep")
    with pytest.raises(ValueError, match=message):
        vector.reset(**arguments)
    action = actions(1)[0]
    result = vector.step(action)
    for index, env in enumerate(singles):
        assert_row(result, index, env.step(action[index]))


def test_vector_env__names_a_wrong_mode():
    with pytest.raises(ValueError, match=r"autoreset_mode must be one of .*got 'Sometimes'"):
        FLEdgeVectorEnv(2, autoreset_mode="Sometimes")
