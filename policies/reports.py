"""Costs of the reports of training by which a policy decides."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from fl_edge_env import Scenario
from fl_edge_env.scenario import REPORT_FIELDS
from policies.base import Policy

# A pass over the data forward alone, in passes forward and backward, which a training epoch is: to
# go backward takes about twice as much as to go forward (Kaplan et al., "Scaling laws for neural
# language models", 2020, section 2.1).
_FORWARD = 1 / 3
# Size of a number [bit]; a model has as many per parameter.
_NUMBER = 32.0


def report_costs(policy: Policy, scenario: Scenario) -> dict[str, float]:
    """The fields of a scenario by which the devices pay for what a policy asks them to report.

    - For gradients a device passes over its data once, forward and backward, and uploads as many
      bits as the model has: every device before the first round, and a participant in each round.
    - For losses a participant passes over its data once, forward, and uploads two numbers of 32
      bits, the mean and the root mean square.
    - For norms of updates every device trains once before the first round, for the mean number of
      local epochs, and uploads a number of 32 bits. Later norms are those of the updates, which
      the server has anyway.
    """
    costs = dict.fromkeys(REPORT_FIELDS, 0.0)
    reports = (  # whether it is asked for, when, passes over the data, and bits
        (policy.uses_gradients, "", 1.0, scenario.model_bits),
        (policy.uses_gradients, "first_", 1.0, scenario.model_bits),
        (policy.uses_losses, "", _FORWARD, 2 * _NUMBER),
        (policy.uses_update_norms, "first_", float(np.mean(scenario.local_epochs)), _NUMBER),
    )
    for asked_for, when, passes, bits in reports:
        if asked_for:
            costs[f"{when}report_passes"] += passes
            costs[f"{when}report_bits"] += bits
    return costs


def with_reports(scenario: Scenario, policy: Policy) -> Scenario:
    """The scenario in which a policy pays for what it asks the devices to report.

    Lambda and V stay as they are: the policy pays more for the same aims. A policy made with this
    scenario can be evaluated beside others in the one without reports, and pays there as well.

    Parameters
    ----------
    scenario : Scenario
        The system.
    policy : Policy
        Of any scenario; see `report_costs`.

    Returns
    -------
    Scenario
        The same object where the policy needs no reports.

    Examples
    --------
    >>> from policies import DivFL
    >>> scenario = Scenario.digits()
    >>> divfl = DivFL(with_reports(scenario, DivFL(scenario)))
    >>> divfl.scenario.report_passes, divfl.scenario.upload_bits / scenario.upload_bits
    (1.0, 2.0)
    """
    return _charged(scenario, report_costs(policy, scenario))


def system_of(policy: Policy, scenario: Scenario) -> Scenario:
    """The scenario that a policy is run in, with the costs of reports that it was made with.

    If the reports of the comparison's scenario cost something, they do so for every policy.
    """
    own = getattr(policy, "scenario", scenario)
    if own is scenario or any(_costs(scenario).values()):
        return scenario
    return _charged(scenario, _costs(own))


def describe_reports(scenario: Scenario) -> str:
    """Costs of reports in words; empty where they cost nothing."""
    told = []
    for name, when in (
        ("report", "of a participant in each round"),
        ("first_report", "of every device before the first"),
    ):
        passes, bits = (getattr(scenario, f"{name}_{unit}") for unit in ("passes", "bits"))
        if passes or bits:
            number = "1 pass" if math.isclose(passes, 1.0) else f"{passes:.2g} passes"
            told.append(f"{number} and {bits:,.0f} bits {when}")
    return " and ".join(told)


def _costs(scenario: Scenario) -> dict[str, float]:
    return {name: getattr(scenario, name) for name in REPORT_FIELDS}


def _charged(scenario: Scenario, costs: Mapping[str, float]) -> Scenario:
    if costs == _costs(scenario):
        return scenario
    return scenario.replace(**costs, lambda_=scenario.lambda_, V=scenario.V)
