"""Scenarios far from the defaults give finite rounds, and wrong ones a clear error."""

from __future__ import annotations

import dataclasses
import math
import re
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given

from fl_edge_env import Allocation, FLEdgeEnv, Scenario
from fl_edge_env.allocation import LEAST_SHARE, decode_action
from fl_edge_env.features import Scaling
from tests.support import ANY_SEED, assert_round, field_values

EXTREMES = np.array([-1, 1, 0, 0.3, -1e300, 1e300, 1e-300, -math.inf, math.inf])


@given(field_values(10), ANY_SEED)
def test_round__with_extreme_actions_is_finite(fields, seed):
    scenario = Scenario(**fields)
    env = FLEdgeEnv(scenario)
    scaling = Scaling(scenario)
    space = scaling.feature_space()
    rng = np.random.default_rng(seed)
    observation, _ = env.reset(seed=seed)
    assert env.observation_space.contains(observation)
    for number in range(scenario.num_rounds):
        action: Any = rng.choice(EXTREMES, (3, scenario.num_devices))
        if number == 1:
            action = decode_action(action, scenario, 100.0)
        result = env.step(action)
        assert_round(env, result)
        assert space.contains(scaling.features(result[0]))
        assert np.isfinite(scaling.reward(result[1]))
    assert result[3]


@given(field_values(5), ANY_SEED)
def test_round__with_the_least_parts_of_the_band_is_finite(fields, seed):
    env = FLEdgeEnv(Scenario(**fields))
    env.reset(seed=seed)
    least = LEAST_SHARE * env.scenario.bandwidth_hz
    decision = Allocation(env.scenario.f_min, env.scenario.p_min, cohort=[0], bandwidth=least)
    observation, reward, *_, info = env.step(decision)
    for values in (reward, info["device_time"], info["energy_spent"], *observation.values()):
        assert np.isfinite(values).all()


# Scenarios and channels that must be refused


NO_NUMBERS: list[Any] = [
    None,
    "1",
    True,
    1j,
    -1.0,
    math.nan,
    [[1.0], [1.0, 2.0]],
    {"a": 1.0},
    object(),
    np.array([1.0, math.nan, 1.0]),
    np.full(3, True),
    np.timedelta64(3, "s"),
    np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False]),
    torch.ones(3, requires_grad=True),
]


OPTIONAL = "lambda_", "V", "noise_power_w", "noise_density_w_hz", "num_samples"


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Scenario)])
def test_scenario__names_the_field_whatever_stands_in_it(name):
    for value in NO_NUMBERS:
        if value is None and name in OPTIONAL:
            continue
        with pytest.raises(ValueError, match=rf"^{name} must .*got ") as raised:
            Scenario(**{"num_devices": 3, name: value})
        assert raised.value.__cause__ is None
        assert "\n" not in str(raised.value)


SYSTEM = Scenario(num_devices=3, cohort_size=3, f_min=0.1, f_max=1.0, p_min=0.1, p_max=1.0)


@pytest.mark.parametrize(
    "make",
    [
        partial(gym.make, "FLEdge-v0"),
        partial(gym.make, "FLEdgeCMDP-v0"),
        partial(gym.make_vec, "FLEdge-v0", 2, "vector_entry_point"),
        partial(gym.make_vec, "FLEdgeFlat-v0", 2, "vector_entry_point"),
    ],
)
def test_reset__refuses_options_that_it_would_ignore(make):
    env = make(scenario=SYSTEM)
    env.reset(seed=0, options={})
    for options in ({"reset_masks": [True, False]}, {"seed": 3}):
        with pytest.raises(ValueError, match=f"options.* got {re.escape(repr(options))}"):
            env.reset(options=options)
