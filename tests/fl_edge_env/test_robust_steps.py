"""Steps, copies and saved states: what is valid gives finite rounds, anything else an error."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fl_edge_env import (
    Allocation,
    FLEdgeEnv,
    FLEdgeVectorEnv,
    MarkovChannel,
    Scenario,
    Simulator,
)
from fl_edge_env.allocation import decode_action
from fl_edge_env.scaling import Scaling
from tests.support import SMALL, Odd, assert_round, channel_of, numbers_in

MODES = ["NextStep", "SameStep", "Disabled"]


# Actions


def layouts(values: np.ndarray) -> dict[str, Any]:
    """The same numbers in other memory."""
    wide = np.full((*values.shape[:-1], 2 * values.shape[-1]), np.nan, values.dtype)
    wide[..., ::2] = values
    read_only = values.copy()
    read_only.flags.writeable = False
    return {
        "Fortran": np.asfortranarray(values),
        "strided": wide[..., ::2],
        "backwards": values[..., ::-1].copy()[..., ::-1],
        "transposed": values.T.copy().T,
        "read-only": read_only,
        "big-endian": values.astype(values.dtype.newbyteorder(">")),
        "list": values.tolist(),
        "subclass": np.ma.masked_array(values),
        "float64": values.astype(np.float64),
        "unaligned": np.frombuffer(b"x" + values.tobytes(), values.dtype, offset=1).reshape(
            values.shape
        ),
    }


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("decision", [False, True])
def test_step__the_layout_of_an_array_changes_nothing(batch, decision):
    # 37 devices: enough that the order of a sum shows.
    scenario = Scenario.femnist(num_devices=37, cohort_size=2, num_rounds=4)
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1.2, 1.2, (4, *batch, 3, 37)).astype(np.float32)

    def play(name: str | None) -> list:
        env: Any = FLEdgeVectorEnv(3, scenario) if batch else FLEdgeEnv(scenario)
        results = [env.reset(seed=1)]
        for action in actions:
            given: Any = action
            if decision:
                a = decode_action(action, scenario, 2.0)
                parts = [layouts(v)[name] if name else v for v in (a.f, a.p, a.q)]
                given = Allocation(*parts)
            elif name:
                given = layouts(action)[name]
            results.append(env.step(given))
        return results

    wanted = play(None)
    for name in layouts(actions[0]):
        np.testing.assert_equal(play(name), wanted)


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.longdouble])
def test_step__numbers_of_every_type_are_taken_and_left_as_they_are(dtype):
    action = np.array([[-1, 0, 1, 1, 0], [1, 0, -1, 0, 0], [0, 1, 0, -1, 1]], dtype)
    kept = action.copy()
    env, twin = FLEdgeEnv(SMALL), FLEdgeEnv(SMALL)
    for each in (env, twin):
        each.reset(seed=0)
    np.testing.assert_equal(env.step(action), twin.step(kept.astype(np.float32)))
    np.testing.assert_array_equal(action, kept)
    assert action.dtype == dtype


def test_step__what_the_user_gave_and_got_is_never_altered():
    env = FLEdgeEnv(SMALL)
    observation, _ = env.reset(seed=0)
    a = decode_action(np.zeros((3, 5)), SMALL, 2.0)
    cohort, weights = np.array([0, 4]), np.array([1.0, 2.0])
    given = [observation["queue"], observation["channel_gain"], a.f, a.p, a.q, cohort, weights]
    kept = copy.deepcopy(given)
    result = env.step(Allocation(a.f, a.p, cohort=cohort, weights=weights))
    numbers = numbers_in({"info": result[4], "observation": result[0]})
    before = copy.deepcopy(numbers)
    cohort_kept = result[4]["cohort"].copy()
    for _ in range(2):
        env.step(Allocation(a.f, a.p, cohort=cohort, weights=weights))
        env.step(a)
    np.testing.assert_equal(given, kept)
    np.testing.assert_equal(numbers, before)
    cohort[:] = 1
    np.testing.assert_array_equal(result[4]["cohort"], cohort_kept)


NO_ACTIONS: list[Any] = [
    None,
    "left",
    b"left",
    True,
    0,
    1.0,
    math.nan,
    {},
    {"f": 1},
    set(),
    Odd(),
    np.array(None),
    np.zeros(15),
    np.zeros((3, 4)),
    np.zeros((5, 3)),
    np.zeros((2, 3, 5)),
    np.zeros((3, 3, 3, 5)),
    np.zeros((0, 3, 5)),
    np.zeros((3, 5), bool),
    np.zeros((3, 5), complex),
    np.zeros((3, 5), object),
    np.zeros((3, 5), "U1"),
    np.zeros((3, 5), "M8[s]"),
    np.zeros((3, 5), [("a", "f8")]),
    np.full((3, 5), math.nan),
    np.full((3, 5), math.nan, np.float16),
    [[0.0] * 5, [0.0] * 5, [0.0] * 4],
    [[None] * 5] * 3,
    [["0"] * 5] * 3,
    [[10**400] * 5] * 3,
]


def test_step__anything_else_is_a_value_error_and_changes_nothing():
    env, twin = FLEdgeEnv(SMALL), FLEdgeEnv(SMALL)
    for each in (env, twin):
        each.reset(seed=0)
    for action in NO_ACTIONS:
        with pytest.raises(ValueError, match=r"action must |f, p and q must "):
            env.step(action)
    zero = np.zeros((3, 5))
    np.testing.assert_equal(env.step(zero), twin.step(zero))


@pytest.mark.parametrize("mode", MODES)
def test_vector_step__anything_else_is_a_value_error_and_changes_nothing(mode):
    env, twin = (FLEdgeVectorEnv(4, SMALL, autoreset_mode=mode) for _ in range(2))
    zero = np.zeros((4, 3, 5))
    for each in (env, twin):
        each.reset(seed=0)
    for _ in range(8 if mode != "Disabled" else 6):  # past the end of an episode
        for action in [*NO_ACTIONS, zero[0], zero[:3], np.zeros((4, 3, 4)), np.zeros((4, 15))]:
            with pytest.raises(ValueError, match=r"action must |f, p and q must "):
                env.step(action)
        result = env.step(zero)
        np.testing.assert_equal(result[:4], twin.step(zero)[:4])
        assert env.observation_space.contains(result[0])
        assert np.isfinite(result[1]).all()


@pytest.mark.parametrize("action", [np.zeros((3, 5)), None])
def test_step__outside_an_episode_tells_so_whatever_the_action(action):
    env, vector = FLEdgeEnv(SMALL), FLEdgeVectorEnv(2, SMALL, autoreset_mode="Disabled")
    for each, zero in ((env, np.zeros((3, 5))), (vector, np.zeros((2, 3, 5)))):
        with pytest.raises(gym.error.ResetNeeded):
            each.step(action)
        each.reset(seed=0)
        for _ in range(6):
            each.step(zero)
        for _ in range(2):
            with pytest.raises(gym.error.ResetNeeded):
                each.step(action)


@given(
    arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        (3, 5),
        elements={"allow_nan": False},
    )
)
def test_step__every_number_is_clipped_to_the_box(action):
    env, twin = FLEdgeEnv(SMALL), FLEdgeEnv(SMALL)
    for each in (env, twin):
        each.reset(seed=0)
    result = env.step(action)
    assert_round(env, result)
    np.testing.assert_equal(result, twin.step(np.clip(action, -1, 1)))


# Copies and saved states


def random_actions(rounds: int, *batch: int) -> np.ndarray:
    return np.random.default_rng(3).uniform(-1, 1, (rounds, *batch, 3, 5)).astype(np.float32)


def make_copies(value: Any) -> list[Any]:
    return [copy.deepcopy(value), *(pickle.loads(pickle.dumps(value, p)) for p in (2, 5))]


@pytest.mark.parametrize("kind", ["clip", "markov"])
def test_env__a_copy_in_mid_episode_goes_on_alike_and_on_its_own(kind):
    scenario = SMALL.replace(
        channel=channel_of(kind, 0.1), csi="delayed" if kind == "markov" else "full"
    )
    env = FLEdgeEnv(scenario)
    env.reset(seed=2)
    actions = random_actions(6)
    for action in actions[:3]:
        env.step(action)
    copies = make_copies(env)
    # The original and every copy after it must not be moved by the ones before.
    runs = []
    for each in (env, *copies):
        run = [each.step(action) for action in actions[3:]]
        run.append(each.reset())  # the next episode of the seed
        run.append(each.step(actions[0]))
        runs.append(run)
    for run in runs[1:]:
        np.testing.assert_equal(run, runs[0])


@pytest.mark.parametrize("mode", MODES)
def test_vector_env__a_copy_in_mid_episode_goes_on_alike_and_on_its_own(mode):
    env = FLEdgeVectorEnv(3, SMALL, autoreset_mode=mode)
    env.reset(seed=[4, 0, 4])
    actions = random_actions(9, 3)
    env.step(actions[0])
    env.reset(options={"reset_mask": np.array([True, False, False])})
    env.step(actions[1])
    runs = [
        [each.step(action)[:4] for action in actions[2 : 6 if mode == "Disabled" else 9]]
        for each in (env, *make_copies(env))
    ]
    for run in runs[1:]:
        np.testing.assert_equal(run, runs[0])


@pytest.mark.parametrize("kind", ["clip", "resample", "correlated", "markov", "constant"])
def test_values__are_equal_to_their_copies(kind):
    channel = channel_of(kind, 0.1)
    scenario = Scenario.femnist(num_devices=5, channel=channel, csi="delayed")
    for twin in (*make_copies(channel), copy.copy(channel)):
        assert twin == channel
        gains = [c.draw(np.random.default_rng(0), 3, 5) for c in (twin, channel)]
        np.testing.assert_array_equal(*gains)
    for twin in (*make_copies(scenario), copy.copy(scenario)):
        assert (twin, hash(twin), twin.V) == (scenario, hash(scenario), scenario.V)
    allocation = decode_action(np.zeros((3, 5)), scenario, 2.0)
    chosen = dataclasses.replace(allocation, q=None, cohort=[0, 1], weights=[2, 1])
    for original in (allocation, chosen):
        for twin in (*make_copies(original), copy.copy(original)):
            twin.validate(scenario)
            for name in ("f", "p", "q", "cohort", "weights"):
                np.testing.assert_array_equal(getattr(twin, name), getattr(original, name))


def trajectory_from(saved: bytes) -> bytes:
    """Go on with a pickled environment and, in a new one, from its saved state; see below."""
    env, seed, state, actions = pickle.loads(saved)
    restored = FLEdgeEnv(env.scenario)
    observation = restored.restore(seed, state)
    runs = [[each.step(action)[:2] for action in actions] for each in (env, restored)]
    np.testing.assert_equal(runs[0], runs[1])
    return pickle.dumps((observation, runs[0]), 5)


def test_state__goes_on_alike_in_another_process(tmp_path: Path):
    env = FLEdgeEnv(SMALL.replace(channel=MarkovChannel.correlated(0.9), csi="delayed"))
    env.reset(seed=9)
    actions = random_actions(6)
    for action in actions[:4]:
        observation = env.step(action)[0]
    saved = pickle.dumps((env, 9, env.state(), actions[4:]))
    (tmp_path / "saved").write_bytes(saved)
    code = (
        "from pathlib import Path; from tests.fl_edge_env.test_robust_steps import trajectory_from;"
        f"p = Path({str(tmp_path)!r});"
        "(p / 'there').write_bytes(trajectory_from((p / 'saved').read_bytes()))"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, check=True)
    there, here = (tmp_path / "there").read_bytes(), trajectory_from(saved)
    assert there == here
    np.testing.assert_equal(pickle.loads(here)[0], observation)


@given(st.integers(0, 6), st.integers(0, 2**63), st.sampled_from(["full", "delayed"]))
def test_state__taken_up_anywhere_gives_the_same_trajectory(rounds, seed, csi):
    scenario = SMALL.replace(csi=csi)
    env, other = FLEdgeEnv(scenario), FLEdgeEnv(scenario)
    observation, _ = env.reset(seed=seed)
    actions = random_actions(6)
    for action in actions[:rounds]:
        observation = env.step(action)[0]
    state = env.state()
    other.reset(seed=1)
    other.step(actions[0])
    kept = copy.deepcopy(state)
    np.testing.assert_equal(other.restore(seed, state), observation)
    for action in actions[rounds:]:
        np.testing.assert_equal(other.step(action), env.step(action))
    for each in (env, other):
        with pytest.raises(gym.error.ResetNeeded):
            each.step(actions[0])
    np.testing.assert_equal(state, kept)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queue": None}, "queue must be numbers of shape"),
        ({"queue": np.ones(4)}, r"queue must be .*\(5,\), got float64 of shape \(4,\)"),
        ({"queue": [[1.0], [1.0, 2.0]]}, r"queue must be numbers of shape \(5,\)"),
        ({"queue": np.full(5, True)}, "queue must be numbers"),
        ({"queue": np.array([1, 1, math.nan, 1, 1])}, "queue must be finite and not negative"),
        ({"queue": np.full(5, -1.0)}, "queue must be finite .* from -1.0 to -1.0"),
        ({"round_index": 1.0}, "round_index must be integers"),
        ({"round_index": -1}, "round_index must be finite and not negative"),
        ({"round_index": 7}, "round_index must be at most num_rounds = 6, got 7"),
        ({"round_index": 10**30}, "round_index must be integers"),
        ({"elapsed_time": math.nan}, "elapsed_time must be finite"),
    ],
)
def test_restore__a_wrong_state_is_named_and_changes_nothing(change, message):
    env, twin = FLEdgeEnv(SMALL), FLEdgeEnv(SMALL)
    action = random_actions(1)[0]
    for each in (env, twin):
        each.reset(seed=0)
        each.step(action)
    with pytest.raises(ValueError, match=message):
        env.restore(0, env.state() | change)
    np.testing.assert_equal(env.step(action), twin.step(action))


@pytest.mark.parametrize("state", [None, {}, {"queue": np.zeros(5)}])
def test_restore__what_is_no_state_says_what_is_missing(state):
    with pytest.raises(ValueError, match=r"state must be a mapping that holds (queue|round_index)"):
        FLEdgeEnv(SMALL).restore(0, state)


def test_restore__the_state_of_another_system_is_refused():
    for other in (SMALL.replace(num_devices=4, num_samples=1.0), SMALL.replace(num_rounds=2)):
        env = FLEdgeEnv(SMALL)
        env.reset(seed=0)
        for action in random_actions(3):
            env.step(action)
        with pytest.raises(ValueError, match=r"queue must be .*\(4,\)|round_index must be at most"):
            FLEdgeEnv(other).restore(0, env.state())


@pytest.mark.parametrize("seed", [None, 1.0, -1])
def test_restore__needs_the_seed(seed):
    env = FLEdgeEnv(SMALL)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="seed must be an integer of at least 0, got"):
        env.restore(seed, env.state())
    env.restore(np.int64(0), env.state())


@pytest.mark.parametrize("num_envs", [0, 1.5])
def test_simulator__of_no_systems_is_refused(num_envs):
    with pytest.raises(ValueError, match="num_envs must be an integer of at least 1, got"):
        Simulator(SMALL, num_envs)


@pytest.mark.parametrize("mask", [np.ones(4, bool), np.ones(3), np.zeros(3, bool)])
def test_simulator__a_wrong_mask_is_refused_and_changes_nothing(mask):
    simulator, twin = Simulator(SMALL, 3), Simulator(SMALL, 3)
    for each in (simulator, twin):
        each.reset([0, 1, 2])
    with pytest.raises(ValueError, match=r"reset_mask must be a bool array of shape \(3,\)"):
        simulator.reset([None] * 3, mask)
    np.testing.assert_equal(simulator.observe(), twin.observe())


@pytest.mark.parametrize("num_envs", [None, 3])
@pytest.mark.parametrize("count", [0, 2])
def test_simulator__another_number_of_seeds_is_refused(num_envs, count):
    simulator = Simulator(SMALL, num_envs)
    with pytest.raises(ValueError, match=f"seeds must hold {num_envs or 1} seeds, got {count}"):
        simulator.reset([0] * count)
    with pytest.raises(ValueError, match=f"seeds must hold {num_envs or 1} seeds, got {count}"):
        simulator.restore([0] * count, simulator.state())


# Observations of learning agents


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (np.ones(5), "observation must be a mapping with channel_gain and queue, got ndarray"),
        ({}, r"observation must be .*got \[\]"),
        ({"channel_gain": np.ones(5)}, r"observation must be .*got \['channel_gain'\]"),
        ({"channel_gain": "a", "queue": np.ones(5)}, "channel_gain must hold real numbers"),
        ({"channel_gain": np.ones(5), "queue": np.full(5, 1j)}, "queue must hold real numbers"),
        ({"channel_gain": np.ones(5), "queue": np.ones((2, 5))}, "queue must have the shape"),
        (
            {"channel_gain": np.zeros(5), "queue": np.ones(5)},
            "gain must be positive, got 0.0",
        ),
        (
            {"channel_gain": np.ones(5), "queue": -np.ones(5)},
            "must not be negative, got -1.0",
        ),
    ],
)
def test_features__name_what_is_no_observation(observation, message):
    with pytest.raises(ValueError, match=message):
        Scaling(SMALL).features(observation)
