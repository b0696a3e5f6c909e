"""The round: identities, Monte Carlo means and common random numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fl_edge_env import Allocation, ExponentialChannel, MarkovChannel, Scenario, Simulator, physics
from fl_edge_env.allocation import decode_action
from tests.support import Constant, channel_of, chosen

STEADY = channel_of("narrow", 0.1)


# In the second case there are more draws than devices, in the third some devices are late.
@pytest.mark.parametrize(
    ("num_devices", "cohort_size", "deadline_s"),
    [(5, 3, math.inf), (2, 6, math.inf), (5, 3, 1500.0)],
)
def test_round__monte_carlo_means_over_the_cohort(num_devices, cohort_size, deadline_s):
    scenario = Scenario(
        num_devices=num_devices,
        cohort_size=cohort_size,
        num_rounds=150,
        channel=STEADY,
        num_samples=np.arange(1, num_devices + 1),
        deadline_s=deadline_s,
    )
    simulator = Simulator(scenario, 100)
    simulator.reset(range(100))
    action = np.random.default_rng(0).uniform(-1, 1, (3, num_devices))
    allocation = decode_action(action, scenario, 1.0)
    rounds = [simulator.advance(allocation) for _ in range(scenario.num_rounds)]

    cohorts = np.concatenate([each.cohort.ravel() for each in rounds])
    expected = allocation.q * len(cohorts)
    assert stats.chisquare(np.bincount(cohorts, minlength=num_devices), expected).pvalue > 1e-3

    first = rounds[0]
    longest = physics.expected_maximum(first.device_time[0], allocation.q, cohort_size)
    assert longest > first.latency[0]
    means = {"energy_spent": first.energy_expected[0], "round_time": longest}
    for name, mean in means.items():
        drawn = np.concatenate([getattr(each, name) for each in rounds])
        error = drawn.std(axis=0) / math.sqrt(len(drawn))
        assert np.all(np.abs(drawn.mean(axis=0) - mean) < 4 * error), name


def test_cohort__depends_on_the_seed_and_q_only():
    scenario = Scenario(num_devices=6, num_rounds=40)
    rng = np.random.default_rng(0)
    base = [decode_action(rng.uniform(-1, 1, (3, 6)), scenario, 2.0) for _ in range(40)]

    def cohorts(allocations: list[Allocation], **fields) -> np.ndarray:
        simulator = Simulator(scenario.replace(**fields))
        simulator.reset([7])
        return np.array([simulator.advance(a).cohort for a in allocations])

    wanted = cohorts(base)
    slow = [Allocation(1e9, 0.001, a.q) for a in base]
    channel = ExponentialChannel(filter="resample")
    drawn = cohorts(slow, channel=channel, num_rounds=3, model_bits=1e3, energy_budget_j=1.0)
    np.testing.assert_array_equal(drawn, wanted)
    # A cohort named in one round leaves the draws of the others as they were.
    drawn = cohorts([*base[:5], chosen(scenario, 0, 3), *base[6:]])
    np.testing.assert_array_equal(drawn, [*wanted[:5], [0, 3], *wanted[6:]])


class Counting(Constant):
    """Gains that tell the round."""

    gain_max = 1.0

    def draw(self, _, rounds, num_devices, *, first_round=0, **__):
        gain = self.mean + 0.01 * (first_round + np.arange(rounds))
        return np.repeat(gain[:, None], num_devices, axis=1)


# A server that learns gains late sees in its first round one that is not played.
@pytest.mark.parametrize("csi", ["full", "delayed"])
@pytest.mark.parametrize(
    "channel", [ExponentialChannel(), MarkovChannel.correlated(0.7), Counting()]
)
def test_channel__equals_one_long_draw_of_its_stream(channel, csi):
    # Whatever is decided; and drawing ahead in blocks must not repeat or skip a round.
    scenario = Scenario(num_devices=3000, num_rounds=20, channel=channel, csi=csi)
    simulator = Simulator(scenario, 1)
    simulator.reset([5])
    seen = []
    rng = np.random.default_rng(0)
    for _ in range(20):
        seen.append(simulator.observe()["channel_gain"][0])
        simulator.advance(decode_action(rng.uniform(-1, 1, (1, 3, 3000)), scenario, 2.0))
    channel_seed = np.random.SeedSequence(5).spawn(1)[0].spawn(3)[0]
    whole = scenario.channel.draw(np.random.default_rng(channel_seed), 20, 3000)
    np.testing.assert_array_equal(seen, whole)


def test_reset__a_channel_that_draws_what_it_must_not_is_named(monkeypatch):
    scenario = Scenario(num_devices=4, num_rounds=4, channel=Constant())
    monkeypatch.setattr(Constant, "draw", lambda *_, **__: np.full((5, 4), 0.2))
    with pytest.raises(ValueError, match=r"draw of Constant must return gains .*, got 0.2 to 0.2"):
        Simulator(scenario).reset([0])


def test_measure__replaces_the_gains_of_the_coming_round_alone():
    simulator = Simulator(Scenario.digits(num_devices=4, num_rounds=3))
    simulator.reset([0])
    gain = np.array([0.02, 0.03, 0.04, 0.05])
    simulator.measure(gain)
    np.testing.assert_array_equal(simulator.observe()["channel_gain"], gain)
    simulator.advance(chosen(simulator.scenario, 0, 2))
    assert not np.isin(simulator.observe()["channel_gain"], gain).any()
    for wrong in (gain[:3], [0.02, 0.03, np.nan, 0.05], 100 * gain):
        with pytest.raises(ValueError, match="gain must"):
            simulator.measure(wrong)
