"""What the reports of training cost that a policy decides by."""

from __future__ import annotations

import math
from collections.abc import Mapping

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
    """What the devices compute and upload for a policy beside training and updates.

    - For gradients a device passes over its data once, forward and backward, and uploads as many
      bits as the model has: every device before the first round, and a participant in each round.
    - For losses a participant passes over its data once, forward, and uploads two numbers of 32
      bits, the mean and the root mean square.
    - For norms of updates every device trains once before the first round, and uploads a number of
      32 bits. Later norms are those of the updates, which the server has anyway.

    Parameters
    ----------
    policy : Policy
        Says by `uses_gradients`, `uses_losses` and `uses_update_norms` what it needs.
    scenario : Scenario
        Supplies the size of the model and the local epochs.

    Returns
    -------
    dict
        Fields of a scenario: `report_passes` and `report_bits` in a round, `first_report_passes`
        and `first_report_bits` before the first.
    """
    costs = dict.fromkeys(REPORT_FIELDS, 0.0)
    if policy.uses_gradients:
        _add(costs, "", 1.0, scenario.model_bits)
        _add(costs, "first_", 1.0, scenario.model_bits)
    if policy.uses_losses:
        _add(costs, "", _FORWARD, 2 * _NUMBER)
    if policy.uses_update_norms:
        _add(costs, "first_", float(scenario.local_epochs), _NUMBER)
    return costs


def _add(costs: dict[str, float], when: str, passes: float, bits: float) -> None:
    costs[f"{when}report_passes"] += passes
    costs[f"{when}report_bits"] += bits


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

    Parameters
    ----------
    policy : Policy
        The policy.
    scenario : Scenario
        The system of a comparison. If its reports cost something, they do so for every policy.
    """
    own = getattr(policy, "scenario", scenario)
    if own is scenario or any(_costs(scenario).values()):
        return scenario
    return _charged(scenario, _costs(own))


def describe_reports(scenario: Scenario) -> str:
    """What reports cost in a scenario, in words; empty where they cost nothing.

    Parameters
    ----------
    scenario : Scenario
        The system.
    """
    told = [
        f"{_passes(passes)} and {bits:,.0f} bits {when}"
        for passes, bits, when in (
            (scenario.report_passes, scenario.report_bits, "of a participant in each round"),
            (
                scenario.first_report_passes,
                scenario.first_report_bits,
                "of every device before the first",
            ),
        )
        if passes or bits
    ]
    return " and ".join(told)


def _passes(passes: float) -> str:
    return "1 pass" if math.isclose(passes, 1.0) else f"{passes:.2g} passes"


def _costs(scenario: Scenario) -> dict[str, float]:
    return {name: getattr(scenario, name) for name in REPORT_FIELDS}


def _charged(scenario: Scenario, costs: Mapping[str, float]) -> Scenario:
    if costs == _costs(scenario):
        return scenario
    return scenario.replace(**costs, lambda_=scenario.lambda_, V=scenario.V)
