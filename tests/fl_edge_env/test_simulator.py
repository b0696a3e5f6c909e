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
    rng = np.random.default_rng(0)
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
    allocation = decode_action(rng.uniform(-1, 1, (1, 3, num_devices)), scenario, 1.0)
    allocation = allocation.of_shape((100, num_devices))
    outcomes = [simulator.advance(allocation) for _ in range(scenario.num_rounds)]

    cohorts = np.concatenate([o.cohort.ravel() for o in outcomes])
    expected = allocation.q[0] * len(cohorts)
    assert stats.chisquare(np.bincount(cohorts, minlength=num_devices), expected).pvalue > 1e-3

    spent = np.concatenate([o.energy_spent for o in outcomes])
    error = spent.std(axis=0) / math.sqrt(len(spent))
    assert np.all(np.abs(spent.mean(axis=0) - outcomes[0].energy_expected[0]) < 4 * error)

    times = np.concatenate([o.round_time for o in outcomes])
    error = times.std() / math.sqrt(len(times))
    longest = physics.expected_maximum(outcomes[0].device_time[0], allocation.q[0], cohort_size)
    assert abs(times.mean() - longest) < 4 * error
    assert longest > outcomes[0].latency[0]


def test_cohort__depends_on_the_seed_and_q_only():
    scenario = Scenario(num_devices=6, num_rounds=40)
    rng = np.random.default_rng(0)
    base = [decode_action(rng.uniform(-1, 1, (1, 3, 6)), scenario, 2.0) for _ in range(40)]

    def cohorts(allocations: list[Allocation], **fields) -> np.ndarray:
        simulator = Simulator(scenario.replace(**fields), 1)
        simulator.reset([7])
        return np.array([simulator.advance(a).cohort[0] for a in allocations])

    wanted = cohorts(base)
    slow = [Allocation(np.full((1, 6), 1e9), np.full((1, 6), 0.001), a.q) for a in base]
    channel = ExponentialChannel(filter="resample")
    for drawn in (
        cohorts(slow),
        cohorts(base, channel=channel, num_rounds=3),
        cohorts(base, model_bits=1e3, mu=2.0, energy_budget_j=1.0),
    ):
        np.testing.assert_array_equal(drawn, wanted)
    # A cohort named in one round leaves the draws of the others as they were.
    named = Allocation(base[5].f, base[5].p, cohort=[[0, 3]])
    drawn = cohorts([*base[:5], named, *base[6:]])
    np.testing.assert_array_equal(drawn[5], [0, 3])
    np.testing.assert_array_equal(np.delete(drawn, 5, axis=0), np.delete(wanted, 5, axis=0))


class Counting(Constant):
    """Gains that tell the round."""

    gain_max = 1.0

    def draw(self, _, rounds, num_devices, *, first_round=0, **__):
        gain = self.mean + 0.01 * (first_round + np.arange(rounds))
        return np.repeat(gain[:, None], num_devices, axis=1)


@pytest.mark.parametrize(
    "channel", [ExponentialChannel(), MarkovChannel.correlated(0.7), Counting()]
)
def test_channel__equals_one_long_draw_of_its_stream(channel):
    # Whatever is decided; and drawing ahead in blocks must not repeat or skip a round.
    scenario = Scenario(num_devices=3000, num_rounds=20, channel=channel)
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


def test_channel__observed_late_is_that_of_the_round_before():
    # Blocks of five rounds. The first round of a server that knows all gains is seen first.
    scenario = Scenario(num_devices=3000, num_rounds=20, csi="delayed")
    simulator = Simulator(scenario)
    now = Simulator(scenario.replace(csi="full"))
    simulator.reset([5]), now.reset([5])
    allocation = decode_action(np.random.default_rng(0).uniform(-1, 1, (3, 3000)), scenario, 2.0)
    for _ in range(13):
        late = simulator.observe()["channel_gain"]
        gain = now.observe()["channel_gain"]
        np.testing.assert_array_equal(late, gain)
        now.advance(allocation)
        met = now.observe()["channel_gain"]
        time, _ = physics.time_and_energy(met, allocation.f, allocation.p, scenario)
        np.testing.assert_array_equal(simulator.advance(allocation).device_time, time)


def test_training_seed__is_new_in_every_episode():
    simulator = Simulator(Scenario(num_devices=2), 1)
    keys = set()
    for seed in (0, None, None, 1, None):
        simulator.reset([seed])
        stream = simulator._streams[0]
        keys.add(tuple(simulator.training_seed().generate_state(4)))
        for generator in (stream._channel, stream._cohort):
            keys.add(tuple(generator.bit_generator.seed_seq.generate_state(4)))
    assert len(keys) == 15


@pytest.mark.parametrize("rounds", [0, 4, 11, 12, 23])  # a block has twelve rounds
def test_reset__of_one_system_leaves_the_others_as_they_are(rounds):
    scenario = Scenario(num_devices=1365, num_rounds=40)
    simulator = Simulator(scenario, 3)
    twin = Simulator(scenario, 3)
    fresh = Simulator(scenario, 3)
    action = np.random.default_rng(0).uniform(-1, 1, (3, 3, 1365))
    allocation = decode_action(action, scenario, 2.0)
    for sim in (simulator, twin):
        sim.reset([0, 1, 2])
        for _ in range(rounds):
            sim.advance(allocation)
    simulator.reset([None, 7, None], np.array([False, True, False]))
    fresh.reset([5, 7, 5])
    assert simulator.round_index.tolist() == [rounds, 0, rounds]
    for _ in range(14):
        for name, values in simulator.observe().items():
            np.testing.assert_array_equal(values[[0, 2]], twin.observe()[name][[0, 2]])
            np.testing.assert_array_equal(values[1], fresh.observe()[name][1])
        played, others, own = (sim.advance(allocation) for sim in (simulator, twin, fresh))
        for name in ("cohort", "elapsed_time"):
            values = getattr(played, name)
            np.testing.assert_array_equal(values[[0, 2]], getattr(others, name)[[0, 2]])
            np.testing.assert_array_equal(values[1], getattr(own, name)[1])


def test_reset__a_channel_that_draws_what_it_must_not_is_named(monkeypatch):
    scenario = Scenario(num_devices=4, num_rounds=4, channel=Constant())
    monkeypatch.setattr(Constant, "draw", lambda *_, **__: np.full((5, 4), 0.2))
    with pytest.raises(ValueError, match=r"draw of Constant must return gains .*, got 0.2 to 0.2"):
        Simulator(scenario).reset([0])


@pytest.mark.parametrize("availability", [1.0, 0.3])
def test_cohorts__of_many_devices_are_those_of_each_system_alone(availability):
    scenario = Scenario.cifar10(num_devices=3000, cohort_size=9, availability=availability)
    batch = Simulator(scenario, 3)
    batch.reset([4, 5, 6])
    q = np.random.default_rng(0).dirichlet(np.ones(3000), 3)
    f = scenario.f_mid
    p = scenario.p_mid
    cohorts = batch.advance(Allocation(f, p, q)).cohort
    for system, seed in enumerate((4, 5, 6)):
        alone = Simulator(scenario)
        alone.reset([seed])
        outcome = alone.advance(Allocation(f, p, q[system]))
        np.testing.assert_array_equal(cohorts[system], outcome.cohort)


def test_measure__plays_the_coming_round_with_measured_gains():
    scenario = Scenario.digits(num_devices=4, num_rounds=3)
    simulator = Simulator(scenario)
    simulator.reset([0])
    allocation = chosen(scenario, 0, 2)
    gain = np.array([0.02, 0.03, 0.04, 0.05])
    simulator.measure(gain)
    np.testing.assert_array_equal(simulator.observe()["channel_gain"], gain)
    times, _ = physics.time_and_energy(gain, allocation.f, allocation.p, scenario)
    np.testing.assert_array_equal(simulator.advance(allocation).device_time, times)
    assert not np.isin(simulator.observe()["channel_gain"], gain).any()  # drawn again
    for wrong in (gain[:3], [0.02, 0.03, np.nan, 0.05], 2 * scenario.channel.gain_max + gain):
        with pytest.raises(ValueError, match="gain must"):
            simulator.measure(wrong)
