"""Does an asynchronous server save time? The table docs/evidence/asynchronous.txt.

python examples/asynchronous.py

K devices are always working, each with 1/K of the band. As soon as one has uploaded, the server
starts an idle one, with the gains of that moment. The policy sees each start as a round with one
participant and 1/K of the budgets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tyro

from fl_edge_env import Scenario, physics
from fl_edge_env.lyapunov import next_queue
from fl_edge_env.streams import episode_gains, policy_seed
from fl_edge_env.typing import FloatArray
from policies import Policy, evaluate, make_policy
from policies.benchmark.intervals import mean_interval


def one_lane(scenario: Scenario) -> Scenario:
    """Make the system whose rounds are the participations of a scenario, one after another."""
    lanes = scenario.cohort_size
    return scenario.replace(
        cohort_size=1,
        num_rounds=lanes * scenario.num_rounds,
        bandwidth_hz=scenario.bandwidth_hz / lanes,
        energy_budget_j=scenario.energy_budget_j / lanes,
    )


def without_waiting(
    policy: Policy, lanes: int, seeds: Sequence[int]
) -> tuple[FloatArray, FloatArray]:
    """Simulate `lanes` concurrent devices, event by event, under each seed.

    `policy` is for the system of `one_lane`; only the idle devices in its cohorts and draws count.
    Returns the seconds that `lanes` participations take, shape (seeds,), and the devices' ratios of
    energy to budget, (seeds, N). As in a round, sampled devices are charged their expected energy.
    Staleness is ignored.
    """
    scenario = policy.scenario
    rows = np.arange(len(seeds))
    rng = np.random.default_rng([lanes, *seeds])
    policy.reset([policy_seed(seed) for seed in seeds])
    queue, energy = np.zeros((2, len(seeds), scenario.num_devices))
    finish = np.zeros((len(seeds), lanes))
    working = np.tile(np.arange(lanes), (len(seeds), 1))  # the device now or last on each lane
    gains = np.stack([np.concatenate([*episode_gains(scenario, seed)]) for seed in seeds], axis=1)
    for gain in gains:
        free = finish.argmin(axis=1)
        available = np.ones(gain.shape)
        np.put_along_axis(available, working, 0.0, axis=1)
        available[rows, working[rows, free]] = 1.0
        decision = policy.decide({"channel_gain": gain, "queue": queue, "available": available})
        if decision.cohort is not None:
            device = decision.cohort[:, 0]
        else:
            chance = (available * decision.q).cumsum(axis=1)
            device = (chance > rng.random((len(seeds), 1)) * chance[:, -1:]).argmax(axis=1)
        time, cost = physics.time_and_energy(gain, decision.f, decision.p, scenario)
        finish[rows, free] += time[rows, device]
        working[rows, free] = device
        spent = np.where(device[:, None] == np.arange(scenario.num_devices), cost, 0.0)
        policy.feedback({"energy_spent": spent})
        counted = spent if decision.q is None else decision.q * cost
        energy += counted
        queue = next_queue(queue, counted - scenario.energy_budget_j)
    rounds = scenario.num_rounds
    return finish.max(axis=1) * lanes / rounds, energy / (scenario.energy_budget_j * rounds)


def cell(seconds: FloatArray, all_devices: FloatArray, worst_device: FloatArray) -> str:
    """Format seconds with their 95 % interval, and energies in % of the budget."""
    mean, low, _ = mean_interval(seconds)
    energies = f"{100 * all_devices.mean():.0f}, {100 * worst_device.mean():.0f}"
    return f"{f'{mean:.0f}±{mean - low:.0f} ({energies})':>23}"


def main(rounds: int = 1000, seeds: int = 5, cohort_size: int = 2) -> None:
    """Print the table.

    Parameters
    ----------
    rounds : int
        times K participations
    seeds : int
        channels, the same for all
    cohort_size : int
        concurrent devices, K
    """
    K = cohort_size
    channels = range(seeds)
    systems = {}
    for name in ("cifar10", "cell", "phones"):
        preset = Scenario.preset(name, num_rounds=rounds)
        density = preset.noise_power_w * preset.cohort_size / preset.bandwidth_hz  # for any K
        # The budget for one participation is the same as in the preset.
        budget = preset.energy_budget_j * K / preset.cohort_size
        systems[name] = preset.replace(
            cohort_size=K, energy_budget_j=budget, noise_density_w_hz=density
        )
    print(f"Seconds for {K} participations (energy of all and of the worst device, %)")
    print(f"{'':22}" + "".join(f"{name:>23}" for name in systems))
    print(f"{'waits: Opportunistic':22}", end="", flush=True)
    for scenario in systems.values():
        runs = evaluate([make_policy("opportunistic", scenario)], scenario, channels, gaps=False)
        seconds = runs.total_time.to_numpy() / rounds
        energies = runs.energy_ratio.to_numpy(), runs.worst_energy_ratio.to_numpy()
        print(cell(seconds, *energies), end="", flush=True)
    print("\ndoes not wait:")
    for name in ("uni-s", "uni-d", "lroa", "opportunistic"):
        for column, scenario in enumerate(systems.values()):
            policy = make_policy(name, one_lane(scenario))
            seconds, energy = without_waiting(policy, K, channels)
            text = cell(seconds, energy.mean(axis=1), energy.max(axis=1))
            print(text if column else f"{f'  {policy.name}':22}{text}", end="", flush=True)
        print()


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
