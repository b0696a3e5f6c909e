"""Steps, copies and saved states: what is valid gives finite rounds, anything else an error."""

from __future__ import annotations

import copy
import math
import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest

from fl_edge_env import Allocation, FLEdgeEnv, FLEdgeVectorEnv
from fl_edge_env.allocation import decode_action
from fl_edge_env.flat import make_flat, make_flat_vector
from tests.support import SMALL, channel_of, layouts, random_actions

MODES = ["NextStep", "SameStep", "Disabled"]


# Actions


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("decision", [False, True])
def test_step__the_layout_of_an_array_changes_nothing(batch, decision):
    # 37 devices: enough that the order of a sum shows.
    scenario = SMALL.replace(num_devices=37, num_samples=100.0, num_rounds=4)
    actions = random_actions(4, *batch, 3, 37)

    def play(name: str | None) -> list:
        env: Any = FLEdgeVectorEnv(3, scenario) if batch else FLEdgeEnv(scenario)
        results = [env.reset(seed=1)]
        for action in actions:
            given: Any = layouts(action)[name] if name else action
            if decision:
                a = decode_action(action, scenario, 2.0)
                parts = [layouts(v)[name] if name else v for v in (a.f, a.p, a.q)]
                given = Allocation(*parts)
            results.append(env.step(given))
        return results

    wanted = play(None)
    for name in layouts(actions[0]):
        np.testing.assert_equal(play(name), wanted)


NO_ACTIONS: list[Any] = [
    None,
    "left",
    object(),
    np.zeros((2, 3, 5)),
    np.zeros((0, 3, 5)),
    np.zeros((3, 5), bool),
    np.zeros((3, 5), complex),
    np.zeros((3, 5), object),
    np.full((3, 5), math.nan),
    [[0.0] * 5, [0.0] * 5, [0.0] * 4],
    [[10**400] * 5] * 3,
    Allocation(1.5e9, 0.05, np.full((7, 5), 0.2)),
]


@pytest.mark.parametrize("mode", [None, *MODES])
def test_step__refuses_anything_else_and_changes_nothing(mode):
    wrong = NO_ACTIONS
    zero = np.zeros((3, 5))
    make = partial(FLEdgeEnv, SMALL)
    if mode:
        zero = np.zeros((4, 3, 5))
        wrong = [*NO_ACTIONS, zero[0], zero[:3], np.zeros((4, 15))]
        make = partial(FLEdgeVectorEnv, 4, SMALL, autoreset_mode=mode)
    env = make()
    twin = make()
    env.reset(seed=0), twin.reset(seed=0)
    for _ in range(6 if mode in (None, "Disabled") else 8):  # past the end of an episode
        for action in wrong:
            with pytest.raises(ValueError, match=r"action must |f, p and q must "):
                env.step(action)
        np.testing.assert_equal(env.step(zero)[:4], twin.step(zero)[:4])


# Copies and saved states


@pytest.mark.parametrize("mode", [None, *MODES])
@pytest.mark.parametrize(
    "fields",
    [
        {"channel": channel_of("markov", 0.1), "csi": "delayed"},
        {"csi": "participants", "objective": "outcome", "availability": 0.7, "upload_failure": 0.4},
    ],
)
def test_copies__in_mid_episode_go_on_alike_and_on_their_own(mode, fields):
    env: Any = make_flat(scenario=SMALL, **fields)
    if mode:
        env = make_flat_vector(num_envs=3, scenario=SMALL, autoreset_mode=mode, **fields)
    actions = random_actions(9, *env.action_space.shape)
    env.reset(seed=4)
    env.step(actions[0])
    if mode:
        env.reset(options={"reset_mask": np.array([True, False, False])})
    pickled = [pickle.loads(pickle.dumps(env, protocol)) for protocol in (2, 5)]
    # The original and every copy after it must not be moved by the ones before.
    runs = []
    for each in (env, copy.deepcopy(env), *pickled):
        run = [each.step(a)[:4] for a in actions[1 : 5 if mode in (None, "Disabled") else 9]]
        runs.append([*run, each.reset(), each.step(actions[0])[:4]])  # the seeds' next episodes
    for run in runs[1:]:
        np.testing.assert_equal(run, runs[0])
