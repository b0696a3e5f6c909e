"""Devices with different hardware."""

from __future__ import annotations

import numpy as np

from fl_edge_env.checks import one_of
from fl_edge_env.scenario.phones import phone_factors
from fl_edge_env.scenario.scenario import Scenario


def with_phones(scenario: Scenario, *, seed: int = 0) -> Scenario:
    """Turn the devices into phones of measured speeds; the scenario's device is the median.

    Frequencies, capacitance and budget are scaled; see `fl_edge_env.scenario.phones`. `seed`, an
    integer of at least zero, seeds the draw.
    """
    factors = phone_factors(scenario.num_devices, seed=seed)
    return scenario.replace(
        **{name: getattr(scenario, name) * factor for name, factor in factors.items()}
    )


def with_proportional_work(scenario: Scenario) -> Scenario:
    """Give each device work in proportion to its speed, with the same total work.

    At the largest frequencies all devices then compute for the same time, ``E_n c_n D_n / f_max_n``
    seconds. Lambda and V are recalibrated unless they are given.
    """
    samples_per_second = scenario.f_max / scenario.cycles_per_sample
    work = np.sum(scenario.local_epochs * scenario.num_samples)  # samples of all devices in a round
    share = samples_per_second / np.sum(samples_per_second)
    return scenario.replace(local_epochs=work * share / scenario.num_samples)


def with_named_devices(
    scenario: Scenario, *, tiers: str | None = None, work: str | None = None
) -> Scenario:
    """Change the devices by named options: first their `tiers`, then their `work`.

    `tiers` is ``"phones"`` (`with_phones`), `work` is ``"equal"`` or ``"proportional"``
    (`with_proportional_work`); None changes nothing. Raises `ValueError` for another name.
    """
    if tiers is not None and one_of("tiers", tiers, ["phones"]):
        scenario = with_phones(scenario)
    if work is not None and one_of("work", work, ("equal", "proportional")) == "proportional":
        scenario = with_proportional_work(scenario)
    return scenario
