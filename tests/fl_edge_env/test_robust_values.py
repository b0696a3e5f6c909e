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
from hypothesis import given

from fl_edge_env import Allocation, FLEdgeEnv, FLEdgeVectorEnv, MarkovChannel, Scenario
from fl_edge_env.allocation import LEAST_SHARE, decode_action
from fl_edge_env.features import Scaling
from policies import make_policy
from policies.resources import share_band
from tests.support import ANY_SEED, assert_round, field_values
from train_fl import Dataset

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
    np.ma.masked_array([1.0, 2.0, 1.0], [False, True, False]),
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


# What takes arrays, and those that it takes.
SYSTEM = Scenario(num_devices=3, cohort_size=3, f_min=0.1, f_max=1.0, p_min=0.1, p_max=1.0)
FIELDS = {
    "f": np.ones(3),
    "p": np.ones(3),
    "cohort": np.arange(3),
    "first": np.array(2),
    "weights": np.ones(3),
    "bandwidth": np.ones(3),
}
DATA = dict.fromkeys(["train_inputs", "test_inputs"], np.eye(3))
DATA |= dict.fromkeys(["train_targets", "test_targets", "train_writers"], np.arange(3))
SEEN = dict.fromkeys(["channel_gain", "queue", "available"], np.ones(3))


def reset(**options):
    return FLEdgeVectorEnv(2, SYSTEM).reset(options=options)


def torch_data(inputs, targets):
    samples = [*zip(inputs, targets, strict=True)]
    return Dataset.from_torch("own", samples, samples)


DOORS = [
    (Allocation, FIELDS),
    (lambda q: Allocation(1.0, 1.0, q), {"q": np.full(3, 1 / 3)}),
    (lambda action: decode_action(action, SYSTEM, 1.0), {"action": np.zeros((3, 3))}),
    (partial(Dataset.from_arrays, "own"), DATA),
    (torch_data, {"inputs": np.eye(3), "targets": [np.array([n]) for n in range(3)]}),
    (lambda **seen: make_policy("fastest", SYSTEM).decide(seen), SEEN),
    (reset, {"reset_mask": np.array([True, False])}),
    (
        partial(share_band, scenario=SYSTEM),
        {"channel_gain": np.ones(3)} | {n: FIELDS[n] for n in ("f", "p", "cohort")},
    ),
    (MarkovChannel, {"gains": np.array([0.1, 0.2]), "transition": np.full((2, 2), 0.5)}),
]


@pytest.mark.parametrize(("door", "arrays"), DOORS)
def test_arrays__with_masked_entries_are_refused(door, arrays):
    door(**arrays)
    for name, values in arrays.items():
        rows = isinstance(values, list)
        masked = np.ma.masked_array(values, np.zeros_like(values))
        unmasked = masked.copy()
        masked.mask = np.arange(masked.size).reshape(masked.shape) == masked.size - 1
        door(**arrays | {name: [*unmasked] if rows else unmasked})
        for wrong in [masked] * (not rows) + [[*np.atleast_1d(masked)]]:
            with pytest.raises(ValueError, match=f"{name}.* masked"):
                door(**arrays | {name: wrong})


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
