"""How far Opportunistic is ahead of LROA, by LROA's weight mu, the cohort size and the devices.

python examples/lead.py --seeds 10 --out runs/lead

It plays the CIFAR-10 system without training, and writes a table, which docs/evidence.py draws. If
K or N changes, a device has the same data and the same energy for a participation, and the noise
has the same density.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pandas as pd
import tyro
from rich.console import Console

from fl_edge_env import Scenario
from policies import make_policy
from policies.benchmark.comparison import compare_settings
from policies.benchmark.intervals import relative_interval
from policies.benchmark.run import Run
from policies.benchmark.setting import Setting
from policies.report.ranking import by_seed

NAMES = ("lroa", "opportunistic", "quickest")
PAPER = Scenario.cifar10()
RATIO = "over_opportunistic", "over_opportunistic_low", "over_opportunistic_high"


def of_size(num_devices: int, cohort_size: int) -> dict[str, float]:
    """The fields of a system with other numbers of devices."""
    share = (cohort_size / num_devices) / (PAPER.cohort_size / PAPER.num_devices)
    return {
        "num_devices": num_devices,
        "num_samples": float(PAPER.num_samples.mean()),
        "cohort_size": cohort_size,
        "noise_power_w": PAPER.noise_power_w * PAPER.cohort_size / cohort_size,
        "energy_budget_j": float(PAPER.energy_budget_j.mean()) * share,
    }


# The scenario's fields by values of mu, K or N.
AXES = {
    "mu": {mu: {"mu": mu} for mu in (0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5, 10)},
    "K": {k: of_size(120, k) for k in (1, 2, 3, 5, 8, 10)},
    "N": {n: of_size(n, 2) for n in (20, 50, 100, 200, 500, 1000)},
}


def played(rounds: int, seeds: range, workers: int) -> pd.DataFrame:
    """Return a row for each axis, value and policy: means, and the priced time's mean ratio."""
    settings = []
    places = []
    for axis, points in AXES.items():
        for value, fields in points.items():
            scenario = Scenario.cifar10(num_rounds=rounds, **fields)
            policies = [make_policy(name, scenario) for name in NAMES]
            runs = tuple(Run(policy.name, policy, scenario) for policy in policies)
            settings.append(Setting(f"{axis} = {value}", runs, seeds))
            places.append({"axis": axis, "value": value})
    results = compare_settings(settings, None, Console(), workers=workers)
    rows = []
    for place, result in zip(places, results, strict=True):
        runs = by_seed(result.summary)
        reference = runs["Opportunistic"]["priced_time"]
        for policy, own in runs.items():
            longer = relative_interval(own["priced_time"], reference)
            ratio = dict(zip(RATIO, (1 + each for each in longer), strict=True))
            means = own[["total_time", "priced_time", "sampling_error", "spent_ratio"]].mean()
            status = own["status"].iloc[0]
            rows.append(place | {"policy": policy, "status": status, **means, **ratio})
    return pd.DataFrame(rows)


def main(
    seeds: int = 10,
    rounds: int = 1000,
    out: Path = Path("runs/lead"),
    workers: int = os.cpu_count() or 1,
) -> None:
    """Play all settings and write the table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of large systems without binding budgets
        table = played(rounds, range(seeds), workers)
    print(table.round(3).to_string(index=False))
    out.mkdir(parents=True, exist_ok=True)
    table.to_csv(out / "lead.csv", index=False)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
