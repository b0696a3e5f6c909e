"""Resources of a given cohort against searches that know no theorem."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Scenario, physics
from policies.resources import RESOURCES, deadline_resources, share_band
from tests.support import ANY_SEED

SYSTEM = Scenario.cifar10(num_devices=6, cohort_size=3, energy_budget_j=1500.0)


def state_of(seed: int, decade: float):
    """Gains and queues at which a second and the energy of a device weigh alike at decade 0."""
    rng = np.random.default_rng(seed)
    gain = SYSTEM.channel.sample(rng, 1, 6)[0]
    queue = SYSTEM.V * 10 ** (decade + rng.uniform(-0.5, 0.5, 6))
    members = np.zeros(6, dtype=bool)
    members[rng.choice(6, rng.integers(1, 4), replace=False)] = True
    return gain, queue, members


def least_energy(gain: float, deadline: np.ndarray) -> np.ndarray:
    """Least energy of a device at each deadline: every split of the time, tried one by one."""
    cycles = SYSTEM.cycles_per_round[0]
    f = np.geomspace(SYSTEM.f_min[0], SYSTEM.f_max[0], 1500)
    left = deadline[:, None] - cycles / f
    left = np.where(left > 0, left, 1e-300)
    nats = SYSTEM.model_bits * math.log(2) / (SYSTEM.bandwidth_hz / SYSTEM.cohort_size)
    with np.errstate(over="ignore"):
        wanted = np.expm1(nats / left) * SYSTEM.noise_power_w / gain
    p = np.clip(wanted, SYSTEM.p_min[0], SYSTEM.p_max[0])
    upload = nats / np.log1p(gain * p / SYSTEM.noise_power_w)
    energy = 0.5 * SYSTEM.capacitance[0] * cycles * f**2 + p * upload
    return np.min(np.where(wanted <= SYSTEM.p_max[0], energy, np.inf), axis=1)


@pytest.mark.filterwarnings("ignore::UserWarning")  # at the mean gain nobody may be in time
@given(
    seed=ANY_SEED,
    decade=st.sampled_from([-6.0, -3.0, -1.0, 0.0, 1.0, 3.0]),
    share=st.one_of(st.none(), st.integers(0, 16)),
)
def test_deadline_resources__are_the_best_that_finish_together(seed, decade, share):
    gain, queue, members = state_of(seed, decade)
    fastest, _ = physics.time_and_energy(gain, SYSTEM.f_max, SYSTEM.p_max, SYSTEM)
    slowest, _ = physics.time_and_energy(gain, SYSTEM.f_min, SYSTEM.p_min, SYSTEM)
    system = SYSTEM
    if share is not None:
        low = 0.95 * fastest[members].min()
        high = 1.05 * slowest[members].max()
        system = SYSTEM.replace(deadline_s=float(low * (high / low) ** (share / 16)))
    f, p = deadline_resources(gain, queue, members, system)
    can = members & (fastest <= system.deadline_s)
    end = system.deadline_s
    idle = (f == SYSTEM.f_min) & (np.abs(p / SYSTEM.p_min - 1) < 1e-9)
    if can.any():
        assert np.all(idle[members & ~can])
    else:
        can = members
        end = math.inf
    end = min(end, slowest[can].max())
    deadline = np.geomspace(fastest[can].max() * (1 + 1e-12), end, 1500)
    total = SYSTEM.V * deadline
    for n in np.flatnonzero(can):
        total = total + queue[n] * least_energy(gain[n], deadline)
    time, energy = physics.time_and_energy(gain, f, p, SYSTEM)
    found = SYSTEM.V * time[can].max() + np.sum((queue * energy)[can])
    assert total.min() * (1 - 2e-3) <= found
    assert found <= total.min() * (1 + 1e-9)
    if share is not None and not np.any(members & ~can):  # all the time that there is
        free = deadline_resources(gain, queue, members, SYSTEM)
        free, _ = physics.time_and_energy(gain, *free, SYSTEM)
        assert free[can].max() <= end or time[can].max() == pytest.approx(end, rel=1e-9)
    assert np.all(time[can] <= end * (1 + 1e-11))
    for n in np.flatnonzero(can):
        assert energy[n] <= least_energy(gain[n], time[can].max(keepdims=True))[0] * (1 + 1e-9)
    assert np.all(idle[can & (time < time[can].max() * (1 - 1e-6))])


# Bandwidth


@given(seed=ANY_SEED, size=st.integers(1, 3), power=st.floats(-4, 1))
def test_share_band__all_finish_together_and_no_split_is_faster(seed, size, power):
    rng = np.random.default_rng(seed)
    scenario = SYSTEM.replace(noise_power_w=10.0**power, download_rate_bps=1e6)
    gain = scenario.channel.sample(rng, 2, 6)
    f = rng.uniform(1e9, 2e9, (2, 6))
    p = rng.uniform(1e-3, 0.1, (2, 6))
    cohort = np.full((2, 3), -1)
    cohort[:, :size] = [rng.choice(6, size, replace=False) for _ in range(2)]
    bandwidth = share_band(gain, cohort, f, p, scenario)
    for row in range(2):
        members = cohort[row, :size]
        assert np.sum(bandwidth[row]) == pytest.approx(scenario.bandwidth_hz, rel=1e-12)
        assert np.all(np.delete(bandwidth[row], members) == 0.0)
        time, _ = physics.time_and_energy(
            gain[row], f[row], p[row], scenario, bandwidth=bandwidth[row]
        )
        np.testing.assert_allclose(time[members], time[members].max(), rtol=1e-8)
        for _ in range(20):
            other = np.zeros(6)
            other[members] = scenario.bandwidth_hz * rng.dirichlet(np.ones(size))
            others, _ = physics.time_and_energy(
                gain[row], f[row], p[row], scenario, bandwidth=other
            )
            assert others[members].max() >= time[members].max() * (1 - 1e-9)


@pytest.mark.parametrize("rule", ["static", "dynamic"])
def test_shared_resources__add_bandwidth_to_a_rule(rule):
    gain, queue, members = state_of(seed=4, decade=0.0)
    f, p = RESOURCES[rule](gain, queue, SYSTEM, members)
    found = RESOURCES[f"{rule}-shared"](gain, queue, SYSTEM, members)
    expected = (f, p, share_band(gain, np.flatnonzero(members), f, p, SYSTEM))
    np.testing.assert_equal(found, expected)
    drawn = np.full(6, 1 / 6)
    for unknown in (None, drawn):
        np.testing.assert_equal(
            RESOURCES[f"{rule}-shared"](gain, queue, SYSTEM, unknown),
            RESOURCES[rule](gain, queue, SYSTEM, unknown),
        )
