"""Policies by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from fl_edge_env import Scenario
from fl_edge_env.checks import did_you_mean
from policies import selection
from policies.base import Policy, without_future
from policies.divfl import DivFL
from policies.global_random import seeded
from policies.lroa import LROA
from policies.opportunistic import Opportunistic
from policies.resources import ResourceName, ResourceRule
from policies.selection import Scheduler, Selector
from policies.uniform import UniD, UniS
from policies.user_code import is_reference, load_reference, user_errors

SELECTORS: dict[str, type[Selector]] = {
    "random": selection.Random,
    "over-selection": selection.OverSelection,
    "round-robin": selection.RoundRobin,
    "best-channel": selection.BestChannel,
    "proportional-fair": selection.ProportionalFair,
    "fastest": selection.Fastest,
    "power-of-choice": selection.PowerOfChoice,
    "oort": selection.Oort,
    "adaptive-sampling": selection.AdaptiveSampling,
    "optimal-sampling": selection.OptimalSampling,
    "quickest": selection.Quickest,
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
} | {name: partial(_scheduler, kind) for name, kind in SELECTORS.items()}


def make_policy(name: str, scenario: Scenario, **options: Any) -> Policy:
    """Make a policy from a name, the file of a trained agent, or a user-defined class.

    Parameters
    ----------
    name : str
        One of `POLICIES`, or ``"my_file.py:MyPolicy"`` or ``"my_module:MyPolicy"`` for a subclass
        of `Policy` or `policies.selection.Selector`. A selector's name may end with its resources:
        ``"best-channel:static"``, ``"my_file.py:MySelector:static"``. ``"agent.zip"`` is an
        agent saved by Stable-Baselines3, and ``"predict"`` an agent of any library, passed as
        `model`; see `policies.agents.PredictPolicy`.
    scenario : Scenario
        The system it controls. The policy sees recorded gains without their order.
    **options
        Keywords of the policy's class; for a selector also `resources`, see `Scheduler`.

    Raises
    ------
    ValueError
        If there is no such policy, agent, class or option.
    """
    if not isinstance(name, str):
        raise ValueError(f"policy must be a name or the path of an agent as a string, got {name!r}")
    scenario = without_future(scenario)
    if name.lower().endswith(".zip") or name == "predict":
        from policies.agents import PredictPolicy

        if name != "predict":
            options = options | {"model": name}
        _check_options("predict", PredictPolicy, options)
        return PredictPolicy(scenario, **options)
    selector, _, resources = name.rpartition(":")
    if selector in SELECTORS or is_reference(selector):
        if options.get("resources", resources) != resources:
            raise ValueError(
                f"{name!r} contradicts resources={options['resources']!r}: give the resources once"
            )
        name = selector
        options = options | {"resources": resources}
    if name in POLICIES:
        _check_options(name, SELECTORS.get(name, POLICIES[name]), options)
        return POLICIES[name](scenario, **options)
    if is_reference(name) and name.partition(":")[0] not in POLICIES:
        kind: type[Policy] | type[Selector] = load_reference(
            name, kind="subclass of Policy or Selector", bases=(Policy, Selector)
        )
        _check_options(name, kind, options)
        maker = partial(_scheduler, kind) if issubclass(kind, Selector) else kind
        with user_errors(name), seeded(0):  # each process makes the same
            return maker(scenario, **options)
    raise ValueError(
        f"policy must be one of {', '.join(POLICIES)}, agent.zip of Stable-Baselines3, or "
        f"my_file.py:MyPolicy, got {name!r}"
        f"{': separate names with spaces' if ',' in name else did_you_mean(name, POLICIES)}"
    )


def _check_options(name: str, kind: Callable[..., object], options: Collection[str]) -> None:
    """Raise `ValueError` for options that a class does not have, or that it needs and lacks."""
    takes = list(inspect.signature(kind).parameters.values())[1:]  # without the scenario
    known = [
        each.name for each in takes if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ]
    if isinstance(kind, type) and issubclass(kind, Selector):
        known.append("resources")
    unknown = [option for option in options if option not in known]
    if unknown and not any(each.kind is each.VAR_KEYWORD for each in takes):
        instead = did_you_mean(unknown[0], known) or f": it has {', '.join(known) or 'none'}"
        raise ValueError(f"{name} has no option {unknown[0]!r}{instead}")
    for each in takes:
        if each.name in known and each.default is each.empty and each.name not in options:
            raise ValueError(f"{name} needs the option {each.name}")
