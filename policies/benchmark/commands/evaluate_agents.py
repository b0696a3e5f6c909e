"""Comparing trained agents with the analytic policies by the protocol in docs/protocol.md."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import tyro
from rich.console import Console

from fl_edge_env import Scenario
from policies.base import Policy
from policies.benchmark.console import PlainConsole
from policies.benchmark.experiment import Entrant, Results, Setting, run_settings
from policies.benchmark.options import RunOptions, ScenarioOptions
from policies.benchmark.protocol import (
    KNOWS_GAINS,
    RULES,
    TABLE_WIDTH,
    VALIDATION_SEEDS,
    analytic_policies,
    decision_time,
    method_table,
    printed_table,
    run_table,
    tuned,
    tuning_candidates,
)
from policies.benchmark.results_folder import (
    Kind,
    claimed,
    default_folder,
    described,
    reopened,
    write_csv,
)
from policies.opportunistic import Opportunistic

EVALUATION = Kind("evaluation of agents", ("agents.csv", "runs.csv"))


@dataclass(frozen=True)
class Options(RunOptions, ScenarioOptions):
    """Compare trained agents with LROA and Uni-D, as they are and tuned.

    For the objective outcome with Opportunistic, as it is and tuned, LROA and proportional fair.
    """

    agents: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Folders of trained agents, each with a run for every training seed."""
    scenario: str = "cifar10"
    """The system: digits, fashion_mnist, cifar10, femnist, cell, phones, mobile, or a TOML file."""
    seeds: int | None = None
    """Number of test seeds: 0, 1, 2, and so on; 30, for the objective outcome 10 by default."""


def evaluate_agents(options: Options, console: Console) -> None:
    """Tune the analytic policies, run all methods on the test seeds, and print the table.

    Raises `ValueError` for a wrong option and a folder that holds something else or in which
    another command is at work, `ModuleNotFoundError` where a package is not installed, and
    `JobsFailedError` if a run has failed.
    """
    options = reopened(options, EVALUATION)
    scenario = options.make_scenario()
    rules = RULES[scenario.objective]
    number = rules.seeds if options.seeds is None else options.seeds
    if not 1 <= number < VALIDATION_SEEDS[0]:
        raise ValueError(f"seeds must be from 1 to {VALIDATION_SEEDS[0] - 1}, got {number}")
    seeds = range(number)
    if scenario.objective == "penalty":
        _check_bounded(scenario)
    # Agents hold the queues of the outcome themselves, and LROA needs those of its paper.
    system = scenario.replace(objective="penalty")
    methods = {policy.name: [policy] for policy in analytic_policies(system, scenario.objective)}
    for folder in options.agents:
        methods |= _training_seeds(folder, system, taken=methods)
    candidates = tuning_candidates(system, scenario.objective)
    agents = [str(path) for folder in options.agents for path in sorted(folder.glob("seed-*"))]
    folder = options.out or default_folder(options, options.scenario, "-agents")

    def run(name: str, policies: Sequence[Policy], seeds: range, system: Scenario) -> Results:
        entrants = tuple(Entrant(policy.name, policy, system) for policy in policies)
        return run_settings([Setting(name, entrants, seeds)], folder, options, console)[0]

    with claimed(folder, EVALUATION, options, [described(scenario)], agents, console) as writes:
        validation = run("tuning", candidates, VALIDATION_SEEDS, system)
        best = tuned(candidates, validation.rounds, rules)
        kept = [policy.name for policy in best if policy.name in methods]
        methods |= {policy.name: [policy] for policy in best}
        policies = [policy for several in methods.values() for policy in several]
        test = run("test", policies, seeds, system)
        runs = run_table(test.rounds, rules)
        one = test.bounds.groupby("seed")["bound"].mean()
        if scenario.objective == "outcome":
            name = Opportunistic.name
            if system.csi != "full":
                name, system = KNOWS_GAINS, system.replace(csi="full")
                knowing = Opportunistic(system)
                knowing.name = name
                known = run("gains known", [knowing], seeds, system)
                runs = pd.concat([runs, run_table(known.rounds, rules)], ignore_index=True)
                methods[name] = [knowing]
            one = runs[runs["policy"] == name].set_index("seed")["cost"]
        rival = best[0].name
        names = {label: [policy.name for policy in several] for label, several in methods.items()}
        table = method_table(runs, names, one, rival, rules)
        if writes:
            write_csv(folder / "agents.csv", table)
            write_csv(folder / "runs.csv", runs)
    wide = PlainConsole(width=max(console.width, TABLE_WIDTH))
    wide.print(printed_table(table, _title(scenario, options), rival, rules))
    if kept:
        console.print(f"Tuning has kept {' and '.join(kept)} as the scenario has it.")
    for method, several in methods.items():
        console.print(_cost(method, several), soft_wrap=True, highlight=False)
        # All training seeds of a method have the same.
        if (origin := getattr(several[0], "trained_in", scenario)) != scenario:
            told = f"{method} was trained in another scenario: {_differences(origin, scenario)}."
            console.print(told, soft_wrap=True, highlight=False)
    console.print(f"Results: {folder}", soft_wrap=True)


def _check_bounded(scenario: Scenario) -> None:
    """Raise `ValueError` for a system without the bound that is score 1 for the penalty."""
    told = "the score of agents counts from a bound that needs"
    instead = "--objective outcome has another score"
    if scenario.deadline_s < math.inf:
        raise ValueError(
            f"{told} rounds without a deadline, got deadline_s = {scenario.deadline_s!r}: {instead}"
        )
    if scenario.drops_out:
        least = float(scenario.availability.min())
        raise ValueError(f"{told} availability = 1 for every device, got {least!r}: {instead}")


def _training_seeds(
    folder: Path, scenario: Scenario, taken: dict[str, list[Policy]]
) -> dict[str, list[Policy]]:
    """The agents in a folder, one for each training seed, under their common name."""
    from policies.learned import AGENT_FILE, SB3Policy

    paths = sorted(folder.glob(f"seed-*/{AGENT_FILE}"))
    if not paths:
        raise ValueError(
            f"{str(folder)!r} holds no trained agents: it must have folders seed-0, seed-1, ... "
            "with them, as train_sb3.py writes them"
        )
    policies = [SB3Policy.load(path, scenario) for path in paths]
    first = policies[0]
    label = first.settings.label
    for path, policy in zip(paths, policies, strict=True):
        if (dataclasses.replace(policy.settings, seed=0), policy.trained_in) != (
            dataclasses.replace(first.settings, seed=0),
            first.trained_in,
        ):
            told = _differences(policy.trained_in, first.trained_in)
            raise ValueError(
                f"{str(folder)!r} must hold one agent under several training seeds, but "
                f"{str(path.parent)!r} has other settings or another scenario than the first"
                + (f" ({told})" if told else "")
            )
        if not policy.cost.get("finished", True):
            raise ValueError(
                f"the training in {str(path.parent)!r} is not finished: give its command again"
            )
    seeds = [policy.settings.seed for policy in policies]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"{str(folder)!r} holds a training seed twice: {seeds}")
    if label in taken:
        raise ValueError(f"two folders hold the agent {label!r}: compare one at a time")
    return {label: list(policies)}


def _differences(one: Scenario, other: Scenario) -> str:
    """The fields in which a scenario differs from another, numbers with both values."""
    told = []
    ours, theirs = one.to_dict(), other.to_dict()
    for name in ours:
        if not np.array_equal(ours[name], theirs[name]):
            numbers = all(isinstance(value, (int, float)) for value in (ours[name], theirs[name]))
            told.append(f"{name} {ours[name]:g}, not {theirs[name]:g}" if numbers else name)
    return "; ".join(told)


def _cost(method: str, policies: Sequence[Policy]) -> str:
    """The time of a decision of a method, and of its trainings."""
    told = f"{method}: {1e3 * decision_time(policies[0]):.2f} ms a decision"
    if minutes := [cost["minutes"] for p in policies if (cost := getattr(p, "cost", None))]:
        told += f", {len(minutes)} trainings of {np.mean(minutes):.1f} minutes"
    return f"{told}."


def _title(scenario: Scenario, options: Options) -> str:
    """The title of the table."""
    told = [f"{Path(options.scenario).stem}, N = {scenario.num_devices}"]
    told += ["objective outcome"] if scenario.objective == "outcome" else []
    told += [f"channel {options.channel}"] if options.channel else []
    told += ["delayed channel state"] if scenario.csi == "delayed" else []
    told += ["gains of participants"] if scenario.csi == "participants" else []
    told += ["latency of the slowest"] if scenario.latency == "round_time" else []
    told += [f"tiers {options.tiers}"] if options.tiers else []
    told += ["the band shared out"] if scenario.bandwidth_split == "shared" else []
    for name in ("upload_failure", "mu", "nu", "cohort_size", "rounds"):
        value = getattr(options, name)
        told += [f"{name} {value:g}"] if value is not None else []
    return ", ".join(told)
