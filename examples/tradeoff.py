"""Opportunistic: round time against its constraints over V, and an ablation.

python examples/tradeoff.py --seeds 10 --out runs/tradeoff

It prints the ablation's table, and writes all numbers, which docs/evidence.py draws.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pandas as pd
import tyro
from rich.console import Console

from fl_edge_env import Allocation, Scenario
from policies import Opportunistic, UniD
from policies.benchmark.comparison import compare_settings
from policies.benchmark.intervals import mean_interval
from policies.benchmark.run import Run
from policies.benchmark.setting import Setting


class ResourcesOfUniD(Opportunistic):
    """Opportunistic's cohorts with the f and p of Uni-D."""

    def decide(self, observation):
        """Choose the cohort, and take f and p from Uni-D; see `Policy.decide`."""
        own = super().decide(observation)
        other = UniD(self.scenario).decide(observation)
        return Allocation(other.f, other.p, cohort=own.cohort, weights=own.weights)


VARIANTS = {
    "as it is": Opportunistic,
    "cold start": partial(Opportunistic, start="cold"),
    "cold start, steps × 5": partial(Opportunistic, start="cold", step_scale=5.0),
    "steps × 5": partial(Opportunistic, step_scale=5.0),
    "no price moves": partial(Opportunistic, step_scale=0.0),
    "resources of Uni-D": ResourcesOfUniD,
}
# Each start with weights V of time against the queues, in multiples of the default.
POINTS = {
    f"{start}, {V:g}": (start, V)
    for start in ("settled", "cold")
    for V in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
}
MEASURES = ["spent_ratio", "worst_spent_ratio", "least_participation", "outcome_gap"]


def played(scenario: Scenario, seeds: range, workers: int) -> tuple[pd.DataFrame, float]:
    """Return means over seeds, a row for each variant and point, and the mean bound [s]."""
    makers = {
        label: partial(Opportunistic, start=s, step_scale=1 / V) for label, (s, V) in POINTS.items()
    }
    variants = (makers | VARIANTS).items()
    runs = tuple(Run(label, make(scenario), scenario) for label, make in variants)
    setting = Setting("cifar10", runs, seeds)
    (results,) = compare_settings([setting], None, Console(), workers=workers)
    rounds = results.rounds
    late = rounds[rounds["round"] > scenario.num_rounds / 2]
    keys = ["policy", "seed"]
    measures = results.summary.set_index(keys)[MEASURES]
    measures.insert(0, "round_time", rounds.groupby(keys)["round_time"].mean())
    measures.insert(1, "queue", late.groupby(keys)["mean_queue"].mean())
    by_policy = measures.groupby("policy", sort=False)
    table = by_policy.mean()
    for name in measures:
        intervals = by_policy[name].apply(mean_interval)
        table[f"{name}_low"] = [each.low for each in intervals]
        table[f"{name}_high"] = [each.high for each in intervals]
    table["status"] = results.summary.groupby("policy")["status"].first()
    return table, float(results.bounds.groupby("seed")["outcome_bound"].mean().mean())


def main(
    seeds: int = 10,
    rounds: int = 1000,
    out: Path = Path("runs/tradeoff"),
    workers: int = os.cpu_count() or 1,
) -> None:
    """Run all variants and points, print the ablation's table, and write the numbers."""
    table, least = played(Scenario.cifar10(num_rounds=rounds), range(seeds), workers)
    points = pd.DataFrame(list(POINTS.values()), table.index[: len(POINTS)], ["start", "V"])
    points = points.join(table)
    variants = table.loc[list(VARIANTS)].rename_axis("variant").reset_index()
    shown = ["variant", "round_time", "queue", *MEASURES, "status"]
    print(variants[shown].round(4).to_string(index=False))
    out.mkdir(parents=True, exist_ok=True)
    data = pd.concat([points, variants], ignore_index=True)
    data.assign(bound=least, scenario="cifar10").to_csv(out / "tradeoff.csv", index=False)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
