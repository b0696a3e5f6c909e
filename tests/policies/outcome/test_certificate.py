"""The certificate of the outcome problem against every cohort, in hard small systems."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fl_edge_env import Scenario, physics
from policies.outcome import solve_round
from policies.resources import deadline_resources

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def hard_system(rng: np.random.Generator) -> Scenario:
    """Narrow and wide ranges, devices that differ, K up to N, and sometimes a deadline."""
    n = int(rng.integers(2, 7))

    def around(value: float, spread: float) -> np.ndarray:
        return value * 10 ** rng.uniform(-spread, spread, n)

    f_min = 10 ** rng.uniform(8.5, 9.5)
    p_min = around(1e-3, 1.0)
    system = Scenario(
        num_devices=n,
        cohort_size=int(rng.integers(1, n + 1)),
        model_bits=10 ** rng.uniform(5, 9),
        num_samples=around(100, 0.5),
        cycles_per_sample=around(1e9, rng.choice([0.1, 1.0])),
        capacitance=around(2e-28, rng.choice([0.0, 1.0])),
        f_min=f_min,
        f_max=f_min * (1 + 10 ** rng.uniform(-2, rng.choice([-1, 1]))),
        p_min=p_min,
        p_max=p_min * (1 + 10 ** rng.uniform(0, 2)),
    )
    if rng.uniform() < 0.3:
        time, _ = physics.time_and_energy(np.full(n, 0.1), system.f_mid, system.p_mid, system)
        system = system.replace(deadline_s=float(rng.uniform(time.min(), time.max() + 1.0)))
    return system


def least_value(system: Scenario, gain: np.ndarray, m: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Value of the best cohort of each round, with the f and p that are best for it, (rounds,)."""
    best = np.full(len(gain), np.inf)
    for size in range(1, system.cohort_size + 1):
        for cohort in itertools.combinations(range(system.num_devices), size):
            member = np.isin(np.arange(system.num_devices), cohort)
            everywhere = np.broadcast_to(member, gain.shape)
            f, p = deadline_resources(gain, system.V * m, everywhere, system)
            time, energy = physics.time_and_energy(gain, f, p, system)
            longest = np.where(member, time, 0.0).max(axis=1)
            value = longest + np.where(member, m * energy - z, 0.0).sum(axis=1)
            best = np.where(longest <= system.deadline_s, np.minimum(best, value), best)
    return best


# Rounds of a system have gains and prices of their own.
@pytest.mark.parametrize(
    ("systems", "rounds"), [(40, 80), pytest.param(1_000, 50, marks=pytest.mark.slow)]
)
def test_bound__is_below_every_cohort_of_hard_systems(systems, rounds):
    rng = np.random.default_rng(1)
    for _ in range(systems):
        system = hard_system(rng)
        gain = 10 ** rng.uniform(-2, np.log10(0.5), (rounds, system.num_devices))
        time, energy = physics.time_and_energy(gain, system.f_mid, system.p_mid, system)
        m = time / energy * 10 ** rng.uniform(-3, 3, gain.shape)
        low, high = rng.choice([(-1, -1e-3), (-1, 2), (0, 0), (0, 0)])
        z = (time + m * energy * rng.choice([0, 1])) * rng.uniform(low, high, gain.shape)
        best = least_value(system, gain, m, z)
        met = best < np.inf  # otherwise nobody can meet the deadline
        solution = solve_round(gain, m, z, system, V=1.0, tolerance=1e-5)
        scale = solution.deadline + np.abs(solution.objective) + np.abs(z).sum(axis=1)
        assert np.all((solution.lower_bound - best <= 1e-9 * scale)[met])
        assert np.all((solution.objective - best <= 2e-5 * scale)[met])
