"""Learning agents and model-based policies on a frozen task: scores with their intervals.

python examples/tasks.py FLEdgePaper-v0
python examples/tasks.py FLEdgeLongest-v0
python examples/tasks.py FLEdgeBlind-v0 --policies mine.py:Mine

Each agent is trained with five seeds; all policies then play the held-out seeds, and ten that are
drawn for this comparison, by which they are ordered. The score is 0 for the best static policy and
1 at the bound: with full information, or in the blind task for policies that know the past only.
Model-based policies are shown with their defaults and tuned on other seeds. Intervals are over the
training seeds for agents, and over the environment's seeds for the other policies (bootstrap,
95 %). A task takes twenty to forty minutes on one core, a few without agents (--training-seeds 0).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import train_gru
import train_ppo
import train_sb3
import tyro
from joblib import Parallel, delayed
from scipy import stats

from fl_edge_env import Allocation, Scenario
from fl_edge_env.tasks import SEEDS, TASKS, normalized_score
from policies import Policy, evaluate, make_policy

TUNING_SEEDS = range(100, 110)
# Model-based policies, each with the scales nu and mu or the steps that tuning tries.
WEIGHTS = [{"nu": nu, "mu": mu} for nu in (1e4, 3e4, 1e5, 3e5, 1e6) for mu in (0.7, 0.85, 1.0, 1.2)]
RULES = {"lroa": WEIGHTS, "uni-d": WEIGHTS[2::4]}
COLUMNS = ["held-out seeds", "fresh seeds", "less LROA's", "status"]
BLIND_RULES = RULES | {"opportunistic": [{"step_scale": 2.0**k} for k in range(-1, 4)]}


class Static(Policy):
    """The same f and p for all devices in all rounds; devices are drawn uniformly or take turns."""

    def __init__(self, scenario: Scenario, f: float, p: float) -> None:
        super().__init__(scenario)
        self.f = f
        self.p = p
        self.round = 0

    def reset(self, seed: Any) -> None:  # noqa: ARG002 - not random
        """Start with the first devices."""
        self.round = 0

    def decide(self, observation: Any) -> Allocation:  # noqa: ARG002 - always the same
        """Choose the next devices, or sample all uniformly."""
        scenario = self.scenario
        first = self.round * self.scenario.cohort_size
        self.round += 1
        if scenario.objective == "penalty":
            return Allocation(self.f, self.p, q=1 / scenario.num_devices)
        cohort = (first + np.arange(scenario.cohort_size)) % scenario.num_devices
        return Allocation(self.f, self.p, cohort=cohort)


def of_sb3(agent: str, rounds: int, task: str, seed: int) -> Any:
    """An agent of Stable-Baselines3."""
    return train_sb3.train(agent, TASKS[task].scenario, seed, rounds)


def of_script(script: Any, task: str, seed: int) -> Any:
    """An agent of another script."""
    return script.train(script.Settings(env=task, seed=seed))


# Agents' names in the table, and their training functions.
AGENTS = {
    "PPO, one file": partial(of_script, train_ppo),
    "PPO of SB3": partial(of_sb3, "flat", 50_000),
    "PPO of SB3, one rule": partial(of_sb3, "rule", 50_000),
}
SAMPLING_AGENTS = AGENTS | {"PPO of SB3, shared network": partial(of_sb3, "rows", 20_000)}
BLIND_AGENTS = AGENTS | {"PPO with memory": partial(of_script, train_gru)}


class Result(NamedTuple):
    """A policy's scores under the held-out and under fresh seeds, and its status in both."""

    held_out: np.ndarray
    fresh: np.ndarray
    status: str


def score(policy: Policy, task: str, seeds: range) -> tuple[np.ndarray, str]:
    """Return the scores of a policy, one for each seed, and its status."""
    table = evaluate([policy], TASKS[task].scenario, seeds, progress=False)
    values = table[TASKS[task].measure].to_numpy()
    return normalized_score(task, values), table["status"][0]


def play(policy: Policy, task: str, fresh: range) -> Result:
    """Play the held-out and the fresh seeds; a status that is not ok counts first."""
    held_out, status = score(policy, task, SEEDS)
    new, new_status = score(policy, task, fresh)
    return Result(held_out, new, status if status != "ok" else new_status)


def tuned(name: str, task: str, choices: list[dict[str, float]]) -> Policy:
    """Return the policy with the best score among the choices with status ok."""
    scenario = TASKS[task].scenario
    rules = []
    for choice in choices:
        if "nu" in choice:
            policy = make_policy(name, scenario.replace(**choice))
        else:
            policy = make_policy(name, scenario, **choice)
        scores, status = score(policy, task, TUNING_SEEDS)
        rules.append((status == "ok", scores.mean(), policy))
    return max(rules, key=lambda rule: rule[:2])[2]


def trained(agent: str, task: str, seed: int, fresh: range) -> Result:
    """Train an agent with a seed, and play it."""
    model = (SAMPLING_AGENTS | BLIND_AGENTS)[agent](task, seed)
    return play(make_policy("predict", TASKS[task].scenario, model=model), task, fresh)


def interval(values: np.ndarray) -> tuple[float, float]:
    """Return the bootstrap interval of a mean."""
    if np.allclose(values, values[0]):
        return values[0], values[0]
    return stats.bootstrap((values,), np.mean, rng=0).confidence_interval


def text(values: np.ndarray) -> str:
    """Format a mean with its interval, if the values differ."""
    low, high = interval(values)
    return f"{values.mean():z.3f}" + (f" [{low:z.3f}, {high:z.3f}]" if low < high else "")


def row(runs: list[Result], lroa: Result) -> dict[str, str]:
    """Return a policy's row of its run, or of an agent's runs, one for each training seed."""
    bad = [run.status for run in runs if run.status != "ok"]
    if bad:
        seeds = f" with {len(bad)} of {len(runs)} seeds" if len(runs) > 1 else ""
        return {"status": bad[0] + seeds}
    axis = 1 if len(runs) > 1 else 0
    held_out = np.array([run.held_out for run in runs])
    fresh = np.array([run.fresh for run in runs])
    if np.isnan(fresh).any():
        return {"status": "no score, as it does not sample"}
    ahead = (fresh - lroa.fresh).mean(axis)
    low, high = interval(ahead)
    known_low, known_high = interval((held_out - lroa.held_out).mean(axis))
    return {
        "held-out seeds": text(held_out.mean(axis)),
        "fresh seeds": text(fresh.mean(axis)),
        "less LROA's": text(ahead),
        "status": "ok" if low <= known_high and known_low <= high else "differs on fresh seeds",
    }


@dataclass
class Settings:
    """Settings of the comparison."""

    task: tyro.conf.Positional[Literal["FLEdgePaper-v0", "FLEdgeLongest-v0", "FLEdgeBlind-v0"]]
    policies: tuple[str, ...] = ()
    """Other policies, such as mine.py:Mine."""
    first_seed: int | None = None
    """First of the ten fresh seeds, to repeat a comparison; otherwise drawn, and printed."""
    training_seeds: int = 5
    workers: int = 2


def main(settings: Settings) -> None:
    """Print the table of a task."""
    task = settings.task
    scenario = TASKS[task].scenario
    first = secrets.randbits(62) if settings.first_seed is None else settings.first_seed
    fresh = range(first, first + 10)
    sampling = scenario.objective == "penalty"
    others = {name: make_policy(name, scenario) for name in settings.policies}
    policies: dict[str, Policy] = {"Static": Static(scenario, TASKS[task].f, TASKS[task].p)}
    for name, choices in (RULES if sampling else BLIND_RULES).items():
        rule = make_policy(name, scenario)
        policies |= {rule.name: rule, f"{rule.name}, tuned": tuned(name, task, choices)}
    results = {name: [play(rule, task, fresh)] for name, rule in (policies | others).items()}
    agents = SAMPLING_AGENTS if sampling else BLIND_AGENTS
    jobs = [(agent, seed) for agent in agents for seed in range(settings.training_seeds)]
    played = Parallel(settings.workers)(delayed(trained)(a, task, s, fresh) for a, s in jobs)
    for (agent, _), result in zip(jobs, played, strict=True):
        results.setdefault(agent, []).append(result)
    (lroa,) = results["LROA"]
    # Best first under the fresh seeds, and those that are not ok last.
    scores = {name: np.mean([run.fresh for run in runs]) for name, runs in results.items()}
    order = sorted(results, key=lambda name: -np.nan_to_num(scores[name]))
    rows = {name: row(results[name], lroa) for name in order}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=COLUMNS).fillna("–")
    table = table.sort_values("status", key=lambda status: status != "ok", kind="stable")
    print(table.to_string())
    print(f"fresh seeds {first} to {first + 9}: --first-seed {first} repeats them")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
