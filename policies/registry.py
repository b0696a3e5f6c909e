"""Policies by the names that command lines and tables use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fl_edge_env import Scenario
from policies.base import Policy
from policies.divfl import DivFL
from policies.lroa import LROA
from policies.opportunistic import Opportunistic
from policies.uniform import UniD, UniS

POLICIES: dict[str, Callable[..., Policy]] = {
    "lroa": LROA,
    "uni-d": UniD,
    "uni-s": UniS,
    "divfl": DivFL,
    "opportunistic": Opportunistic,
}


def make_policy(name: str, scenario: Scenario, **options: Any) -> Policy:
    """A policy by name, or a trained agent by its folder or file.

    Parameters
    ----------
    name : str
        ``"lroa"``, ``"uni-d"``, ``"uni-s"``, ``"divfl"``, ``"opportunistic"``, or a path.
    scenario : Scenario
        The system it controls.
    **options
        Keywords of the policy's class.

    Raises
    ------
    ValueError
        If there is no policy of that name and no agent at that path.
    """
    if name in POLICIES:
        return POLICIES[name](scenario, **options)
    if Path(name).exists():
        from policies.learned import SB3Policy

        return SB3Policy.load(name, scenario, **options)
    raise ValueError(
        f"policy must be one of {', '.join(POLICIES)}, or the folder of a trained agent, "
        f"got {name!r}"
    )
