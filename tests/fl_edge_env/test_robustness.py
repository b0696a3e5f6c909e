"""What is valid gives finite rounds, anything else a clear error; states survive copies."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fl_edge_env import (
    Allocation,
    ExponentialChannel,
    FLEdgeEnv,
    FLEdgeVectorEnv,
    MarkovChannel,
    Scenario,
    Simulator,
    TraceChannel,
    with_tiers,
)
from fl_edge_env.allocation import decode_action, encode_action
from fl_edge_env.channel import ChannelModel
from fl_edge_env.scaling import Scaling

MODES = ["NextStep", "SameStep", "Disabled"]
SMALL = Scenario.femnist(num_devices=5, cohort_size=3, num_rounds=6)


@dataclass(frozen=True)
class Constant:
    """A channel of the user's own: one gain for all."""

    mean: float = 0.1

    @property
    def gain_min(self) -> float:
        return self.mean

    @property
    def gain_max(self) -> float:
        return self.mean

    def draw(self, _, rounds, num_devices, **__):
        return np.full((rounds, num_devices), self.mean)

    def sample(self, _, count, num_devices):
        return np.full((count, num_devices), self.mean)


def channel_of(kind: str, mean: float) -> ChannelModel:
    low, high = 0.1 * mean, 5 * mean
    if kind in ("clip", "resample"):
        return ExponentialChannel(mean, low, high, kind)  # type: ignore[arg-type]
    if kind == "narrow":
        return ExponentialChannel(mean, mean, np.nextafter(mean, math.inf))
    if kind == "correlated":
        law = ExponentialChannel(mean, low, high)
        return MarkovChannel.correlated(0.9, num_states=3, marginal=law)
    if kind == "markov":
        return MarkovChannel([low, mean, high], [[0.5, 0.5, 0], [0.2, 0.6, 0.2], [0.1, 0, 0.9]])
    return Constant(mean)


@st.composite
def field_values(draw, decades: float) -> dict[str, Any]:
    """Fields up to so many decades from the defaults, alike for all devices or not."""
    num_devices = draw(st.sampled_from([1, 2, 3, 8]))
    decade = st.one_of(st.just(0.0), st.floats(-decades, decades))

    def number(default: float) -> float:
        return default * 10 ** draw(decade)

    def numbers(default: float):
        size = draw(st.sampled_from([1, num_devices]))
        values = np.array([number(default) for _ in range(size)])
        return values if size == num_devices else float(values[0])

    f, p = ((np.asarray(numbers(x)), np.asarray(numbers(x))) for x in (1e9, 0.01))
    return {
        "num_devices": num_devices,
        "cohort_size": draw(st.sampled_from([1, 2, 5, 40])),
        "local_epochs": draw(st.sampled_from([1, 2, 1000])),
        "num_rounds": draw(st.sampled_from([1, 3])),
        "bandwidth_hz": number(1e6),
        "noise_power_w": number(0.01),
        "model_bits": number(3e8),
        "num_samples": numbers(400.0),
        "cycles_per_sample": numbers(3e9),
        "capacitance": numbers(2e-28),
        "f_min": np.minimum(*f),
        "f_max": np.maximum(*f),
        "p_min": np.minimum(*p),
        "p_max": np.maximum(*p),
        "energy_budget_j": numbers(15.0),
        "download_rate_bps": draw(st.sampled_from([math.inf, numbers(1e6)])),
        "channel": channel_of(
            draw(
                st.sampled_from(["clip", "resample", "narrow", "correlated", "markov", "constant"])
            ),
            number(0.1),
        ),
        "mu": draw(st.sampled_from([0.0, number(1.0)])),
        "nu": number(1e5),
        "latency": draw(st.sampled_from(["proxy", "round_time"])),
        "delayed_csi": draw(st.booleans()),
    }


def numbers_in(value: object) -> list[np.ndarray]:
    if isinstance(value, dict):
        return [array for part in value.values() for array in numbers_in(part)]
    return [np.asarray(value)]


def assert_round(env: FLEdgeEnv, result) -> None:
    observation, reward, terminated, _, info = result
    assert env.observation_space.contains(observation)
    assert math.isfinite(reward)
    assert terminated is False
    assert all(np.isfinite(array).all() for array in numbers_in(info))


EXTREMES = np.array([-1, 1, 0, 0.3, -1e300, 1e300, 1e-300, -math.inf, math.inf])


def assert_finite_episode(scenario: Scenario, seed: int) -> None:
    """With extreme actions, as arrays and as decisions, nothing overflows or leaves its space."""
    env = FLEdgeEnv(scenario)
    scaling = Scaling(scenario)
    space = scaling.feature_space()
    rng = np.random.default_rng(seed)
    shape = (3, scenario.num_devices)
    for _ in range(2):
        observation, _ = env.reset(seed=seed)
        assert env.observation_space.contains(observation)
        for number in range(scenario.num_rounds):
            action: Any = rng.choice(EXTREMES, shape)
            if number == 1:
                action = decode_action(action, scenario, 100.0)
                again = encode_action(action, scenario, 100.0)
                assert env.action_space.contains(again)
            result = env.step(action)
            assert_round(env, result)
            features = scaling.features(result[0])
            assert space.contains(features)
            assert np.isfinite(scaling.reward(result[1]))
        assert result[3]


@settings(max_examples=100)
@given(field_values(10), st.integers(0, 2**32 - 1))
def test_round__is_finite_ten_decades_around_the_defaults(fields, seed):
    assert_finite_episode(Scenario(**fields), seed)


@settings(max_examples=200)
@given(field_values(120), st.integers(0, 2**32 - 1))
def test_round__is_finite_or_the_scenario_is_refused(fields, seed):
    refusal = ""
    try:
        scenario = Scenario(**fields)
    except ValueError as error:
        refusal = str(error)
    if refusal:
        assert refusal.startswith("the fields give ")
    else:
        assert_finite_episode(scenario, seed)


@settings(max_examples=20)
@given(field_values(3), st.integers(0, 2**32 - 1))
def test_round__is_finite_with_tiers_and_recorded_gains(tmp_path_factory, fields, seed):
    path = tmp_path_factory.mktemp("trace") / "gains.csv"
    gains = fields["channel"].sample(np.random.default_rng(seed), 2, fields["num_devices"])
    table = pd.DataFrame(gains).stack().rename_axis(["round", "device"]).rename("gain")
    table.reset_index().to_csv(path, index=False)
    factors = {"f_max": 1e6, "p_min": 1e-6, "energy_budget_j": 0.1}
    scenario = with_tiers(Scenario(**fields | {"channel": TraceChannel(path)}), [{}, factors])
    assert_finite_episode(scenario, seed)


@given(field_values(20), arrays(np.float64, (3, 8), elements=st.floats(allow_nan=False)))
def test_decode__is_valid_however_wide_the_ranges_are(fields, action):
    fields |= {"energy_budget_j": 15.0, "f_min": 1e-10, "p_min": 1e-30, "capacitance": 1e-28}
    scenario = Scenario(**fields | {"f_max": 1e12, "p_max": 1e30})
    decode_action(action[:, : scenario.num_devices], scenario, 2.0).validate(scenario)


# Scenarios and channels that must be refused


class Odd:
    """No number, no sequence, nothing."""

    def __repr__(self) -> str:
        return "<odd>"


NO_NUMBERS: list[Any] = [
    None,
    "fast",
    "1",
    b"1",
    True,
    np.True_,
    1j,
    -1.0,
    -1,
    -math.inf,
    math.nan,
    np.float64("nan"),
    np.float16(-1),
    np.datetime64("2020-01-01"),
    [],
    [[1.0]],
    [[1.0], [1.0, 2.0]],
    [1.0, None],
    ["1", "2"],
    (1.0,) * 7,
    {},
    {"a": 1.0},
    {1.0},
    range(7),
    Odd(),
    Odd,
    math.sin,
    np.array(None),
    np.array([1.0, 2.0, 3.0], dtype=object),
    np.array([1.0, math.nan, 1.0]),
    np.array([1.0, 0.0, 1.0]),
    np.full((3, 1), 1.0),
    np.full(3, 1 + 1j),
    np.full(3, True),
    np.full(3, "1"),
    np.zeros((0,)),
    np.zeros((0, 3)),
    np.array("x"),
    np.ma.masked_array([1.0, -1.0, 1.0]),
    np.array([(1.0, 2)], dtype=[("a", "f8"), ("b", "i4")]),
]


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Scenario)])
def test_scenario__names_the_field_whatever_stands_in_it(name):
    for value in NO_NUMBERS:
        if name == "delayed_csi" and isinstance(value, (bool, np.bool_)):
            continue
        fields = {"num_devices": 3, name: value}
        with pytest.raises(ValueError, match=rf"^{name} must .*got ") as raised:
            Scenario(**fields)
        assert raised.value.__cause__ is None
        with pytest.raises(ValueError, match=rf"^{name} must .*got "):
            FLEdgeEnv(SMALL.replace(num_samples=100.0), **fields)


@pytest.mark.parametrize("name", ["num_devices", "cohort_size", "local_epochs", "num_rounds"])
@pytest.mark.parametrize("value", [2**31, 10**30, 10**400])
def test_scenario__a_count_beyond_32_bits_is_named(name, value):
    with pytest.raises(ValueError, match=f"{name} must be at most 2147483647, got {value}"):
        Scenario(**{name: value})


@pytest.mark.parametrize("device", [0, 60, 119])
def test_scenario__the_wrong_value_is_shown_wherever_it_stands(device):
    values = np.full(120, 1e9)
    values[device] = -3.5
    with pytest.raises(ValueError, match=f"got -3.5, first at device {device}$"):
        Scenario(f_min=values)
    values[device] = 3e9
    with pytest.raises(ValueError, match=f"f_min must not exceed f_max.*first at device {device}$"):
        Scenario(f_min=values)


def test_scenario__a_wider_float_that_float64_cannot_hold_is_refused():
    wide = np.longdouble("1e4000")
    if not np.isfinite(wide):
        pytest.skip("no wider float here")
    for value in (wide, np.full(120, wide)):
        with pytest.raises(ValueError, match=r"f_max must .*got inf"):
            Scenario(f_max=value)


# Each is far from any system, and would overflow within a round.
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"noise_power_w": 1e-300},
            r"which must lie in \[1e-100, 1e\+100\]: choose another channel",
        ),
        ({"noise_power_w": 1e300}, "signal-to-noise ratio of .* noise_power_w"),
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
    with pytest.raises(ValueError, match=f"^the fields give .*({message})"):
        Scenario(**fields)


@given(st.text(min_size=1).filter(lambda name: name not in Scenario.__dataclass_fields__))
def test_scenario__any_other_keyword_is_a_type_error_that_names_it(name):
    # A surrogate in a name would fail in the message of Python itself.
    for make in (Scenario, Scenario.digits, SMALL.replace):
        with pytest.raises(TypeError, match="unexpected keyword argument") as raised:
            make(**{name: 1.0})
        assert name in str(raised.value)


@pytest.mark.parametrize("name", [None, 3, ["digits"], {}, np.array(["digits"])])
def test_preset__what_is_no_name_is_refused(name):
    with pytest.raises(ValueError, match=r"scenario must be one of cifar10, .*got "):
        Scenario.preset(name)


@pytest.mark.parametrize("field", ["mean", "gain_min", "gain_max"])
@pytest.mark.parametrize("value", [None, "1", -1.0, math.nan, True, 1j, [0.1], np.full(3, 0.1)])
def test_scenario__a_users_channel_with_wrong_numbers_is_refused(field, value):
    numbers = {"mean": 0.1, "gain_min": 0.01, "gain_max": 0.5, field: value}
    channel = type("Mine", (Constant,), numbers | {"__init__": lambda _: None})
    with pytest.raises(ValueError, match=rf"the channel's {field} must be positive and finite"):
        Scenario(channel=channel())


@pytest.mark.parametrize("name", ["mean", "gain_min", "gain_max", "filter"])
def test_exponential__names_the_parameter_whatever_stands_in_it(name):
    for value in [*NO_NUMBERS, 10**400, 0]:
        with pytest.raises(ValueError, match=rf"{name}.* must .*got "):
            ExponentialChannel(**{name: value})


@pytest.mark.parametrize("number", [np.float32(0.25), np.longdouble(0.25), 0.25])
def test_exponential__keeps_numbers_of_every_type_as_floats(tmp_path, number):
    from fractions import Fraction

    for mean in (number, Fraction(1, 4)):
        channel = ExponentialChannel(mean, number / 2, 1)
        assert [type(v) for v in (channel.mean, channel.gain_min, channel.gain_max)] == [float] * 3
        assert channel == ExponentialChannel(0.25, 0.125, 1.0)
        scenario = Scenario(channel=channel)
        scenario.save(tmp_path / "scenario.toml")
        assert Scenario.load(tmp_path / "scenario.toml") == scenario
        assert channel.draw(np.random.default_rng(0), 2, 3).dtype == np.float64


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
        if isinstance(value, int) and not isinstance(value, bool):
            continue
        with pytest.raises(ValueError, match=r"num_states must be .*got "):
            MarkovChannel.correlated(0.5, num_states=value)
        if value is not None:
            with pytest.raises(ValueError, match=r"marginal must be .*got "):
                MarkovChannel.correlated(0.5, marginal=value)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"tiers": None}, ValueError, "tiers must be a sequence of mappings"),
        ({"tiers": {"f_max": 2.0}}, ValueError, "tiers must be a sequence of mappings"),
        ({"tiers": [None]}, ValueError, "tiers must be a sequence of mappings"),
        ({"tiers": "f_max"}, ValueError, "tiers must be a sequence of mappings"),
        ({"tiers": [{"f_max": "2"}]}, ValueError, "factor on f_max must be a number, got '2'"),
        ({"tiers": [{"f_max": None}]}, ValueError, "factor on f_max must be a number, got None"),
        ({"tiers": [{"f_max": math.nan}]}, ValueError, "f_max must be positive .*got nan"),
        ({"shares": ["a", "b", "c"]}, ValueError, "shares must be 3 numbers"),
        ({"shares": None, "seed": -1}, ValueError, "seed must be .*got -1"),
        ({"seed": 1.5}, ValueError, "seed must be .*got 1.5"),
        ({"shares": [math.nan, 1, 1]}, ValueError, "shares must be 3 numbers"),
    ],
)
def test_tiers__names_what_is_no_tier(arguments, error, message):
    with pytest.raises(error, match=message):
        with_tiers(SMALL, **arguments)


@pytest.mark.parametrize("name", ["a\nb", "a\tb", "a\x7fb", 'a"b', "a\\b", "é☃"])
def test_file__gives_back_a_trace_of_any_name(tmp_path, name):
    path = tmp_path / f"{name}.csv"
    pd.DataFrame({"round": 0, "device": range(2), "gain": 0.1}).to_csv(path, index=False)
    scenario = Scenario(num_devices=2, channel=TraceChannel(path))
    scenario.save(tmp_path / "scenario.toml")
    assert Scenario.load(tmp_path / "scenario.toml") == scenario


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


@pytest.mark.parametrize("num_devices", [1, 37])
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("decision", [False, True])
def test_step__the_layout_of_an_array_changes_nothing(num_devices, batch, decision):
    # 37 devices: enough that the order of a sum shows.
    scenario = Scenario.femnist(num_devices=num_devices, cohort_size=2, num_rounds=4)
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1.2, 1.2, (4, *batch, 3, num_devices)).astype(np.float32)

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


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float16, np.float64, np.longdouble])
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
    cohort = np.array([0, 4, 4])
    given = [observation["queue"], observation["channel_gain"], a.f, a.p, a.q, cohort]
    kept = copy.deepcopy(given)
    result = env.step(Allocation(a.f, a.p, a.q, cohort))
    numbers = numbers_in({"info": result[4], "observation": result[0]})
    before = copy.deepcopy(numbers)
    cohort_kept = result[4]["cohort"].copy()
    for _ in range(3):
        env.step(Allocation(a.f, a.p, a.q, cohort))
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


@pytest.mark.parametrize("action", [np.zeros((3, 5)), None, "left"])
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


@pytest.mark.parametrize("kind", ["clip", "resample", "markov", "constant"])
@pytest.mark.parametrize("delayed", [False, True])
def test_env__a_copy_in_mid_episode_goes_on_alike_and_on_its_own(kind, delayed):
    scenario = SMALL.replace(channel=channel_of(kind, 0.1), delayed_csi=delayed)
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
    scenario = Scenario.femnist(num_devices=5, channel=channel, delayed_csi=True)
    for twin in (*make_copies(channel), copy.copy(channel)):
        assert twin == channel
        gains = [c.draw(np.random.default_rng(0), 3, 5) for c in (twin, channel)]
        np.testing.assert_array_equal(*gains)
    for twin in (*make_copies(scenario), copy.copy(scenario)):
        assert (twin, hash(twin), twin.V) == (scenario, hash(scenario), scenario.V)
    allocation = decode_action(np.zeros((3, 5)), scenario, 2.0)
    allocation = dataclasses.replace(allocation, cohort=[0, 1])
    for twin in (*make_copies(allocation), copy.copy(allocation)):
        twin.validate(scenario)
        for name in ("f", "p", "q", "cohort"):
            np.testing.assert_array_equal(getattr(twin, name), getattr(allocation, name))


def trajectory_from(saved: bytes) -> bytes:
    """Go on with a pickled environment and, in a new one, from its saved state; see below."""
    env, seed, state, actions = pickle.loads(saved)
    restored = FLEdgeEnv(env.scenario)
    observation = restored.restore(seed, state)
    runs = [[each.step(action)[:2] for action in actions] for each in (env, restored)]
    np.testing.assert_equal(runs[0], runs[1])
    return pickle.dumps((observation, runs[0]), 5)


def test_state__goes_on_alike_in_another_process(tmp_path: Path):
    env = FLEdgeEnv(SMALL.replace(channel=MarkovChannel.correlated(0.9), delayed_csi=True))
    env.reset(seed=9)
    actions = random_actions(6)
    for action in actions[:4]:
        observation = env.step(action)[0]
    saved = pickle.dumps((env, 9, env.state(), actions[4:]))
    (tmp_path / "saved").write_bytes(saved)
    code = (
        f"import importlib.util; s = importlib.util.spec_from_file_location('t', {__file__!r});"
        "m = importlib.util.module_from_spec(s); import sys; sys.modules['t'] = m;"
        "s.loader.exec_module(m); from pathlib import Path;"
        f"p = Path({str(tmp_path)!r});"
        "(p / 'there').write_bytes(m.trajectory_from((p / 'saved').read_bytes()))"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    there, here = (tmp_path / "there").read_bytes(), trajectory_from(saved)
    assert there == here
    np.testing.assert_equal(pickle.loads(here)[0], observation)


@settings(max_examples=40)
@given(st.integers(0, 6), st.integers(0, 2**63), st.booleans())
def test_state__taken_up_anywhere_gives_the_same_trajectory(rounds, seed, delayed):
    scenario = SMALL.replace(delayed_csi=delayed)
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
        ({"queue": 1.0}, r"queue must be numbers of shape \(5,\), got float64 of shape \(\)"),
        ({"queue": np.ones(4)}, r"queue must be .*\(5,\), got float64 of shape \(4,\)"),
        ({"queue": np.ones((2, 5))}, r"got float64 of shape \(2, 5\)"),
        ({"queue": [[1.0], [1.0, 2.0]]}, r"queue must be numbers of shape \(5,\)"),
        ({"queue": np.full(5, "a")}, "queue must be numbers"),
        ({"queue": np.full(5, 1j)}, "queue must be numbers"),
        ({"queue": np.full(5, True)}, "queue must be numbers"),
        ({"queue": np.array([1, 1, math.nan, 1, 1])}, "queue must be finite and not negative"),
        ({"queue": np.full(5, math.inf)}, "queue must be finite and not negative"),
        ({"queue": np.full(5, -1.0)}, "queue must be finite .* from -1.0 to -1.0"),
        ({"round_index": 1.0}, "round_index must be integers"),
        ({"round_index": -1}, "round_index must be finite and not negative"),
        ({"round_index": 7}, "round_index must be at most num_rounds = 6, got 7"),
        ({"round_index": 2**62}, "round_index must be at most num_rounds = 6"),
        ({"round_index": 10**30}, "round_index must be integers"),
        ({"round_index": [1]}, "round_index must be integers of shape"),
        ({"elapsed_time": math.nan}, "elapsed_time must be finite"),
        ({"elapsed_time": "1"}, "elapsed_time must be numbers"),
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


@pytest.mark.parametrize("state", [None, 3, [], {}, {"queue": np.zeros(5)}, "state"])
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


@pytest.mark.parametrize("seeds", [[None], [1.0], ["1"], [-1], [True]])
def test_restore__needs_the_seed(seeds):
    simulator = Simulator(SMALL)
    simulator.reset([0])
    with pytest.raises(ValueError, match="seed must be an integer of at least 0, got"):
        simulator.restore(seeds, simulator.state())


@pytest.mark.parametrize("num_envs", [None, 3])
@pytest.mark.parametrize("count", [0, 2, 4])
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
        (None, "observation must be a mapping with channel_gain and queue, got NoneType"),
        (np.ones(5), "observation must be a mapping with channel_gain and queue, got ndarray"),
        ({}, r"observation must be .*got \[\]"),
        ({"channel_gain": np.ones(5)}, r"observation must be .*got \['channel_gain'\]"),
        ({"queue": np.ones(5)}, r"observation must be .*got \['queue'\]"),
        ({"channel_gain": "a", "queue": np.ones(5)}, "channel_gain must hold real numbers"),
        ({"channel_gain": np.ones(5), "queue": np.full(5, 1j)}, "queue must hold real numbers"),
        ({"channel_gain": np.ones(5), "queue": np.ones((2, 5))}, "queue must have the shape"),
        ({"channel_gain": np.zeros(5), "queue": np.ones(5)}, "channel_gain must be positive"),
        ({"channel_gain": np.ones(5), "queue": -np.ones(5)}, "queue not negative"),
    ],
)
def test_features__name_what_is_no_observation(observation, message):
    with pytest.raises(ValueError, match=message):
        Scaling(SMALL).features(observation)
