"""The bound for policies that know the past only, against enumerated decisions and fading."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from scipy import integrate

from fl_edge_env import CellChannel, Scenario, physics
from fl_edge_env.lyapunov import participation_target
from fl_edge_env.spaces import NEVER_MEASURED
from fl_edge_env.streams import episode_gains
from policies.benchmark.bounds import past_path_bound
from policies.outcome import DualPrices, Estimate, expected_gain
from policies.outcome.past import new_fading


def system(rng: np.random.Generator, *, exact: bool) -> Scenario:
    """A random small system; if `exact`, only the device is chosen, and the bound is met."""
    num_devices = int(rng.integers(1, 4))
    p_max = rng.uniform(0.02, 0.3, num_devices)
    f_max = rng.uniform(1.2e9, 2.5e9, num_devices)
    return Scenario.cifar10(
        num_devices=num_devices,
        cohort_size=1 if exact else min(2, num_devices),
        num_rounds=2,
        csi="participants",
        channel=CellChannel(persistence=rng.random(), place_seed=int(rng.integers(1000))),
        num_samples=400.0,
        energy_budget_j=5e3,
        f_min=f_max if exact else 1e9,
        f_max=f_max,
        p_min=p_max if exact else 0.001,
        p_max=p_max,
    )


def least_cost(known, stays: float, prices: DualPrices, scenario: Scenario) -> float:
    """Least mean priced outcome of a round over all cohorts and a grid of f and p."""
    fading, probability = new_fading(scenario.channel)
    new = scenario.channel.device_mean(scenario.num_devices) * fading[:, None]
    gains = np.concatenate([known[None], new])
    weights = np.concatenate([[stays], (1.0 - stays) * probability])
    part_f, part_p = np.array(list(product([0.0, 0.5, 1.0], repeat=2))).T[..., None, None]
    f = scenario.f_min + part_f * (scenario.f_max - scenario.f_min)
    p = scenario.p_min * (scenario.p_max / scenario.p_min) ** part_p
    time, energy = physics.time_and_energy(gains, f, p, scenario)  # (decision, gain, device)
    cost = prices.energy * np.einsum("dgn,g->dn", energy, weights) - prices.participation
    costs = [np.min(time[..., n].dot(weights) + cost[:, n]) for n in range(scenario.num_devices)]
    if scenario.cohort_size == 2:
        for one, other in combinations(range(scenario.num_devices), 2):
            longest = np.maximum(time[:, None, :, None, one], time[None, :, None, :, other])
            mean = longest.dot(weights).dot(weights)
            costs.append(np.min(mean + cost[:, None, one] + cost[None, :, other]))
    constant = prices.participation @ participation_target(scenario)
    return float(min(costs) + constant - prices.energy @ scenario.energy_budget_j)


@pytest.mark.parametrize("exact", [False, True])
def test_past_bound__is_never_passed_in_small_systems(exact):
    rng = np.random.default_rng(0)
    for seed in range(60):
        scenario = system(rng, exact=exact)
        size = scenario.num_devices
        prices = DualPrices(rng.exponential(0.3, size), rng.normal(1000.0, 2000.0, size))
        first, _ = np.concatenate(list(episode_gains(scenario, seed)))
        stays = scenario.channel.persistence
        least = [least_cost(first, known, prices, scenario) for known in (0.0, stays)]
        bounds = past_path_bound(scenario, seed, prices)
        assert np.all(bounds <= np.add(least, 1e-9 * np.abs(least)))
        if exact:
            assert bounds == pytest.approx(least, rel=1e-5, abs=0.1)


@pytest.mark.parametrize("snr", [1e-3, 1.0, 1e3])
def test_new_fading__is_a_clipped_exponential(snr):
    fading, probability = new_fading(CellChannel())
    kinks = -np.expm1([-0.1, -5.0])

    def at(uniform: float) -> float:
        return 1.0 / np.log1p(snr * np.clip(-np.log1p(-uniform), 0.1, 5.0))

    mean, _ = integrate.quad(at, 0.0, 1.0, points=kinks, epsabs=0.0)
    assert probability @ (1.0 / np.log1p(snr * fading)) == pytest.approx(mean, rel=1e-9)


def test_expected_gain__forgets_with_age():
    gain = np.array([0.01, 0.1, 0.3])
    scenario, fast = (Scenario.cell(num_devices=3, channel=f"cell:{k}") for k in (0.5, 0.125))
    expected = expected_gain(gain, np.full(3, 3.0), scenario)
    assert expected == pytest.approx(expected_gain(gain, np.ones(3), fast))
    for channel in ("clip", CellChannel(fading="rician")):
        with pytest.raises(ValueError, match="must be a CellChannel with Rayleigh"):
            expected_gain(gain, np.ones(3), scenario.replace(channel=channel))


@pytest.mark.parametrize("persistence", [0.0, 0.8])
def test_estimate__converges_if_only_good_gains_are_seen(persistence):
    scenario = Scenario.cell(num_devices=6, channel=CellChannel(persistence=persistence))
    gains = scenario.channel.draw(np.random.default_rng(0), 30_000, 6)
    estimate = Estimate(scenario)
    mean = scenario.channel.device_mean(6)
    known = np.full(6, scenario.channel.mean)
    age = np.full(6, NEVER_MEASURED)
    for gain in gains:
        # The half with the best expected fading, and devices that have waited for long.
        expected = estimate.expected_gain(known, age) / mean
        measured = (expected >= np.median(expected)) | (age > 30)
        known = np.where(measured, gain, known)
        age = np.where(measured, 1.0, age + 1.0)
        estimate.measure(known, age)
    for forgotten in (1.0, 3.0, np.inf):
        age = np.full(6, forgotten)
        settled = expected_gain(known, age, scenario)
        # New fading at the same end of its interval looks as if it had stayed.
        assert estimate.expected_gain(known, age) == pytest.approx(settled, rel=0.08)


def test_estimate__begins_at_the_mean_of_all_devices():
    scenario = Scenario.cell(num_devices=30, p_max=np.linspace(0.05, 0.2, 30), csi="participants")
    gains = scenario.channel.sample(np.random.default_rng(1), 20_000, 30).ravel()
    estimate = Estimate(scenario)
    expected = estimate.expected_gain(np.full(30, 0.1), np.full(30, NEVER_MEASURED))
    for device in (0, 29):
        snr = scenario.p_max[device] / scenario.noise_power_w
        time = np.mean(1.0 / np.log1p(snr * gains))
        assert 1.0 / np.log1p(snr * expected[device]) == pytest.approx(time, rel=0.01)
    assert estimate.head_start == pytest.approx(0.0, abs=1e-9)
    estimate.measure(np.full(30, scenario.channel.gain_max), np.ones(30))
    assert np.all(estimate.head_start < 0.0)
    estimate.reset()
    assert estimate.head_start == pytest.approx(0.0, abs=1e-9)
