"""Packet errors that depend on the channel, beside failures that depend on nothing."""

from __future__ import annotations

import numpy as np
import pytest

from fl_edge_env import Allocation, Scenario, Simulator, physics
from fl_edge_env.contributions import contributions

SCENARIO = Scenario(num_devices=6, cohort_size=3, num_rounds=4000, waterfall_threshold=0.4)
DATA = np.array([1.0, 4, 2, 5, 3, 3])
F = SCENARIO.f_mid
P = np.array([0.1, 0.03, 0.05, 0.08, 0.1, 0.06])
COHORT = np.array([4, 1, 2])


def play(scenario: Scenario, decision: Allocation, seed: int = 0):
    """Gains, as they were, and the rounds of an episode."""
    simulator = Simulator(scenario)
    simulator.reset([seed])
    for _ in range(scenario.num_rounds):
        gain = simulator.channel_gain.copy()
        yield gain, simulator.advance(decision)


@pytest.mark.parametrize("split", ["equal", "shared"])
@pytest.mark.parametrize("failure", [0.0, 0.3])
def test_errors__are_as_many_as_the_formula_says(split, failure):
    scenario = SCENARIO.replace(upload_failure=failure, bandwidth_split=split)
    parts = np.full(6, scenario.bandwidth_hz / 3)
    if split == "shared":
        parts[COHORT] = np.array([0.1, 0.2, 0.7]) * scenario.bandwidth_hz
    bandwidth = parts if split == "shared" else None
    decision = Allocation(F, P, cohort=COHORT, bandwidth=bandwidth)
    density = scenario.noise_power_w * 3 / scenario.bandwidth_hz
    missing, variance = np.zeros(6), np.zeros(6)
    for gain, played in play(scenario, decision):
        arrives = (1 - failure) * np.exp(-0.4 * density * parts / (gain * P))
        np.testing.assert_allclose(played.arrival, arrives, rtol=1e-12)
        missing += played.failed - (1 - arrives)
        variance += arrives * (1 - arrives)
        assert not played.failed[[0, 3, 5]].any()
    assert np.all(np.abs(missing[COHORT]) < 4.5 * np.sqrt(variance[COHORT]))
    assert np.all(variance[COHORT] > 100)  # nobody always arrives, or never


@pytest.mark.parametrize("kind", ["sampled", "weighted"])
def test_contributions__are_unbiased_whatever_the_channel_loses(kind):
    scenario = SCENARIO.replace(num_samples=DATA, waterfall_threshold=0.05, upload_failure=0.2)
    given = np.array([0.5, 2.0, 0.1])
    decision, mean = Allocation(F, P, q=np.full(6, 1 / 6)), scenario.weights
    if kind == "weighted":
        decision, mean = Allocation(F, P, cohort=COHORT, weights=given), np.zeros(6)
        mean[COHORT] = given
    rounds = list(play(scenario, decision))
    weights = np.array([contributions(decision, one.info(), scenario).weight for _, one in rounds])
    error = weights.std(axis=0) / np.sqrt(len(weights))
    assert np.all(np.abs(weights.mean(axis=0) - mean) <= 4.5 * error)


def test_arrival__is_likelier_with_power_and_gain_and_less_so_in_a_wider_part():
    """At the same power a wider part has more noise."""
    gain, widths = np.full(6, 0.1), np.linspace(0.1, 0.6, 6) * SCENARIO.bandwidth_hz
    by_power = physics.arrival_probability(gain, np.linspace(0.01, 0.1, 6), SCENARIO)
    by_gain = physics.arrival_probability(np.linspace(0.01, 0.5, 6), P[0], SCENARIO)
    by_width = physics.arrival_probability(gain, P[0], SCENARIO, widths)
    assert np.all(np.diff(by_power) > 0)
    assert np.all(np.diff(by_gain) > 0)
    assert np.all(np.diff(by_width) < 0)


def test_failures__without_packet_errors_are_those_of_the_stream_of_uploads():
    plain = Scenario.digits(upload_failure=0.3, num_rounds=50)
    decision = Allocation(plain.f_mid, plain.p_mid, cohort=np.array([7, 9]))
    streams = np.random.SeedSequence(5).spawn(1)[0].spawn(5)
    fails = np.random.default_rng(streams[4]).random((50, plain.num_devices)) < 0.3
    alone = [played for _, played in play(plain, decision, 5)]
    both = [p for _, p in play(plain.replace(waterfall_threshold=0.1), decision, 5)]
    more = 0
    for failing, one, other in zip(fails, alone, both, strict=True):
        np.testing.assert_array_equal(one.failed[[7, 9]], failing[[7, 9]])
        assert "arrival" not in one.info()
        assert np.all(other.failed >= one.failed)  # both must go well
        more += (other.failed & ~one.failed).sum()
        for field in ("cohort", "device_time", "energy_spent", "reward_drift"):
            np.testing.assert_array_equal(getattr(other, field), getattr(one, field))
    assert more > 5


def test_info__hides_the_arrival_of_those_whose_gain_was_not_measured():
    scenario = SCENARIO.replace(csi="participants", num_rounds=3)
    for _, played in play(scenario, Allocation(F, P, cohort=COHORT)):
        known = np.isin(np.arange(6), COHORT)
        np.testing.assert_array_equal(np.isnan(played.info()["arrival"]), ~known)
        assert not np.isnan(played.arrival).any()


@pytest.mark.parametrize(
    ("threshold", "message"),
    [
        (-0.1, "waterfall_threshold must be .* got -0.1"),
        (np.inf, "waterfall_threshold must be .* got inf"),
        (2000.0, "largest probability of arrival .* choose another waterfall_threshold"),
    ],
)
def test_scenario__refuses_a_threshold_at_which_nothing_can_arrive(threshold, message):
    with pytest.raises(ValueError, match=message):
        Scenario(waterfall_threshold=threshold)
