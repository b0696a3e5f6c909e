"""Scenarios and channels of any values give finite rounds or a clear error."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import (
    CellChannel,
    ExponentialChannel,
    FLEdgeEnv,
    MarkovChannel,
    Scenario,
    TraceChannel,
    with_tiers,
)
from fl_edge_env.allocation import decode_action, encode_action
from fl_edge_env.scaling import Scaling
from tests.support import SMALL, Constant, Odd, assert_round, field_values, scenario_of

EXTREMES = np.array([-1, 1, 0, 0.3, -1e300, 1e300, 1e-300, -math.inf, math.inf])


def assert_finite_episode(scenario: Scenario, seed: int) -> None:
    """With extreme actions, as arrays and as decisions, nothing overflows or leaves its space."""
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
            assert env.action_space.contains(encode_action(action, scenario, 100.0))
        result = env.step(action)
        assert_round(env, result)
        assert space.contains(scaling.features(result[0]))
        assert np.isfinite(scaling.reward(result[1]))
    assert result[3]


@given(st.data(), st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("decades", [10, 120])
def test_round__is_finite_around_the_defaults_or_the_scenario_is_refused(decades, data, seed):
    scenario = scenario_of(data.draw(field_values(decades)))
    assert scenario is not None or decades > 10
    if scenario is not None:
        assert_finite_episode(scenario, seed)


@given(field_values(3), st.integers(0, 2**32 - 1))
def test_round__is_finite_with_tiers_and_recorded_gains(tmp_path_factory, fields, seed):
    path = tmp_path_factory.mktemp("trace") / "gains.csv"
    gains = fields["channel"].sample(np.random.default_rng(seed), 2, fields["num_devices"])
    table = pd.DataFrame(gains).stack().rename_axis(["round", "device"]).rename("gain")
    table.reset_index().to_csv(path, index=False)
    factors = {"f_max": 1e6, "p_min": 1e-6, "energy_budget_j": 0.1}
    scenario = with_tiers(Scenario(**fields | {"channel": TraceChannel(path)}), [{}, factors])
    assert_finite_episode(scenario, seed)


# Scenarios and channels that must be refused


NO_NUMBERS: list[Any] = [
    None,
    "1",
    True,
    1j,
    -1.0,
    math.nan,
    -math.inf,
    np.float16(-1),
    np.datetime64("2020-01-01"),
    [],
    [[1.0], [1.0, 2.0]],
    [1.0, None],
    (1.0,) * 7,
    {"a": 1.0},
    Odd(),
    np.array([1.0, 2.0, 3.0], dtype=object),
    np.array([1.0, math.nan, 1.0]),
    np.full((3, 1), 1.0),
    np.full(3, True),
    np.ma.masked_array([1.0, -1.0, 1.0]),
]


def _may_be_a_queue(value, name):
    """Zero is a queue too, and of participations any number."""
    try:
        numbers = np.asarray(value)
    except ValueError:
        return False
    if numbers.dtype.kind not in "fiu" or numbers.shape not in ((), (3,)):
        return False
    least = 0.0 if name == "initial_queue" else -math.inf
    return np.isfinite(numbers).all() and np.all(numbers >= least)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Scenario)])
def test_scenario__names_the_field_whatever_stands_in_it(name):
    for value in NO_NUMBERS:
        if name in ("lambda_", "V") and value is None:  # not given
            continue
        if name.startswith("initial") and _may_be_a_queue(value, name):
            continue
        with pytest.raises(ValueError, match=rf"^{name} must .*got ") as raised:
            Scenario(**{"num_devices": 3, name: value})
        assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_devices": 2**31}, "num_devices must be at most 2147483647, got 2147483648"),
        ({"num_rounds": 10**400}, "num_rounds must be at most 2147483647, got 1000"),
        # Where float64 cannot hold a wider float.
        ({"f_max": np.longdouble("1e4000")}, "f_max must .*got inf"),
        ({"f_max": np.full(120, np.longdouble("1e4000"))}, "f_max must .*got inf"),
        # Each is far from any system, and would overflow within a round.
        (
            {"noise_power_w": 1e-300},
            r"^the fields give .* which must lie in \[1e-100, 1e\+100\]: choose another channel",
        ),
        ({"noise_power_w": 1e300}, "fields give a signal-to-noise ratio of .* noise_power_w"),
        ({"num_devices": 2, "num_samples": [1e-200, 1.0]}, "data weight of .* num_samples"),
        ({"cycles_per_sample": 1e-200, "energy_budget_j": 1e-5}, r"compute time \[s\] of"),
        ({"model_bits": 1e-150}, r"upload time \[s\] of"),
        ({"download_rate_bps": 1e-250}, r"round time \[s\] of .* download_rate_bps"),
        ({"capacitance": 1e-200}, r"compute power \[W\] of .* capacitance or f_max"),
        ({"energy_budget_j": 1e120, "nu": 1e-100}, r"queue \[J\] of .* energy_budget_j"),
        ({"mu": 1e150}, r"lambda = .*; lambda must be at most 1e\+100"),
        ({"nu": 1e120}, r"V = .* V lie in \[1e-100, 1e\+100\]: choose another mu"),
        ({"channel": Constant(1e-200)}, "signal-to-noise ratio"),
    ],
)
def test_scenario__what_would_overflow_is_refused_and_says_why(fields, message):
    with pytest.raises(ValueError, match=message):
        Scenario(**fields)


@given(st.text(min_size=1).filter(lambda name: name not in Scenario.__dataclass_fields__))
def test_scenario__any_other_keyword_is_a_type_error_that_names_it(name):
    # A surrogate in a name would fail in the message of Python itself.
    for make in (Scenario, Scenario.digits, SMALL.replace):
        with pytest.raises(TypeError, match="unexpected keyword argument") as raised:
            make(**{name: 1.0})
        assert name in str(raised.value)


@pytest.mark.parametrize("field", ["mean", "gain_min", "gain_max"])
@pytest.mark.parametrize("value", [-1.0, "1"])
def test_scenario__a_users_channel_with_wrong_numbers_is_refused(field, value):
    numbers = {"mean": 0.1, "gain_min": 0.01, "gain_max": 0.5, field: value}
    channel = type("Mine", (Constant,), numbers | {"__init__": lambda _: None})
    with pytest.raises(ValueError, match=rf"the channel's {field} must be positive and finite"):
        Scenario(channel=channel())


@pytest.mark.parametrize("name", ["mean", "gain_min", "gain_max", "filter"])
def test_exponential__names_the_parameter_whatever_stands_in_it(name):
    for value in [*NO_NUMBERS, 10**400, 0, math.inf]:
        with pytest.raises(ValueError, match=rf"{name}.* must .*got "):
            ExponentialChannel(**{name: value})
    with pytest.raises(ValueError, match=r"gain_min must be below gain_max, got 0.6 and 0.5"):
        ExponentialChannel(gain_min=0.6)


@pytest.mark.parametrize(
    "number", [np.float32(0.25), np.longdouble(0.25), np.float64(0.25), Fraction(1, 4)]
)
def test_channel__keeps_numbers_of_every_type_as_floats_also_in_files(tmp_path, number):
    channels = [
        ExponentialChannel(number, number / 2, 1),
        MarkovChannel([number, 2 * number], [[number, 3 * number], [2 * number, 2 * number]]),
        CellChannel(number, persistence=number, rician_factor=number, fading="rician"),
    ]
    floats = [
        ExponentialChannel(0.25, 0.125, 1.0),
        MarkovChannel([0.25, 0.5], [[0.25, 0.75], [0.5, 0.5]]),
        CellChannel(0.25, persistence=0.25, rician_factor=0.25, fading="rician"),
    ]
    for channel, wanted in zip(channels, floats, strict=True):
        assert repr(channel) == repr(wanted)
        scenario = Scenario(num_devices=3, channel=channel)
        scenario.save(tmp_path / "scenario.toml")
        assert Scenario.load(tmp_path / "scenario.toml") == scenario


def test_markov__names_the_parameter_whatever_stands_in_it():
    even = [[0.5, 0.5], [0.5, 0.5]]
    # Iterables of the right length, or numbers of the wrong size, are told by the older checks.
    for value in [*NO_NUMBERS, 1.0, "12", ["0.1", "0.2"], [True, 2.0], [0.1, 10**400], [[0.1, 2]]]:
        with pytest.raises(ValueError, match=r"gains must .*got |for \d+ gains, got "):
            MarkovChannel(value, even)
        with pytest.raises(ValueError, match=r"transition must |row of transition"):
            MarkovChannel([0.1, 0.2], value)
        with pytest.raises(ValueError, match=r"persistence must lie in .*got "):
            MarkovChannel.correlated(value)
        if value is not None:
            with pytest.raises(ValueError, match=r"marginal must be .*got "):
                MarkovChannel.correlated(0.5, marginal=value)
        with pytest.raises(ValueError, match=r"num_states must be .*got "):
            MarkovChannel.correlated(0.5, num_states=value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tiers": None}, "tiers must be a sequence of mappings"),
        ({"tiers": "f_max"}, "tiers must be a sequence of mappings"),
        ({"tiers": [{"f_max": "2"}]}, "factor on f_max must be a number, got '2'"),
        ({"tiers": [{"f_max": math.nan}]}, "f_max must be positive .*got nan"),
        ({"shares": ["a", "b", "c"]}, "shares must be 3 numbers"),
        ({"shares": None, "seed": -1}, "seed must be .*got -1"),
    ],
)
def test_tiers__names_what_is_no_tier(arguments, message):
    with pytest.raises(ValueError, match=message):
        with_tiers(SMALL, **arguments)


@pytest.mark.parametrize("name", ["a\n\t\x7fb", 'a"\\b', "é☃"])
def test_file__gives_back_a_trace_of_any_name(tmp_path, name):
    path = tmp_path / f"{name}.csv"
    pd.DataFrame({"round": 0, "device": range(2), "gain": 0.1}).to_csv(path, index=False)
    scenario = Scenario(num_devices=2, channel=TraceChannel(path))
    scenario.save(tmp_path / "scenario.toml")
    assert Scenario.load(tmp_path / "scenario.toml") == scenario
