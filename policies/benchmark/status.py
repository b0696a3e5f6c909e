"""The status of a policy in a setting: whether it is no worse to devices than a fair lottery.

Overspending and leaving out cost a policy time, at the prices of the bound, and so its rank. The
status is for what no price makes good. docs/ranking.md has the rules.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import betaln, gammaincc, xlog1py, xlogy

from fl_edge_env.typing import BoolArray, FloatArray
from policies.benchmark.records import DeviceAccounts, over_fair

OK = "ok"
TOO_MANY = "too many"
OVER_BUDGET = "over budget"
LEAVES_OUT = "leaves out"
OVERWEIGHTS = "overweights"

# The most lack and excess in a run, over the lottery's; but `SLACK` is ok in any system.
IN_A_RUN = 1.5
# Over all runs, no device may miss more of its fair number, or spend more beyond its budget, unless
# the probability that any device of a lottery is as extreme exceeds `CHANCE`.
DEVICE = 0.5
CHANCE = 0.001
# This lottery lasts as many runs, but at most so many that verdicts hardly depend on the number.
MOST_RUNS = 3
# All devices together may spend this much beyond their budgets, and leave as many slots empty.
SLACK = 0.05
WEIGHT = 1.01  # the most of a round's sum of weights, on average
SHORT = 0.25  # the lottery's lack in runs that are noted as short


class Lottery(NamedTuple):
    """Draws of K distinct available devices a round, in proportion to their data.

    Each participation costs an exponentially distributed energy. Its mean is such that the device
    spends its budget on average. Devices that are never available do not count.

    Attributes
    ----------
    number, probability : ndarray, shape (M, N)
        Numbers of each device's participations, and their probabilities.
    mean, fair : ndarray, shape (N,)
        Mean and fair number of each device's participations.
    """

    number: FloatArray
    probability: FloatArray
    mean: FloatArray
    fair: FloatArray

    @classmethod
    def like(cls, accounts: DeviceAccounts, runs: int = 1) -> Lottery:
        """The lottery over a number of `runs` of the accounts' length."""
        seen = accounts.fair.any(axis=0)
        rounds, drawn, fair = (
            getattr(accounts, name).mean(axis=0)[seen] for name in ("rounds", "drawn", "fair")
        )
        chance = drawn / rounds
        tries = np.rint(runs * rounds)
        mean = tries * chance
        far = 10.0 + 6.0 * np.sqrt(mean * (1.0 - chance))
        number = np.maximum(np.floor(mean - far), 0.0) + np.arange(2.0 * far.max() + 2.0)[:, None]
        rest = np.maximum(tries - number, 0.0)
        log = xlogy(number, chance) + xlog1py(rest, -chance) - betaln(number + 1.0, rest + 1.0)
        binomial = np.where(number <= tries, np.exp(log) / (tries + 1.0), 0.0)
        return cls(number, binomial, mean, runs * fair)

    def lack(self) -> float:
        """The mean fraction of their fair participation that devices lack."""
        lack = np.maximum(1.0 - self.number / self.fair, 0.0)
        return float(self._expected(lack).mean())

    def excess(self) -> float:
        """The mean fraction by which devices exceed their budgets."""
        # The energies of b participations sum to a gamma variable G of shape b, in units of their
        # mean: E max(0, G - a) = b P(G' > a) - a P(G > a) with a G' of shape b + 1.
        more = self.number * gammaincc(self.number + 1.0, self.mean)
        excess = more / self.mean - gammaincc(self.number, self.mean)
        return float(self._expected(excess).mean())

    def chance_of_share(self, share: float) -> float:
        """The probability that a device gets at most this `share` of its fair number."""
        return self._any(self.number <= share * self.fair)

    def chance_of_energy(self, energy: float) -> float:
        """The probability that a device spends at least this `energy` over its budget."""
        return self._any(gammaincc(self.number, energy * self.mean))

    def _expected(self, values: FloatArray | BoolArray) -> FloatArray:
        return (self.probability * values).sum(axis=0)

    def _any(self, chance: FloatArray | BoolArray) -> float:
        """The probability of an event for any device, by each's chance given its number."""
        return float(1.0 - np.prod(1.0 - self._expected(chance)))


class Status(NamedTuple):
    """`OK` or the names of the faults, and a reason for the reader, empty for `OK`."""

    name: str
    reason: str


def judge(accounts: DeviceAccounts, weight: float) -> Status:
    """The status of a policy by the accounts of its runs, and the mean sum of a round's weights."""
    runs = Lottery.like(accounts, min(len(accounts.energy), MOST_RUNS))
    most_lack, most_excess = most_in_a_run(Lottery.like(accounts))
    lack = accounts.lack().mean()
    excess = accounts.excess().mean()
    spent = accounts.energy.mean(axis=0)
    most = spent.max()
    least = over_fair(accounts.participation.sum(axis=0), accounts.fair.sum(axis=0)).min()
    filled = accounts.filled.mean()
    faults = {}
    surplus = accounts.surplus.max()
    if surplus:
        faults[TOO_MANY] = f"a round has {surplus:.0f} devices more than K, so it has no price"
    if excess > most_excess:
        faults[OVER_BUDGET] = (
            f"devices exceed their budgets by {_percent(excess)} in a run, "
            f"above {_percent(most_excess)}"
        )
    elif most > 1.0 + DEVICE and runs.chance_of_energy(most) <= CHANCE:
        faults[OVER_BUDGET] = f"a device spends {_percent(most)} of its budget"
    elif spent.mean() > 1.0 + SLACK:
        faults[OVER_BUDGET] = f"all devices spend {_percent(spent.mean(), 1)} of their budgets"
    if lack > most_lack:
        faults[LEAVES_OUT] = (
            f"devices lack {_percent(lack)} of their fair participation in a run, "
            f"above {_percent(most_lack)}"
        )
    elif least < 1.0 - DEVICE and runs.chance_of_share(least) <= CHANCE:
        faults[LEAVES_OUT] = f"a device gets {_percent(least)} of its fair participation"
    elif filled < 1.0 - SLACK:
        faults[LEAVES_OUT] = f"{_percent(filled)} of the slots are filled"
    if weight > WEIGHT:
        faults[OVERWEIGHTS] = f"the weights of a round sum to {weight:.3f}"
    return Status(", ".join(faults) or OK, "; ".join(faults.values()))


def most_in_a_run(run: Lottery) -> tuple[float, float]:
    """The most lack and excess that are ok."""
    return max(IN_A_RUN * run.lack(), SLACK), max(IN_A_RUN * run.excess(), SLACK)


def limits(accounts: DeviceAccounts) -> str:
    """Say what a lottery lacks and exceeds in a run of the accounts' length, and what is ok."""
    run = Lottery.like(accounts)
    lack, excess = map(_percent, most_in_a_run(run))
    note = "Runs are short: in a run" if run.lack() > SHORT else "In a run"
    lottery = f"a lottery lacks {_percent(run.lack())} and exceeds by {_percent(run.excess())}"
    return f"{note}, {lottery}; ok up to {lack} and {excess}."


def _percent(value: float, decimals: int = 0) -> str:
    return f"{100 * value:.{decimals}f} %"
