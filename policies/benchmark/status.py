"""The status of a policy in a setting: whether it is no worse to devices than a fair lottery.

Overspending and leaving out cost a policy time, at the prices of the bound, and so its rank. The
status is for what no price makes good. It compares what devices lack of their fair participation,
and what they spend beyond their budgets, with a lottery of the same length. The lottery draws
devices in proportion to their data among those available, and each participation costs what the
budget allows. docs/ranking.md has the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import gammainc, gammaincc, pdtr

from fl_edge_env.typing import FloatArray
from policies.benchmark.records import DeviceAccounts, over_fair

OK = "ok"
OVER_BUDGET = "over budget"
LEAVES_OUT = "leaves out"
OVERWEIGHTS = "overweights"
TOO_SHORT = "too short"

# The most lack and excess in a run, over the lottery's; and the most beyond the lottery's.
IN_A_RUN = 1.5
LACK = 0.05
EXCESS = 0.03
# Chance allows this many standard deviations of the lottery's mean, where these are more.
CHANCE = 4.0
# Over all runs: the most energy of all devices, and of each; the least participation of each. A
# single device must also be beyond all devices of lotteries, but for this probability.
ALL_ENERGY = 1.03
DEVICE_ENERGY = 1.1
DEVICE_PARTICIPATION = 0.5
# The most lack of actual participations beyond the lottery's, if weights make up for rare ones.
RARE = 0.15
LEVEL = 0.001
# Energies of participations differ with the channel, as much as exponential ones at most. The sum
# of such energies varies like that of half as many participations, each of this size. That of all
# devices varies half as much, as the number of all their participations is given.
ENERGY_DISPERSION = 2.0
WEIGHT = 1.1  # the most of a round's sum of weights, on average
SHORTEST = 0.25  # the most that the lottery lacks in a run


class Lottery(NamedTuple):
    """The lack or the excess of lotteries as long as each run: mean and standard deviation."""

    mean: FloatArray  # (S,)
    deviation: FloatArray


def lack_of_lottery(accounts: DeviceAccounts) -> Lottery:
    """The lack of lotteries, whose numbers of participations are taken as Poisson."""
    return _over_devices(*_shortfall(accounts.drawn, accounts.fair))


def excess_of_lottery(accounts: DeviceAccounts) -> Lottery:
    """The excess of lotteries, whose participations cost what the budget allows on average."""
    drawn = accounts.drawn / ENERGY_DISPERSION
    allowed = accounts.allowed / ENERGY_DISPERSION
    mean, square = _shortfall(drawn, allowed)
    ratio = drawn / allowed
    both_sides = ratio / allowed + (1.0 - ratio) ** 2
    return _over_devices(mean + ratio - 1.0, both_sides - square)


def _shortfall(mean: FloatArray, whole: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and mean square of ``max(0, 1 - X / whole)`` for Poisson numbers X of this mean."""
    some = whole > 0
    whole = np.where(some, whole, 1.0)
    most = np.ceil(whole) - 1.0  # of the numbers below `whole`
    # The sums of P(k), k P(k) and k (k - 1) P(k) over these, relative to powers of `whole`.
    zeroth, first, second = (
        (mean / whole) ** less * np.where(most >= less, pdtr(np.maximum(most - less, 0), mean), 0)
        for less in range(3)
    )
    return some * (zeroth - first), some * (zeroth - 2 * first + second + first / whole)


def _over_devices(mean: FloatArray, square: FloatArray) -> Lottery:
    """The mean over devices, of which each is drawn independently."""
    devices = mean.shape[-1]
    variance = np.maximum(square - mean**2, 0.0).sum(axis=-1) / devices**2
    return Lottery(mean.mean(axis=-1), np.sqrt(variance))


class Status(NamedTuple):
    """`OK` or the names of the faults, and a reason for the reader, empty for `OK`."""

    name: str
    reason: str


def judge(accounts: DeviceAccounts, weight: float) -> Status:
    """The status of a policy by the accounts of its runs, and the mean sum of a round's weights."""
    whole = accounts.together()
    too_heavy = f"the weights of a round sum to {weight:.2f}" if weight > WEIGHT else ""
    reasons = {
        OVER_BUDGET: _uneven(accounts, whole, *_OF_EXCESS) or _overspending(whole),
        LEAVES_OUT: _uneven(accounts, whole, *_OF_LACK) or _leaving_out(whole),
        OVERWEIGHTS: too_heavy,
    }
    faults = [name for name, reason in reasons.items() if reason]
    shortest = float(lack_of_lottery(accounts).mean.mean())
    if not faults and shortest > SHORTEST:
        return Status(TOO_SHORT, f"in runs this short, a lottery lacks {100 * shortest:.0f} %")
    return Status(", ".join(faults) or OK, "; ".join(filter(None, reasons.values())))


# A measure of runs, the lottery's, the slack, and a message with the value and the runs.
_OF_EXCESS = (
    DeviceAccounts.excess,
    excess_of_lottery,
    EXCESS,
    "devices exceed their budgets by {:.0f} % {}",
)
_OF_LACK = (
    DeviceAccounts.lack,
    lack_of_lottery,
    LACK,
    "devices lack {:.0f} % of their fair participation {}",
)


def _uneven(
    accounts: DeviceAccounts,
    whole: DeviceAccounts,
    measure: Callable[[DeviceAccounts], FloatArray],
    lottery_of: Callable[[DeviceAccounts], Lottery],
    slack: float,
    message: str,
) -> str:
    """How a policy is more uneven than a lottery, in each run or in all together, or empty."""
    cases = (accounts, IN_A_RUN, "in a run"), (whole, 1.0, "over all runs")
    for runs, factor, when in cases:
        value = float(measure(runs).mean())
        lottery = lottery_of(runs)
        mean = float(lottery.mean.mean())
        deviation = float(np.sqrt(np.sum(lottery.deviation**2))) / len(lottery.mean)
        if value > max(factor * mean, mean + slack, mean + CHANCE * deviation):
            return f"{message.format(100 * value, when)}, {100 * mean:.0f} % in a fair lottery"
    return ""


def _overspending(whole: DeviceAccounts) -> str:
    """How all devices or single ones spend too much over all runs; empty if they do not."""
    devices = whole.energy.size
    variance = (ENERGY_DISPERSION - 1.0) * np.sum(whole.drawn / whole.allowed**2)
    deviation = float(np.sqrt(variance)) / devices
    spent = float(whole.energy.mean())
    if spent > max(ALL_ENERGY, 1.0 + CHANCE * deviation):
        return f"all devices together spend {100 * spent - 100:.1f} % over budget"
    chance = gammainc(
        whole.energy * whole.allowed / ENERGY_DISPERSION, whole.drawn / ENERGY_DISPERSION
    )
    over = whole.energy[(whole.energy > DEVICE_ENERGY) & (chance < LEVEL / devices)]
    if over.size:
        return f"{over.size} of {devices} devices spend up to {100 * over.max() - 100:.0f} % more"
    return ""


def _leaving_out(whole: DeviceAccounts) -> str:
    """How single devices are left out over all runs, or places stay empty; empty if none are."""
    devices = whole.fair.size
    # Lost uploads and absent devices can lower all weights, which leaves nobody out.
    kept = min(float(whole.weighted.sum() / whole.fair.sum()), 1.0)
    weighted = whole.weighted / max(kept, 1e-300)
    share = over_fair(np.minimum(whole.participation, weighted), whole.fair)
    chance = gammaincc(kept * share * whole.fair + 1.0, kept * whole.fair)
    out = share[(share < DEVICE_PARTICIPATION) & (chance < LEVEL / devices)]
    if out.size:
        return f"{out.size} of {devices} devices get down to {100 * out.min():.0f} % of their share"
    rare = float(whole._replace(participation=whole.actual).lack()[0])
    lottery = float(lack_of_lottery(whole).mean[0])
    if rare > lottery + RARE:
        return f"devices lack {100 * rare:.0f} % of their turns, {100 * lottery:.0f} % in a lottery"
    filled = float(whole.filled.mean())
    short = filled < whole.least_filled.max()
    return f"fills {100 * filled:.0f} % of the cohort" if short else ""
