"""Scenarios: the presets, what is refused, and copies."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from functools import cached_property

import gymnasium as gym
import numpy as np
import pytest

from fl_edge_env import ExponentialChannel, Scenario
from tests.support import arrays_in


def test_presets__hold_the_parameters_of_the_paper():
    for scenario, model, cycles, budget in (
        (Scenario.cifar10(), 11_172_342, 3e9, 15.0),
        (Scenario.femnist(), 6_603_710, 2e9, 5.0),
    ):
        assert (scenario.num_devices, scenario.cohort_size) == (120, 2)
        assert (scenario.local_epochs == 2).all()
        assert (scenario.bandwidth_hz, scenario.noise_power_w) == (1e6, 0.01)
        assert (scenario.mu, scenario.nu, scenario.num_rounds) == (1.0, 1e5, 1000)
        assert scenario.model_bits == 32 * model
        assert scenario.channel == ExponentialChannel(0.1, 0.01, 0.5, "clip")
        for name, value in {
            "cycles_per_sample": cycles,
            "energy_budget_j": budget,
            "capacitance": 2e-28,
            "f_min": 1e9,
            "f_max": 2e9,
            "p_min": 0.001,
            "p_max": 0.1,
            "download_rate_bps": math.inf,
        }.items():
            np.testing.assert_array_equal(getattr(scenario, name), np.full(120, value))
    np.testing.assert_allclose(Scenario.cifar10().num_samples, 50_000 / 120)
    assert Scenario() == Scenario.cifar10()


def test_femnist__writers_follow_the_statistics_of_leaf():
    counts = Scenario.femnist(num_devices=20_000).num_samples
    assert counts.min() == 45
    np.testing.assert_array_equal(counts, np.rint(counts))
    # Nine tenths of a normal distribution cut at 50, two standard deviations below its mean
    from scipy import stats

    law = stats.truncnorm((49.5 - 226.83) / 88.94, math.inf, loc=226.83, scale=88.94)
    # Whole samples are held out: a bias of rounding of less than a hundredth.
    assert abs(counts.mean() - 0.9 * law.mean()) < 3.6 * law.std() / math.sqrt(20_000) + 0.01
    assert counts.std() == pytest.approx(0.9 * law.std(), rel=0.03)


@pytest.mark.parametrize("num_devices", [1, 7, 120])
def test_presets__share_out_the_whole_data_set(num_devices):
    for preset, images in ((Scenario.cifar10, 50_000), (Scenario.digits, 1_440)):
        assert math.fsum(preset(num_devices=num_devices).num_samples) == pytest.approx(images)


@pytest.mark.parametrize("number", [1, 7, 119, 500])
def test_num_devices__means_the_same_at_every_door(number, tmp_path):
    file = tmp_path / "it.toml"
    Scenario.cifar10().save(file)
    scenarios = [
        Scenario.cifar10(num_devices=number),
        Scenario(num_devices=number),
        Scenario.cifar10().replace(num_devices=13).replace(num_devices=number),
        Scenario.load(file, num_devices=number),
        gym.make("FLEdge-v0", scenario=str(file), num_devices=number).unwrapped.scenario,
        gym.make("FLEdge-v0", scenario=Scenario(), num_devices=number).unwrapped.scenario,
    ]
    assert scenarios == [scenarios[0]] * len(scenarios)
    own = Scenario(num_samples=number / 3e9)
    assert own.replace(num_devices=120) == own
    assert own.replace(num_devices=40).num_samples[0] == pytest.approx(number / 1e9)


def test_replace__equals_building_anew():
    fields = {"num_devices": 3, "f_max": [2e9, 3e9, 4e9], "nu": 7.0}
    assert Scenario.cifar10().replace(**fields) == Scenario(**fields)
    unequal = Scenario(**fields)
    assert unequal.replace(f_max=5e9) == Scenario(**fields | {"f_max": 5e9})
    assert unequal.replace(num_devices=2, f_max=5e9).f_max.shape == (2,)


PAIRS = [("lambda_", "mu"), ("V", "nu"), ("noise_density_w_hz", "noise_power_w")]


@pytest.mark.filterwarnings("ignore:no sampled decision meets the energy budgets")
@pytest.mark.parametrize(("field", "other"), PAIRS)
def test_fields__that_replace_each_other_do_so(field, other):
    one = {field: 10.0}
    two = {other: 2.0}
    assert Scenario(**one).replace(**two) == Scenario(**two) != Scenario()
    assert Scenario(**two).replace(**one) == Scenario(**one) != Scenario()
    assert Scenario.cell(**two).replace(**one) == Scenario.cell(**one) != Scenario.cell(**two)


def assert_read_only(scenario: Scenario) -> None:
    derived = [n for n, v in vars(Scenario).items() if isinstance(v, property | cached_property)]
    values = [getattr(scenario, name) for name in (*Scenario.per_device_fields, *derived)]
    arrays = list(arrays_in([*values, vars(scenario.channel)]))
    assert len(arrays) > 15
    assert not any(array.flags.writeable for array in arrays)


@pytest.mark.parametrize("name", ["cell", "phones"])
def test_arrays__are_read_only(name):
    assert_read_only(Scenario.preset(name))


class Own(Scenario):
    """A user's system."""


def test_copies__are_equal_and_stay_read_only():
    budget = np.full(120, 15.0)
    scenario = Own.femnist(
        mu=0.3, channel=ExponentialChannel(filter="resample"), energy_budget_j=budget
    )
    budget[0] = 1.0
    assert scenario.energy_budget_j[0] == 15.0
    for twin in (copy.deepcopy(scenario), pickle.loads(pickle.dumps(scenario)), scenario.replace()):
        assert type(twin) is Own
        assert twin == scenario
        assert hash(twin) == hash(scenario)
        assert twin.V == scenario.V
        assert_read_only(twin)
    with pytest.raises(dataclasses.FrozenInstanceError):
        scenario.mu = 1.0


def test_equality__sees_every_field():
    scenario = Scenario.digits(num_devices=5, download_rate_bps=1e6)
    others = {
        "latency": "round_time",
        "channel": ExponentialChannel(mean=0.2),
        "csi": "participants",
        "objective": "outcome",
        "compression": "qsgd:4",
        "download_compression": "qsgd:8",
        "availability": 0.9,
        "upload_failure": 0.5,
        "deadline_s": 100.0,
        "noise_density_w_hz": 1e-9,
    }
    for name in (field.name for field in dataclasses.fields(Scenario)):
        value = getattr(scenario, name)
        other = others.get(name)
        if other is None:
            one = np.array([0, 0, 0, 0, 1e-3]) * (1 + 10 * value) if np.ndim(value) else 1
            other = value + one
        assert scenario.replace(**{name: other}) != scenario, name
        assert scenario.replace(**{name: value}) == scenario, name
    assert scenario != "digits"


def test_repr__is_a_short_line_by_which_to_build_it_again():
    shown = repr(Scenario.femnist(num_devices=900))
    assert "\n" not in shown
    assert len(shown) < 900
    alike = Scenario.digits()
    names = {"Scenario": Scenario, "ExponentialChannel": ExponentialChannel, "inf": math.inf}
    assert eval(repr(alike), names) == alike


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"f_max": [1, -2, 1]}, "f_max must .*got -2.0, first at device 1"),
        ({"f_max": [1.0, 2.0]}, r"f_max must .*got shape \(2,\)"),
        ({"f_min": 3.0, "f_max": [4.0, 2, 4]}, r"f_min must not exceed f_max.* 4\.\].*device 1$"),
        ({"num_devices": 10**9}, "num_devices must be at most 10,000,000, got 1,000,000,000"),
        ({"num_rounds": 2**31}, "num_rounds must be at most 2,147,483,647, got 2,147,483,648"),
        ({"csi": "partial"}, "csi must be one of full, .* 'partial': did you mean 'participants'"),
        ({"availability": [0.5, 1.1, 0]}, r"in \(0, 1\] .* got 1.1, first at device 1"),
        ({"mu": 2.0, "lambda_": 1.0}, "lambda_ replaces mu: .* = 1.0 and mu = 2.0"),
        ({"nu": 1e4, "V": 1.0}, "V replaces nu: give one of them, got V = 1.0 and"),
        ({"noise_power_w": 0.01, "noise_density_w_hz": 1e-8}, "density_w_hz replaces"),
        ({"noise_density_w_hz": 1e300, "bandwidth_hz": 1e9}, "_hz / cohort_size must .*got inf"),
        # Where float64 cannot hold a wider float.
        ({"f_max": np.longdouble("1e4000")}, "f_max must .*got inf"),
        # Each field alone is valid.
        ({"model_bits": 1e300, "bandwidth_hz": 1e-9}, "the fields give a time of inf"),
        ({"capacitance": 1e300}, "the fields give an energy of inf"),
        ({"nu": 1e-320, "mu": 1e9}, "V = 0.0, which must be finite, and V positive"),
    ],
)
def test_scenario__names_what_is_wrong(fields, message):
    with pytest.raises(ValueError, match=message):
        Scenario(**{"num_devices": 3} | fields)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Scenario.preset("cifar"), ValueError, "got 'cifar': did you mean 'cifar10'"),
        (lambda: Scenario(cohort_sise=3), TypeError, "unexpected keyword argument 'cohort_sise'"),
        (lambda: Scenario.digits(rounds=3), TypeError, "did you mean 'num_rounds'"),
        (lambda: Scenario().replace(rounds=3), TypeError, "'rounds'.* did you mean 'num_rounds'"),
    ],
)
def test_scenario__names_are_told_with_the_nearest(call, error, message):
    with pytest.raises(error, match=message):
        call()
