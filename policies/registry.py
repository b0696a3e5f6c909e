"""Policies by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fl_edge_env import Scenario
from fl_edge_env.checks import did_you_mean
from policies import selection
from policies.base import Policy
from policies.divfl import DivFL
from policies.lroa import LROA
from policies.opportunistic import Opportunistic
from policies.own import load_class, names_own, running_own
from policies.published import (
    FEDL,
    OCEAN,
    GreedyLatency,
    Hungarian,
    MinEnergy,
    UpdateAware,
)
from policies.resources import ResourceName, ResourceRule
from policies.selection import Scheduler, Selector
from policies.uniform import UniD, UniS

SELECTORS: dict[str, type[Selector]] = {
    "random": selection.Random,
    "over-selection": selection.OverSelection,
    "round-robin": selection.RoundRobin,
    "best-channel": selection.BestChannel,
    "proportional-fair": selection.ProportionalFair,
    "fastest": selection.Fastest,
    "ucb": selection.UpperConfidence,
    "thompson": selection.Thompson,
    "power-of-choice": selection.PowerOfChoice,
    "oort": selection.Oort,
    "adaptive-sampling": selection.AdaptiveSampling,
    "optimal-sampling": selection.OptimalSampling,
    "bc-bn2": UpdateAware,
    "greedy-latency": GreedyLatency,
}


def _scheduler(
    kind: type[Selector],
    scenario: Scenario,
    *,
    resources: ResourceName | ResourceRule | None = None,
    **options: Any,
) -> Policy:
    return Scheduler(kind(scenario, **options), resources=resources)


POLICIES: dict[str, Callable[..., Policy]] = {
    "lroa": LROA,
    "uni-d": UniD,
    "uni-s": UniS,
    "divfl": DivFL,
    "opportunistic": Opportunistic,
    "hungarian": Hungarian,
    "ocean": OCEAN,
    "fedl": FEDL,
    "min-energy": MinEnergy,
} | {name: partial(_scheduler, kind) for name, kind in SELECTORS.items()}


def make_policy(name: str, scenario: Scenario, **options: Any) -> Policy:
    """Make a policy from its name, a trained agent from its folder or file, or your own class.

    Parameters
    ----------
    name : str
        One of `POLICIES`, a path, or ``"my_file.py:MyPolicy"`` or ``"my_module:MyPolicy"`` for a
        subclass of `Policy` or `policies.selection.Selector`. The name of a selector may say its
        resources: ``"best-channel:static"``.
    scenario : Scenario
        The system it controls.
    **options
        Keywords of the policy's class; of a selector's too `resources`, see `Scheduler`.

    Raises
    ------
    ValueError
        If there is no policy of that name, no agent at that path and no such class.
    """
    selector, _, resources = name.partition(":")
    if resources and selector in SELECTORS:
        if options.get("resources", resources) != resources:
            raise ValueError(
                f"{name!r} names its resources: resources={options['resources']!r} does not fit"
            )
        name, options = selector, options | {"resources": resources}
    if name in POLICIES:
        return POLICIES[name](scenario, **options)
    if Path(name).exists():
        from policies.learned import SB3Policy

        return SB3Policy.load(name, scenario, **options)
    if names_own(name) and selector not in POLICIES:
        kind = load_class(name)
        with running_own(name):
            if issubclass(kind, Selector):
                return _scheduler(kind, scenario, **options)
            return kind(scenario, **options)
    raise ValueError(
        f"policy must be one of {', '.join(POLICIES)}, or the folder of a trained agent, "
        f"or my_file.py:MyPolicy, got {name!r}{did_you_mean(name, POLICIES)}"
    )
