"""Speed of the outcome problem of a round against a route through scipy.

Run with ``pytest -m benchmark``; nothing here fails for being slow.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import elementwise, minimize_scalar
from scipy.special import lambertw

from fl_edge_env import Scenario, physics
from policies.outcome import bound_rounds, solve_round

pytestmark = pytest.mark.benchmark

PRICE = 0.39  # of energy [s/J], about where the CIFAR-10 system meets its budget


def states(scenario: Scenario, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gains, and queues for V = 1 around those at which budget and participation are met."""
    rng = np.random.default_rng(0)
    gains = scenario.channel.draw(rng, count, scenario.num_devices)
    spread = rng.uniform(0.8, 1.2, gains.shape)
    return gains, PRICE * spread, rng.normal(1600, 100, gains.shape)


def solve_with_scipy(gain, queue, participation, scenario: Scenario, grid: int = 40) -> float:
    """A grid of deadlines, the best refined; all devices' roots at once, vectorised.

    It proves nothing, and the grid decides what it finds.
    """
    snr = gain / scenario.noise_power_w

    def resources(log_price: np.ndarray, devices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        price = np.exp(log_price)
        f = np.cbrt(1 / (price * scenario.capacitance[devices]))
        log = 1 + lambertw((snr[devices] / price - 1) / math.e).real
        p = np.expm1(log) / snr[devices]
        return (
            np.clip(f, scenario.f_min[devices], scenario.f_max[devices]),
            np.clip(p, scenario.p_min[devices], scenario.p_max[devices]),
        )

    def time_and_energy(log_price: np.ndarray, devices: np.ndarray):
        h, f, p = np.full((3, len(gain)), 1.0)
        h[devices] = gain[devices]
        f[devices], p[devices] = resources(log_price, devices)
        time, energy = physics.time_and_energy(h, f, p, scenario)
        return time[devices], energy[devices]

    everyone = np.arange(len(gain))
    least, _ = physics.time_and_energy(gain, scenario.f_max, scenario.p_max, scenario)
    slowest, least_energy = physics.time_and_energy(gain, scenario.f_min, scenario.p_min, scenario)

    def value(tau: float) -> float:
        cost = np.where(slowest <= tau, queue * least_energy, np.inf) - participation
        devices = everyone[(least < tau) & (tau < slowest)]
        if len(devices):
            root = elementwise.find_root(
                lambda x, n: time_and_energy(x, n)[0] - tau,
                (np.full(len(devices), -20.0), np.full(len(devices), 20.0)),
                args=(devices,),
            )
            energy = time_and_energy(root.x, devices)[1]
            cost[devices] = queue[devices] * energy - participation[devices]
        cheapest = np.sort(cost)[: scenario.cohort_size]
        return tau + cheapest[0] + np.minimum(cheapest[1:], 0).sum()

    deadlines = np.linspace(least.min() * 1.001, 3 * np.median(least), grid)
    best = int(np.argmin([value(tau) for tau in deadlines]))
    low, high = deadlines[max(best - 1, 0)], deadlines[min(best + 1, grid - 1)]
    return float(minimize_scalar(value, bounds=(low, high), method="bounded").fun)


def test_round__against_the_scipy_route(benchmark, report, seconds):
    scenario = Scenario.cifar10()
    batch = states(scenario, 256)
    state = tuple(x[0] for x in batch)
    reference = seconds(lambda: solve_with_scipy(*state, scenario), 1, 2)
    benchmark(solve_round, *state, scenario, V=1.0)
    single = seconds(lambda: solve_round(*state, scenario, V=1.0), 200)
    many = seconds(lambda: solve_round(*batch, scenario, V=1.0), 3) / 256
    prices = tuple(x[0] for x in batch[1:])
    bound = seconds(lambda: bound_rounds(batch[0], *prices, scenario), 3) / 256
    ours, theirs = (
        solve_round(*state, scenario, V=1.0).objective,
        solve_with_scipy(*state, scenario),
    )
    assert ours <= theirs + 1e-6 * abs(theirs)
    report(
        f"outcome problem, N = 120: scipy's roots and a grid of deadlines {reference * 1e3:.0f} ms "
        f"and no proof, ours with proof {single * 1e6:.0f} us ({reference / single:.0f} times "
        f"faster), in a batch of 256 {many * 1e6:.0f} us, the bound alone {bound * 1e6:.0f} us; "
        f"scipy's value is above by {(theirs - ours) / abs(ours):.1e}"
    )


@pytest.mark.parametrize("cohort_size", [2, 20])
def test_round__cost_against_the_number_of_devices(cohort_size, report, seconds):
    cost = {}
    for num_devices in (1_000, 10_000, 100_000, 1_000_000):
        scenario = Scenario(
            num_devices=num_devices, cohort_size=cohort_size, bandwidth_hz=5e5 * cohort_size
        )
        state = tuple(x[0] for x in states(scenario, 1))
        calls = max(1, 20_000 // num_devices)
        cost[num_devices] = seconds(
            lambda x=state, s=scenario: solve_round(*x, s, V=1.0), calls, repeats=3
        )
    per_device = {n: f"{1e9 * value / n:.0f} ns" for n, value in cost.items()}
    report(
        f"outcome problem per device against N, K = {cohort_size}: {per_device}; "
        f"N = 1,000,000: {cost[1_000_000]:.2f} s"
    )
