"""Devices with different hardware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fl_edge_env.checks import natural_number, one_of, real_array
from fl_edge_env.scenario.phones import phone_factors
from fl_edge_env.scenario.scenario import Scenario
from fl_edge_env.typing import FloatArray

# Factors on a scenario's fields: an older phone, the scenario's own device, a newer phone.
HARDWARE_TIERS: tuple[Mapping[str, float], ...] = (
    {"f_min": 0.5, "f_max": 0.6, "p_max": 0.5, "capacitance": 1.5, "energy_budget_j": 0.7},
    {},
    {"f_max": 1.5, "p_max": 1.5, "capacitance": 0.7, "energy_budget_j": 1.3},
)


def with_tiers(
    scenario: Scenario,
    tiers: Sequence[Mapping[str, float]] = HARDWARE_TIERS,
    *,
    shares: Sequence[float] | None = None,
    seed: int = 0,
) -> Scenario:
    """Draw a hardware tier for each device and scale its fields.

    Parameters
    ----------
    scenario : Scenario
        The system to vary.
    tiers : sequence of mappings
        Factors on per-device fields for each tier; a field not named keeps its value.
    shares : sequence of float, optional
        Probability of each tier; equal by default.
    seed : int
        Seed of the draw.

    Returns
    -------
    Scenario

    Raises
    ------
    ValueError
        If there is no tier, the shares do not fit or a scaled value is wrong.
    TypeError
        If a name is not a field.

    Examples
    --------
    >>> mixed = with_tiers(Scenario.cifar10(), [{"f_max": 0.75}, {"p_max": 2.0}], seed=1)
    >>> sorted(set(mixed.f_max))
    [1500000000.0, 2000000000.0]
    """
    mappings = isinstance(tiers, Sequence) and all(isinstance(each, Mapping) for each in tiers)
    if not mappings or not tiers:
        raise ValueError(f"tiers must be one or more mappings of field to factor, got {tiers!r}")
    natural_number("seed", seed)
    odds = _odds(len(tiers), shares)
    tier = np.random.default_rng(seed).choice(len(tiers), scenario.num_devices, p=odds)
    fields = {}
    for name in sorted({name for factors in tiers for name in factors}):
        if name not in scenario.per_device_fields:
            raise TypeError(
                f"tiers may scale {', '.join(scenario.per_device_fields)}, got {name!r}"
            )
        factors = real_array(f"the factors on {name}", [each.get(name, 1.0) for each in tiers])
        fields[name] = getattr(scenario, name) * factors[tier]
    return scenario.replace(**fields)


def _odds(count: int, shares: Sequence[float] | None) -> FloatArray:
    """The probability of each tier, from their shares."""
    odds = np.ones(count) if shares is None else real_array("shares", shares)
    if odds.shape != (count,) or not (np.all(odds >= 0) and 0 < odds.sum() < np.inf):
        raise ValueError(
            f"shares must be {count} numbers of at least zero, one for each tier, got {shares!r}"
        )
    probabilities: FloatArray = odds / odds.sum()
    return probabilities


def with_phones(scenario: Scenario, *, seed: int = 0) -> Scenario:
    """Turn the devices into phones of measured speeds; the scenario's device is the median.

    Frequencies, capacitance and budget are scaled; see `fl_edge_env.scenario.phones`. `seed`, an
    integer of at least zero, seeds the draw.
    """
    natural_number("seed", seed)
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

    `tiers` is ``"hardware"`` (`with_tiers`) or ``"phones"`` (`with_phones`), `work` is ``"equal"``
    or ``"proportional"`` (`with_proportional_work`); None changes nothing. Raises `ValueError` for
    another name.
    """
    if tiers is not None:
        kinds = {"hardware": with_tiers, "phones": with_phones}
        scenario = kinds[one_of("tiers", tiers, list(kinds))](scenario)
    if work is not None and one_of("work", work, ("equal", "proportional")) == "proportional":
        scenario = with_proportional_work(scenario)
    return scenario
