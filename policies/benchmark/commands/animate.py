"""Policies side by side, round by round, as an animated GIF."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tyro
from PIL import Image
from rich.console import Console

from fl_edge_env import Simulator
from fl_edge_env.checks import integer_at_least
from fl_edge_env.files import atomic_path, writable_folder
from fl_edge_env.rendering import Dashboard
from fl_edge_env.streams import policy_seed
from policies.benchmark.bars import bars_shown
from policies.benchmark.options import ScenarioOptions
from policies.progress import track
from policies.registry import make_policy


@dataclass(frozen=True)
class Options:
    """Draw the rounds of policies that meet the same channel."""

    out: Path
    """GIF file to write."""
    system: tyro.conf.OmitArgPrefixes[ScenarioOptions] = field(
        default_factory=lambda: ScenarioOptions("cifar10", rounds=300)
    )
    policies: tuple[str, ...] = ("lroa", "uni-s")
    """Policies to draw, from left to right."""
    seed: int = 0
    """Seed of the episode."""
    every: int = 5
    """Number of rounds from one frame to the next."""


def animate(options: Options, console: Console) -> None:
    """Draw the rounds and write the GIF; `ValueError` if an option is wrong."""
    if options.out.suffix != ".gif":
        raise ValueError(f"out must end in .gif, got {str(options.out)!r}")
    writable_folder(options.out.parent)
    with bars_shown(console):
        first, *others = (picture.quantize(32) for picture in _frames(options))
    with atomic_path(options.out) as path:
        first.save(path, save_all=True, append_images=others, duration=200, loop=0)


def _frames(options: Options) -> list[Image.Image]:
    """A picture of all policies after every so many rounds."""
    scenario = options.system.make_scenario()
    if not 1 <= options.every <= scenario.num_rounds:
        raise ValueError(f"every must be 1 to {scenario.num_rounds} rounds, got {options.every}")
    integer_at_least(0, "seed", options.seed)
    if not options.policies:
        raise ValueError("policies must name at least one policy")
    runs = []
    for name in options.policies:
        policy, simulator = make_policy(name, scenario), Simulator(scenario)
        policy.reset(policy_seed(options.seed))
        simulator.reset([options.seed])
        dashboard = Dashboard(scenario, policy.name, size=(720, 600))
        dashboard.begin(simulator.observe())
        runs.append((policy, simulator, dashboard))
    pictures = []
    for played in track(range(1, scenario.num_rounds + 1), "drawing"):
        for policy, simulator, dashboard in runs:
            observation = simulator.observe()
            allocation = policy.decide(observation)
            outcome = simulator.advance(allocation)
            dashboard.record(observation, allocation, outcome)
        if played % options.every == 0:
            dashboards = [dashboard for _, _, dashboard in runs]
            row = [dashboard.draw(beside=dashboards) for dashboard in dashboards]
            pictures.append(Image.fromarray(np.hstack(row)))
    return pictures
