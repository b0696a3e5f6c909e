"""Training an agent of Stable-Baselines3 to schedule the devices."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.progress import Progress

from policies.benchmark.options import shown
from train_fl.commands.options import SCENARIO_FIELDS, SystemOptions


@dataclass(frozen=True)
class Options:
    """Train an agent.

    If it is interrupted, the same command continues from the last validation. With a budget of
    rounds it ends in the same agent as without the kill.
    """

    system: SystemOptions = field(default_factory=SystemOptions)
    credit: str = "difference"
    """Reward of a device: difference (needs the system's model) or team."""
    seed: int = 0
    """Training seed."""
    train_rounds: Annotated[int | None, shown("INT", "20,000, unless --minutes is given")] = None
    """Rounds to train, all systems together."""
    minutes: Annotated[float | None, shown("FLOAT", "no limit")] = None
    """Minutes to train; the result depends on the machine."""
    num_envs: int = 8
    """Systems played at a time."""
    gamma: float = 0.0
    """Discount factor."""
    learning_rate: float = 1e-3
    """Learning rate at the start; it falls linearly to zero."""
    nu_factor: float = 0.97
    """Factor on the scenario's nu in training; less than one makes energy dearer."""
    empty_starts: float = 0.0
    """Share of training episodes that start with empty queues."""
    eval_every: int = 2_500
    """Rounds between two validations."""
    out: Annotated[Path | None, shown("PATH", "runs/agents/<scenario>-<agent>")] = None
    """Folder for runs; this one is seed-<seed> in it."""


def train(options: Options, console: Console) -> None:
    """Train the agent, with a progress bar."""
    # A wrong scenario is refused before Stable-Baselines3 is imported, which takes seconds.
    scenario = options.system.make_scenario(options.system.fields(SCENARIO_FIELDS))
    from policies.learning.settings import AgentSettings
    from policies.learning.training import Budget, train_agent
    from policies.learning.training import Progress as Report

    names = [field.name for field in fields(AgentSettings) if hasattr(options, field.name)]
    settings = AgentSettings(**{name: getattr(options, name) for name in names})
    rounds = options.train_rounds
    if rounds is None and options.minutes is None:
        rounds = 20_000
    budget = Budget(rounds=rounds, minutes=options.minutes)
    name = f"{Path(options.system.scenario).stem}-{settings.label.lower().replace(' ', '-')}"
    folder = (options.out or Path("runs/agents") / name) / f"seed-{options.seed}"
    with Progress(console=console) as bar:
        task = bar.add_task(settings.label, total=1.0)

        def show(report: Report) -> None:
            best = "" if math.isnan(report.penalty) else f", best {report.penalty:.5g} s"
            bar.update(task, completed=report.share, description=settings.label + best)

        every = options.eval_every
        policy = train_agent(settings, scenario, budget, folder, eval_every=every, on_progress=show)
    cost = policy.cost
    taken = f"{cost['rounds']:.0f} rounds in {cost['minutes']:.1f} minutes"
    console.print(f"{taken}; agent and history: {folder}", soft_wrap=True, highlight=False)
