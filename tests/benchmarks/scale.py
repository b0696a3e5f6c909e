"""How time and memory grow with a system: ``python -m tests.benchmarks.scale`` prints a table.

Each system has a process of its own. Times are processor times of one thread, after compilation:
of a step and of decisions in a batch of B systems, of the search for the prices of both bounds, and
of a round of both bounds. Memory is the largest of the process.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
import timeit
from collections.abc import Callable

import numpy as np
from gymnasium.vector import AutoresetMode

from fl_edge_env import Allocation, FLEdgeVectorEnv, Scenario
from policies import make_policy
from policies.benchmark.bounds import find_prices, outcome_path_bound, path_bound

# N, K and B.
SYSTEMS = (
    *((number, 2, 1) for number in (100, 1000, 10**4, 10**5, 10**6)),
    *((1000, size, 1) for size in (1, 10, 100, 1000)),
    *((100, 2, batch) for batch in (100, 10**4)),
)
POLICIES = "lroa", "quickest", "opportunistic", "divfl"
DIVFL_DEVICES = 1000  # it keeps the distances between all pairs
HEAD = (
    *("N", "K", "B", "step [ms]", "LROA [ms]", "Quickest [ms]", "Opportunistic [ms]"),
    *("DivFL [ms]", "prices [s]", "bounds [ms]", "memory [MB]"),
)


def seconds(routine: Callable[[], object]) -> float:
    """Processor time of a call after the first, the least of three measurements."""
    routine()
    timer = timeit.Timer(routine, timer=time.process_time)
    calls = max(1, int(0.1 / max(timer.timeit(1), 1e-6)))
    return min(timer.repeat(3, calls)) / calls


def row(number: int, size: int, batch: int) -> list[str]:
    """The measurements of a system."""
    budget = 15.0 * (size / 2) * (120 / number)  # as scarce as with the preset's N and K
    scenario = Scenario.cifar10(
        num_devices=number, cohort_size=size, energy_budget_j=budget, num_rounds=10**6
    )
    env = FLEdgeVectorEnv(batch, scenario, autoreset_mode=AutoresetMode.DISABLED)
    observation, info = env.reset(seed=0)
    decision = Allocation(scenario.f_mid, scenario.p_mid, np.full(number, 1.0 / number))
    decision = decision.of_shape((batch, number))
    cells = [seconds(lambda: env.step(decision)) * 1e3]
    for name in POLICIES:
        if name == "divfl" and (number > DIVFL_DEVICES or batch > 1):
            cells.append(np.nan)
            continue
        policy = make_policy(name, scenario)
        policy.reset(range(batch))
        distance = np.random.default_rng(0).random((number, number)) if name == "divfl" else None
        policy.feedback(info if distance is None else info | {"gradient_distance": distance})
        cells.append(seconds(lambda one=policy: one.decide(observation)) * 1e3)
    if batch == 1:
        begun = time.process_time()
        prices = find_prices(scenario)
        cells.append(time.process_time() - begun)
        few = scenario.replace(num_rounds=20)
        path = seconds(lambda: path_bound(few, 0, prices.energy))
        outcome = seconds(lambda: outcome_path_bound(few, 0, prices.outcome))
        cells.append((path + outcome) / few.num_rounds * 1e3)
    else:
        cells += [np.nan, np.nan]
    cells.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    numbers = ["–" if np.isnan(cell) else f"{float(f'{cell:.2g}'):,g}" for cell in cells]
    return [f"{number:,}", f"{size:,}", f"{batch:,}", *numbers]


def show(cells: list[str] | tuple[str, ...]) -> None:
    """Print a line of a Markdown table."""
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print the table, or the row of one system that is named by N, K and B."""
    if len(sys.argv) > 1:
        show(row(*map(int, sys.argv[1:])))
        return
    show(HEAD)
    show(["---:"] * len(HEAD))
    for system in SYSTEMS:
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.benchmarks.scale",
            *map(str, system),
        ]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
