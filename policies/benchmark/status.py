"""The status of a scheduler in a setting: within its constraints or not, over all its seeds.

Seeds are the independent replicates: within a run, rounds and devices depend on each other. The
mean over seeds is beyond a limit if it is so far beyond it that luck does not explain it. Luck is
what the seeds show, but no more than the channel brings: what a policy does to other devices in
each run is its own doing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import pdtrik, stdtrit

from fl_edge_env.typing import BoolArray, FloatArray

OK, OVER_BUDGET, LEAVES_OUT = "ok", "over budget", "leaves out"

# The limits: energy over the budget, of each device and in the mean of all; influence and
# participation of each device over what its data ask for; share of the places that are filled.
DEVICE_ENERGY, ALL_ENERGY = 1.10, 1.03
INFLUENCE, PARTICIPATION, FILLED = 0.5, 0.25, 0.9

# Luck comes in lumps of at most so many participations times the rounds that the luck with the
# channel lasts: of energies from 1 to 40 J, the largest is about 4 times the mean. In the variance
# of many devices a lump counts half of that.
_LUMP = 4.0

# Probability with which a rule takes the luck of a scheduler that keeps to it for an excess: 5 %
# in a table of fifteen.
LEVEL = 0.05 / 15


class DeviceAccounts(NamedTuple):
    """Accounts of S runs of a policy, over all rounds, that its status is judged by.

    Attributes
    ----------
    energy : ndarray, shape (S, N)
        Energy of each device over its budget: in the rounds in which the decision draws, the
        expected one, in which there is no luck, and in the others the energy spent.
    influence : ndarray, shape (S, N)
        Mean over the rounds of each device's weight in the aggregate, over its share of the data.
        Rounds in which it is not available do not count; 1 for a device that never was available.
    participation : ndarray, shape (S, N)
        Participations over those that the data weight asks for, of the same rounds.
    asked : ndarray, shape (S, N)
        Participations that the data weight asks for in a run.
    filled : ndarray, shape (S,)
        Share of the places of the rounds, K or as many as devices are available, that are filled.
        For draws the number of devices to expect, over that of draws in proportion to the data.
        Devices that are late fill no place, and take no part in the accounts above.
    lasting : ndarray, shape (S,)
        Rounds that the luck of a device lasts, 1 where gains are independent over the rounds.
    drawn : bool
        True if all decisions drew their cohort, so that `energy` has no luck.
    """

    energy: FloatArray
    influence: FloatArray
    participation: FloatArray
    asked: FloatArray
    filled: FloatArray
    lasting: FloatArray
    drawn: bool


def joined(parts: Sequence[DeviceAccounts]) -> DeviceAccounts:
    """The accounts of the runs of several jobs of a policy."""
    *arrays, drawn = zip(*parts, strict=True)
    return DeviceAccounts._make([*(np.concatenate(values) for values in arrays), all(drawn)])


class Status(NamedTuple):
    """`OK`, `OVER_BUDGET` or `LEAVES_OUT`, and why, in words and numbers; empty where it is ok."""

    name: str
    reason: str


class Sensitivity(NamedTuple):
    """What the runs of a policy could hide: means over seeds that luck may explain.

    Attributes
    ----------
    device : float
        Energy of a device over its budget, at most; infinite where one seed cannot tell.
    together : float
        The same of all together.
    influence : float
        That of a device, at least; minus infinity where one seed cannot tell.
    """

    device: float
    together: float
    influence: float


def judge(accounts: DeviceAccounts) -> Status:
    """The status of a policy by the accounts of its runs.

    It is over budget if a device spends more than 10 % over its budget, or all together more than
    3 %. It leaves out if the influence of a device is below a half, its participation below a
    quarter of what its data ask for and of an even share, or less than 0.9 of the places are
    filled. In the last there is no luck, nor in the energies of a policy that always draws, which
    are expected ones. All else counts as far as luck does not explain it, and takes two seeds at
    least.

    Notes
    -----
    What concerns all together is beyond a limit if a one-sided t-test over the seeds says so at
    `LEVEL`. Of N devices some have seeds that agree by chance. There the luck that all devices have
    in common must not explain it either, at ``LEVEL / N``. It is that of the number of lumps in a
    Poisson distribution, as where chance decides who takes part, and the spread of all devices over
    seeds tells the size of a lump: a participation where chance decides, nearly nothing for round
    robin, 14 participations for proportional fair scheduling where channels stay good for long.
    In both tests luck has its limit, `_LUMP` times as long as the channel's lasts: a policy
    that prefers other devices in each run spreads its runs as it likes.

    Devices that are beyond a limit together, but none alone, are judged as a group: in each seed
    the mean of those that are beyond it in the mean of the other seeds.

    A device can only take part a whole number of times: its limits are at least a participation
    from 1.
    """
    energy, influence, participation, _, filled, _, drawn = accounts
    limits = _device_limits(accounts)
    if drawn:
        over = energy.mean(axis=0) > DEVICE_ENERGY
        all_over = bool(energy.mean() > ALL_ENERGY)
    else:
        over = _beyond(energy, limits.energy, 1, limits.one_energy, limits.lump)
        together = energy.mean(axis=1)
        all_over = len(energy) > 1 and together.mean() - ALL_ENERGY > _margin(
            together, _most_together(limits)
        )
    out = _beyond(influence, limits.influence, -1, limits.one, limits.lump)
    out |= _beyond(participation, limits.participation, -1, limits.one, limits.lump)
    spends, misses = [], []
    if over.any():
        excess = 100 * (energy.mean(axis=0)[over].max() - 1)
        spends.append(f"{_some(over)} devices over, the worst {excess:,.0f} %")
    elif not drawn and _beyond_as_group(energy, limits.energy, 1, limits.one_energy, limits.lump):
        over = energy.mean(axis=0) > limits.energy
        excess = 100 * (energy.mean(axis=0)[over].mean() - 1)
        spends.append(f"{_some(over)} devices {excess:,.0f} % over in the mean")
    if all_over:
        spends.append(f"all together {100 * (energy.mean() - 1):,.1f} % over")
    if out.any():
        misses.append(f"leaves out {_some(out)}")
    elif _beyond_as_group(influence, limits.influence, -1, limits.one, limits.lump):
        misses.append(f"leaves out {_some(influence.mean(axis=0) < limits.influence)} as a group")
    if filled.mean() < FILLED:
        misses.append(f"fills {100 * filled.mean():.0f} % of the places")
    name = OVER_BUDGET if spends else LEAVES_OUT if misses else OK
    return Status(name, ", ".join(spends + misses))


def sensitivity(accounts: DeviceAccounts) -> Sensitivity:
    """What the runs of a policy could hide, in a device with the luck that all have in common."""
    energy, influence, *_, drawn = accounts
    limits = _device_limits(accounts)
    if len(energy) == 1:
        most = (DEVICE_ENERGY, ALL_ENERGY) if drawn else (np.inf, np.inf)
        return Sensitivity(*most, -np.inf)
    least = float(_hidden(influence, limits.influence, -1, limits.one, limits.lump).min())
    if drawn:
        return Sensitivity(DEVICE_ENERGY, ALL_ENERGY, least)
    device = _hidden(energy, limits.energy, 1, limits.one_energy, limits.lump).max()
    together = ALL_ENERGY + _margin(energy.mean(axis=1), _most_together(limits))
    return Sensitivity(float(device), float(together), least)


def cannot_tell(accounts: Sequence[DeviceAccounts]) -> str:
    """A sentence on what the luck of a table could hide, by the accounts of its policies.

    It tells of the policies that are ok, and is empty where nothing much can be hidden.
    """
    passed = [each for each in accounts if judge(each).name == OK]
    if not passed:
        return ""
    seeds = min(len(each.filled) for each in passed)
    if seeds == 1:
        return "One seed cannot tell luck from excess: only expected energies are judged."
    bounds = [sensitivity(each) for each in passed]
    device, together = max(each.device for each in bounds), max(each.together for each in bounds)
    influence = min(each.influence for each in bounds)
    hidden = []
    if device > 4 / 3:
        times = f"{device:.2g}" if device < 10 else "more than ten"
        hidden.append(f"a device that spends {times} times its budget")
    if together > 1.05:
        hidden.append(f"all that spend {together:.3g} times theirs together")
    if influence <= 0:
        hidden.append("a device that is left out")
    elif influence < 1 / 3:
        hidden.append(f"a device that counts {influence:.1g} of what its data ask for")
    if not hidden:
        return ""
    return f"With {seeds} seeds, luck could explain {' or '.join(hidden)}."


def _some(which: BoolArray) -> str:
    return f"{which.sum()} of {which.size}"


class _DeviceLimits(NamedTuple):
    """Limits of each device and what a participation adds to the ratios in a run, all (N,).

    And the largest lump of luck, in participations.
    """

    one: FloatArray
    one_energy: FloatArray
    energy: FloatArray
    influence: FloatArray
    participation: FloatArray
    lump: float


def _device_limits(accounts: DeviceAccounts) -> _DeviceLimits:
    asked = np.maximum(accounts.asked.mean(axis=0), 1e-9)
    one, often = 1.0 / asked, accounts.participation.mean(axis=0)
    # Less energy for devices that take part more often than their data ask for.
    each = accounts.energy.mean(axis=0) / np.maximum(often, 1e-9)
    one_energy = one * np.where(often > 0, np.clip(each, 1e-3, 1.0), 1.0)
    even = np.minimum(1.0, asked.mean() / asked)
    return _DeviceLimits(
        one,
        one_energy,
        np.maximum(DEVICE_ENERGY, 1.0 + one_energy),
        np.clip(1.0 - one, 0.0, INFLUENCE),
        np.clip(1.0 - one, 0.0, PARTICIPATION * even),
        _LUMP * float(accounts.lasting.max()),
    )


def _beyond(
    ratio: FloatArray, limit: FloatArray, sign: int, one: FloatArray, largest: float
) -> BoolArray:
    """Whether the means over seeds of ratios, shape (S, N), are beyond their limits, not by luck.

    The sign is 1 for upper limits and -1 for lower ones.
    """
    if len(ratio) == 1:
        return np.zeros(len(limit), dtype=np.bool_)
    mean = ratio.mean(axis=0)
    by_lumps = _by_lumps(_lump(ratio, one, largest), limit, sign)
    beyond: BoolArray = sign * (mean - limit) > _margin(ratio, largest * one * limit)
    beyond &= sign * (mean - by_lumps) > 0
    return beyond


def _beyond_as_group(
    ratio: FloatArray, limit: FloatArray, sign: int, one: FloatArray, largest: float
) -> bool:
    """Whether those that are beyond their limits in the other seeds are so in the mean of a seed.

    If all devices keep to their limits, which of them are chosen by the other seeds has no part in
    the luck of a seed. It takes three: of two seeds each alone would choose for the other.
    """
    seeds = len(ratio)
    if seeds < 3:
        return False
    chosen = sign * ((ratio.sum(axis=0) - ratio) / (seeds - 1) - limit) > 0
    number = np.maximum(chosen.sum(axis=1), 1)
    excess = sign * ((ratio - limit) * chosen).sum(axis=1) / number
    most = (largest / 2 * one * limit * chosen).sum(axis=1) / number**2
    return bool(excess.mean() > _margin(excess, float(most.mean())))


def _hidden(
    ratio: FloatArray, limit: FloatArray, sign: int, one: FloatArray, largest: float
) -> FloatArray:
    """The mean over seeds that is just not beyond, of devices whose variance is in lumps."""
    lump = _lump(ratio, one, largest)
    # x = limit + sign t sqrt(lump x), the t-test, is a quadratic equation in sqrt(x).
    half = sign * _t(len(ratio)) * np.sqrt(lump) / 2
    by_seeds = (half + np.sqrt(half**2 + limit)) ** 2
    return sign * np.maximum(sign * by_seeds, sign * _by_lumps(lump, limit, sign))


def _t(seeds: int) -> float:
    return float(stdtrit(seeds - 1, 1.0 - LEVEL))


def _margin(ratio: FloatArray, most: float | FloatArray) -> FloatArray:
    """How far beyond a limit the t-test lets the mean over seeds be.

    `most` is the variance in a run that luck explains at most.
    """
    variance = np.minimum(ratio.var(axis=0, ddof=1), most)
    margin: FloatArray = _t(len(ratio)) * np.sqrt(variance / len(ratio))
    return margin


def _most_together(limits: _DeviceLimits) -> float:
    return limits.lump / 2 * float(limits.one_energy.mean()) * ALL_ENERGY / len(limits.one)


def _lump(ratio: FloatArray, one: FloatArray, largest: float) -> FloatArray:
    """Size of the lumps of which the means over seeds consist, by their spread; shape (N,)."""
    lumps = ratio.var(axis=0, ddof=1) / one  # in participations, times the ratio
    # Without any luck they are still of a size that Poisson's distribution can be computed with.
    size = np.clip(lumps.mean() / max(ratio.mean(), 1e-9), 1e-3, largest)
    lump: FloatArray = size * one / len(ratio)
    return lump


def _by_lumps(lump: FloatArray, limit: FloatArray, sign: int) -> FloatArray:
    """The mean over seeds farthest beyond a limit that a Poisson number of lumps explains."""
    level, mean = LEVEL / lump.size, limit / lump
    number = pdtrik(1.0 - level, mean) + 1.0 if sign > 0 else pdtrik(level, mean)
    farthest: FloatArray = number * lump
    return farthest
