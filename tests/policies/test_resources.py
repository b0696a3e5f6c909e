"""Resources of a given cohort against searches that know no theorem."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_edge_env import Scenario, physics
from policies.resources import RESOURCES, deadline_resources, share_band
from tests.policies.outcome.test_round import best_by_enumeration, ends
from tests.support import ANY_SEED

SYSTEM = Scenario.cifar10(
    num_devices=6, cohort_size=3, energy_budget_j=1500.0, noise_density_w_hz=3e-8
)


def state_of(seed: int, decade: float):
    """Gains and queues at which a second and the energy of a device weigh alike at decade 0."""
    rng = np.random.default_rng(seed)
    gain = SYSTEM.channel.sample(rng, 1, 6)[0]
    queue = SYSTEM.V * 10 ** (decade + rng.uniform(-0.5, 0.5, 6))
    members = np.zeros(6, dtype=bool)
    members[rng.choice(6, rng.integers(1, 4), replace=False)] = True
    return gain, queue, members


@pytest.mark.filterwarnings("ignore::UserWarning")  # at the mean gain nobody may be in time
@given(
    seed=ANY_SEED,
    decade=st.sampled_from([-6.0, -3.0, -1.0, 0.0, 1.0, 3.0]),
    share=st.one_of(st.none(), st.integers(0, 16)),
)
def test_deadline_resources__are_the_best_that_finish_together(seed, decade, share):
    gain, queue, members = state_of(seed, decade)
    fastest, slowest = ends(SYSTEM, gain)
    system = SYSTEM
    if share is not None:
        low = 0.95 * fastest[members].min()
        high = 1.05 * slowest[members].max()
        system = SYSTEM.replace(deadline_s=float(low * (high / low) ** (share / 16)))
    f, p = deadline_resources(gain, queue, members, system)
    can = members & (fastest <= system.deadline_s)
    idle = (f == SYSTEM.f_min) & (np.abs(p / SYSTEM.p_min - 1) < 1e-9)
    if can.any():
        assert np.all(idle[members & ~can])
    else:
        can = members
        system = SYSTEM
    time, energy = physics.time_and_energy(gain, f, p, SYSTEM)
    found = time[can].max() + np.sum((queue * energy)[can]) / SYSTEM.V
    cohort = tuple(np.flatnonzero(can))
    best = best_by_enumeration(system, gain, queue / SYSTEM.V, np.zeros(6), cohort)
    assert found == pytest.approx(best, rel=1e-6)
    assert np.all(time[can] <= system.deadline_s * (1 + 1e-11))
    assert np.all(idle[can & (time < time[can].max() * (1 - 1e-6))])


@given(seed=ANY_SEED, size=st.integers(1, 3), power=st.floats(-4, 1))
def test_share_band__all_finish_together_with_the_whole_band(seed, size, power):
    rng = np.random.default_rng(seed)
    scenario = SYSTEM.replace(noise_power_w=10.0**power, download_rate_bps=1e6)
    gain = scenario.channel.sample(rng, 2, 6)
    f = rng.uniform(1e9, 2e9, (2, 6))
    p = rng.uniform(1e-3, 0.1, (2, 6))
    cohort = np.full((2, 3), -1)
    cohort[:, :size] = [rng.choice(6, size, replace=False) for _ in range(2)]
    bandwidth = share_band(gain, cohort, f, p, scenario)
    time, _ = physics.time_and_energy(gain, f, p, scenario, bandwidth=bandwidth)
    # So no other split is faster: it gives less to one of them.
    for row, members in enumerate(cohort[:, :size]):
        assert np.sum(bandwidth[row]) == pytest.approx(scenario.bandwidth_hz, rel=1e-12)
        assert np.all(np.delete(bandwidth[row], members) == 0.0)
        np.testing.assert_allclose(time[row, members], time[row, members].max(), rtol=1e-8)


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
