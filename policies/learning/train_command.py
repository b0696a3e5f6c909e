"""Training an agent of Stable-Baselines3 to schedule the devices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from policies.benchmark.command_line import ScenarioOptions
from policies.progress import listening


@dataclass(frozen=True)
class Options(ScenarioOptions):
    """Train an agent.

    Killed at whatever moment, the same command goes on from the last validation. With a budget of
    rounds it ends in the same agent as without the kill.
    """

    scenario: str = "cifar10"
    """The system: digits, fashion_mnist, cifar10, femnist, cell, phones, or a TOML file."""
    algorithm: str = "ppo"
    """Algorithm: ppo, sac, td3."""
    view: str = "devices"
    """devices: decide for each device on its own; joint: for all together."""
    network: str | None = None
    """In the joint view mlp, or shared by the devices (PPO only), which is PPO's default."""
    credit: str = "difference"
    """Reward of a device: difference (needs the system's model), local or team."""
    seed: int = 0
    """Training seed."""
    train_rounds: int | None = None
    """Rounds to train, all systems together; by default as the view needs, without minutes."""
    minutes: float | None = None
    """Minutes to train; the result depends on the machine."""
    num_envs: int | None = None
    """Systems played at a time; as the view needs by default."""
    gamma: float = 0.0
    """Discount factor."""
    learning_rate: float = 1e-3
    """Learning rate at the start; it falls linearly to zero."""
    nu_factor: float | None = None
    """Factor on the scenario's nu in training; less than one values energy more, and moves the
    prices of the objective outcome faster."""
    imitation_rounds: int = 0
    """Of the rounds, those in which the agent first learns from one who knows all gains."""
    empty_starts: float = 0.0
    """Share of training episodes that start with empty queues."""
    eval_every: int | None = None
    """Rounds between two validations; as the view needs by default."""
    threads: int = 1
    """Threads of torch; another number may change the last digits."""
    tensorboard: bool = False
    """Write events for TensorBoard into the run's folder."""
    out: Path | None = None
    """Folder for runs, runs/agents/<scenario>-<agent> by default; this one is seed-<seed> in it."""


# For each view: systems at a time, factor on nu, rounds to train and between validations. Where
# the objective is the outcome the factor is 1.
SHIPPED = {"devices": (8, 0.97, 20_000, 2_500), "joint": (64, 0.92, 400_000, 50_000)}


def train(options: Options, console: Console) -> None:
    """Train the agent, with a progress bar.

    Parameters
    ----------
    options : Options
        The agent, the system and how long to train.
    console : rich.console.Console
        Where to print.

    Raises
    ------
    ValueError
        If an option is wrong.
    ModuleNotFoundError
        If torch or Stable-Baselines3 is not installed.
    """
    if options.network == "mlp" and options.view == "devices":
        raise ValueError(
            "--network mlp is for --view joint, and the view is 'devices', whose network is always "
            "a plain one that all devices share: give --view joint too, or leave --network out"
        )
    # Torch and Stable-Baselines3 take seconds to import, and a wrong scenario is told at once.
    scenario = options.make_scenario()
    from policies.learning.settings import AgentSettings
    from policies.learning.training import Budget, train_agent
    from policies.learning.training import Progress as Report

    network = options.network
    if network is None:
        network = "shared" if (options.algorithm, options.view) == ("ppo", "joint") else "mlp"
    num_envs, nu_factor, rounds, eval_every = SHIPPED.get(options.view, SHIPPED["devices"])
    episode: dict[str, Any] = {}
    if scenario.objective == "outcome":
        # Whole episodes: what is remembered of a device, and how old it is, takes so long to grow.
        nu_factor, episode = 1.0, {"episode_rounds": scenario.num_rounds}
    fields: dict[str, Any] = {  # `AgentSettings` tells what is wrong with a name
        "algorithm": options.algorithm,
        "view": options.view,
        "network": network,
        "credit": options.credit,
        "num_envs": num_envs if options.num_envs is None else options.num_envs,
        "gamma": options.gamma,
        "learning_rate": options.learning_rate,
        "nu_factor": nu_factor if options.nu_factor is None else options.nu_factor,
        "empty_starts": options.empty_starts,
        "imitation_rounds": options.imitation_rounds,
        "seed": options.seed,
    }
    settings = AgentSettings(**fields, **episode)
    if options.train_rounds is not None or options.minutes is not None:
        budget = Budget(rounds=options.train_rounds, minutes=options.minutes)
    else:
        budget = Budget(rounds=rounds)
    kind = "outcome-" if scenario.objective == "outcome" else ""
    name = f"{Path(options.scenario).stem}-{kind}{settings.label.lower().replace(' ', '-')}"
    folder = (options.out or Path("runs/agents") / name) / f"seed-{options.seed}"
    columns = (
        TextColumn(settings.label),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console) as bar, listening(None):  # one display at a time
        task = bar.add_task("", total=1.0)

        def show(report: Report) -> None:
            told = "" if report.penalty != report.penalty else f"best {report.penalty:.5g} s"
            bar.update(task, completed=report.share, description=told)

        policy = train_agent(
            settings,
            scenario,
            budget,
            folder,
            eval_every=eval_every if options.eval_every is None else options.eval_every,
            threads=options.threads,
            tensorboard=options.tensorboard,
            on_progress=show,
        )
    cost = policy.cost
    taken = f"{cost['rounds']:.0f} rounds in {cost['minutes']:.1f} minutes"
    console.print(
        f"{taken}; agent and history: {folder}",
        soft_wrap=True,
        highlight=False,
    )
