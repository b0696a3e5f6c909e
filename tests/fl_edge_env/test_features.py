"""Scaled observations and rewards: what their zeros and units stand for, and their bounds."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy import stats

from fl_edge_env import CellChannel, Scenario, lyapunov, physics, with_phones
from fl_edge_env.features import Scaling
from fl_edge_env.flat_view import FlatView
from policies.p2 import best_resources
from tests.support import drift_plus_penalty

# Devices that differ in their hardware and their data.
MIXED = with_phones(Scenario.femnist(num_devices=7, cohort_size=3, num_rounds=5)).replace(
    capacitance=np.linspace(1e-28, 3e-28, 7), p_max=np.linspace(0.05, 0.15, 7)
)
UNIFORM = np.full(7, 1 / 7)
MEAN_GAIN = np.full(7, MIXED.channel.mean)


def named(scaling: Scaling, features: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(scaling.names, features.T, strict=True))


def middle(gain: np.ndarray | float, scenario: Scenario) -> tuple[np.ndarray, np.ndarray]:
    """Time and energy of each device at the middle of all ranges."""
    gains = np.broadcast_to(gain, scenario.num_devices)
    return physics.time_and_energy(gains, scenario.f_mid, scenario.p_mid, scenario)


# Theorem 2 does not depend on p, the gain or the noise.
@pytest.mark.parametrize(("cohort_size", "gain"), [(1, 0.3), (20, 0.01)])
def test_reference_queue__makes_the_mid_frequency_the_best(cohort_size, gain):
    scenario = MIXED.replace(cohort_size=cohort_size)
    f, _ = best_resources(np.full(7, gain), Scaling(scenario).queue, UNIFORM, scenario)
    np.testing.assert_allclose(f, scenario.f_mid, rtol=1e-12)


def test_features__are_logarithms_of_their_ratios():
    scaling = Scaling(MIXED)
    rng = np.random.default_rng(0)
    gain = rng.uniform(0.01, 0.5, 7)
    backlog = rng.uniform(0, 2, 7)
    state = {"channel_gain": gain, "queue": backlog * scaling.queue}
    features = named(scaling, scaling.features(state))
    computes = MIXED.cycles_per_round / MIXED.f_mid
    powers = MIXED.capacitance * MIXED.f_mid**3
    expected = {
        "device time": middle(gain, MIXED)[0] / middle(MEAN_GAIN, MIXED)[0].mean(),
        "queue": backlog + 0.1,  # the reference queue and a tenth, as queues start empty
        "compute time": computes / stats.gmean(computes),
        "data weight": MIXED.num_samples / stats.gmean(MIXED.num_samples),
        "compute power": powers / stats.gmean(powers),
    }
    for name, ratio in expected.items():
        np.testing.assert_allclose(features[name], np.log(ratio), rtol=1e-5, atol=1e-6)
        assert np.ptp(features[name]) > 0.1, name


@pytest.mark.parametrize("scenario", [MIXED, Scenario.cifar10(mu=0.0)], ids=["mixed", "cifar10"])
def test_reward__is_zero_in_the_middle(scenario):
    count = scenario.num_devices
    time, _ = middle(scenario.channel.mean, scenario)
    gain = np.full(count, scenario.channel.mean)
    decision = scenario.f_mid, scenario.p_mid, np.full(count, 1 / count)
    reward = -float(drift_plus_penalty(gain, np.zeros(count), *decision, scenario))
    scaling = Scaling(scenario)
    assert scaling.reward(reward) == pytest.approx(0.0, abs=1e-9)
    # A latency longer by half costs five units.
    longer = reward - scenario.V * 0.5 * float(np.mean(time))
    assert scaling.reward(longer) == pytest.approx(-5.0, rel=1e-9)
    assert scaling.reward(longer) == (longer + scaling.offset) / scaling.unit


# What the server does not know of single devices, and what else an outcome is decided by.

PARTIAL = Scenario.cell(
    num_devices=9, num_rounds=12, csi="participants", objective="outcome", V=2e3, lambda_=1e3
)


def test_features__hold_no_mean_of_a_device():
    elsewhere = PARTIAL.replace(channel=CellChannel(place_seed=7))
    assert not np.allclose(elsewhere.mean_gain, PARTIAL.mean_gain)
    rng = np.random.default_rng(0)
    observation = {"channel_gain": rng.uniform(0.01, 0.5, 9), "queue": rng.uniform(0, 9, 9)}
    observation |= {"age": np.arange(1.0, 10.0), "participation_queue": rng.normal(size=9)}
    one, other = (FlatView(scenario).see(observation) for scenario in (PARTIAL, elsewhere))
    np.testing.assert_array_equal(one, other)


def test_features__remember_a_devices_measurements():
    view = FlatView(PARTIAL)
    target = lyapunov.participation_target(PARTIAL)

    def seen(gain: float, age: float, features=view.see) -> dict[str, np.ndarray]:
        observation = {"queue": np.zeros(9), "participation_queue": np.zeros(9)}
        observation |= {"channel_gain": np.full(9, gain), "age": np.full(9, age)}
        return named(view.scaling, features(observation))

    for gain, age in ((0.1, 13.0), (0.3, 1.0), (0.3, 2.0), (0.2, 1.0), (0.2, 1.0)):
        features = seen(gain, age)
    mean = (PARTIAL.channel.mean + 0.3 + 0.2 + 0.2) / 4  # the channel's counts as one
    ratio = middle(mean, PARTIAL)[0] / middle(PARTIAL.channel.mean, PARTIAL)[0]
    close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    close(features["remembered time"], np.log(ratio))
    close(features["measurements"], np.log(4))
    close(features["age"], np.log(target))
    close(seen(0.2, 400.0, view.features)["age"], np.log(np.minimum(400 * target, 10)))
    view.reset()
    close(seen(0.2, 1.0, view.features)["remembered time"], 0.0)


def test_features__of_the_outcome_are_queues_and_energy():
    scenario = with_phones(Scenario.cifar10(num_devices=9, objective="outcome"))
    rng = np.random.default_rng(0)
    gain = rng.uniform(0.01, 0.5, 9)
    share = rng.uniform(0, 3, 9)
    backlog = rng.uniform(-3, 3, 9)
    queue = share * scenario.energy_budget_j * 9 / 2  # of what a participation may spend
    state = {"channel_gain": gain, "queue": queue, "participation_queue": backlog}
    scaling = Scaling(scenario)
    features = named(scaling, scaling.features(state))
    np.testing.assert_allclose(features["queue"], np.log(share + 0.1), rtol=1e-5)
    np.testing.assert_allclose(np.sinh(features["participation"]), backlog, rtol=1e-5)
    energy, usual = (middle(each, scenario)[1] for each in (gain, scenario.mean_gain))
    np.testing.assert_allclose(np.exp(features["energy"]), energy / usual.mean(), rtol=1e-5)


@pytest.mark.parametrize(
    ("scenario", "change", "message"),
    [
        (MIXED, {"channel_gain": 0.1}, r"^channel_gain must have shape \(\.\.\., 7\), got \(\)"),
        (MIXED, {"queue": np.ones((7, 6))}, r"^queue must have shape \(7,\), got \(7, 6\)"),
        (MIXED, {"channel_gain": np.zeros(7)}, "^channel_gain must be positive .*from 0.0 to 0.0"),
        (MIXED, {"queue": -np.ones(7)}, "^queue must be at least zero .*from -1.0 to -1.0"),
        (MIXED.replace(csi="participants"), {}, "observation must hold age"),
    ],
)
def test_features__name_what_is_wrong(scenario, change, message):
    with pytest.raises(ValueError, match=message):
        Scaling(scenario).check({"channel_gain": MEAN_GAIN, "queue": np.ones(7)} | change)
