"""OCEAN against exhaustive search, and in the long run."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from fl_edge_env import FLEdgeEnv, Scenario, physics
from policies.published import OCEAN
from policies.published.uploads import Cohort
from tests.policies.published.systems import EQUAL, SHARED

# The paper's: the time of an upload is common to all, and only uploads take energy.
ALIKE = SHARED.replace(num_samples=400.0, capacitance=1e-60, num_devices=10, p_min=1e-6, p_max=10.0)


def value_of(decision, gain, queue, policy) -> float:
    """What the rule maximises, by the environment's account."""
    scenario, members = policy.scenario, decision.participates
    settings = decision.f, decision.p, scenario, None, decision.bandwidth
    _, energy = physics.time_and_energy(gain, *settings)
    return float(policy.V * members.sum() - np.sum((queue * energy)[members]))


def best_of_all(gain, queue, present, policy) -> float:
    """The value of the best of all cohorts, each with its best parts of the band."""
    scenario, best = policy.scenario, -np.inf
    window = policy.round_time - physics.compute_time(scenario.f_mid, scenario)
    computing = physics.compute_energy(scenario.f_mid, scenario)
    shared = scenario.bandwidth_split == "shared"
    room = scenario.bandwidth_hz / (1 if shared else scenario.cohort_size)
    for size in range(1, min(scenario.cohort_size, np.count_nonzero(present)) + 1):
        chosen = np.array(list(combinations(np.flatnonzero(present), size)))
        members = (chosen[:, :, None] == np.arange(gain.size)).any(axis=1)
        of = Cohort(np.broadcast_to(gain, members.shape), members, scenario)
        windows, worths = of.take(window), of.take(queue)
        need = of.band_at_power(windows, of.p_max)
        possible = ((of.total(need) if shared else of.largest(need)) <= room)[:, 0]
        band, _ = of.split(windows, worths)
        power = of.power(windows, band)
        energy = of.take(computing) + power * of.upload_time(power, band)
        value = policy.V * size - of.total(worths * energy)[:, 0]
        best = max(best, value[possible].max(initial=-np.inf))
    return best


@pytest.mark.parametrize("worth", [1e5, 1e6, 1e7])
@pytest.mark.parametrize("scenario", [ALIKE, ALIKE.replace(bandwidth_split="equal"), EQUAL])
def test_ocean__is_as_good_as_the_best_of_all_cohorts(scenario, worth):
    rng = np.random.default_rng(3)
    shape = (8, scenario.num_devices)
    policy = OCEAN(scenario, round_time=9000.0, V=worth)
    gain, present = rng.uniform(0.05, 0.5, shape), rng.random(shape) < 0.8
    energy = float(physics.compute_energy(scenario.f_mid, scenario).mean()) + 30.0
    queue = rng.uniform(0.01, 2.0, shape) * 1e6 / energy
    state = {"channel_gain": gain, "queue": queue, "available": present.astype(np.int8)}
    decision = policy.decide(state)
    decision.validate(scenario)
    assert not (decision.participates & ~present).any()
    sizes = set()
    for row in range(8):
        single = {name: value[row] for name, value in state.items()}
        alone = policy.decide(single)
        np.testing.assert_array_equal(alone.participates, decision.participates[row])
        found = value_of(alone, gain[row], queue[row], policy)
        best = best_of_all(gain[row], queue[row], present[row], policy)
        assert found == pytest.approx(best, rel=1e-7)
        sizes.add(int(alone.participates.sum()))
    assert worth != 1e6 or len(sizes) > 1  # the queues decide


def test_ocean__is_nearly_as_good_where_computing_takes_energy_and_time():
    rng = np.random.default_rng(4)
    policy = OCEAN(SHARED, round_time=9000.0, V=1e6)
    ratios = []
    for _ in range(12):
        gain, queue = rng.uniform(0.05, 0.5, 8), rng.uniform(50.0, 2000.0, 8)
        found = value_of(policy.decide({"channel_gain": gain, "queue": queue}), gain, queue, policy)
        ratios.append(found / best_of_all(gain, queue, np.ones(8), policy))
    assert max(ratios) <= 1 + 1e-7
    assert np.mean(ratios) > 0.97


@pytest.mark.parametrize("split", ["shared", "equal"])
def test_ocean__ends_each_round_in_time_and_exceeds_no_budget_for_long(split):
    scenario = Scenario.cell(
        num_devices=12, cohort_size=4, bandwidth_split=split, num_rounds=400, bandwidth_hz=4e6,
        num_samples=400.0, energy_budget_j=150.0,
    )  # fmt: skip
    policy = OCEAN(scenario)
    env = FLEdgeEnv(scenario)
    observation, _ = env.reset(seed=0)
    spent, times = np.zeros((2, 12, 400))[0], []
    for t in range(400):
        observation, *_, info = env.step(policy.decide(observation))
        spent[:, t] = info["energy_spent"]
        times.append(info["round_time"])
    assert max(times) <= policy.round_time * (1 + 1e-9)
    # A device takes part while V >= q E, so that no queue is beyond V over the least energy by
    # more than a round's energy; and the energy exceeds the budget by the queue at most.
    least = np.where(spent > 0, spent, np.inf).min()
    excess = spent.sum(axis=1) - 400 * scenario.energy_budget_j
    assert np.all(excess <= policy.V / least + spent.max())
    assert spent.mean(axis=1).max() > 0.97 * 150.0  # those near by use theirs


def test_ocean__takes_somebody_where_nobody_can_finish_in_time():
    policy = OCEAN(SHARED, round_time=1.0)
    gain = np.linspace(0.05, 0.5, 8)
    decision = policy.decide({"channel_gain": gain, "queue": np.zeros(8)})
    decision.validate(SHARED)
    assert decision.participates.sum() == 1


@pytest.mark.parametrize("field", ["V", "round_time"])
def test_ocean__refuses_what_is_not_positive(field):
    with pytest.raises(ValueError, match=f"{field} must be positive"):
        OCEAN(SHARED, **{field: 0.0})
