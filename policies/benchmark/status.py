"""The status of a scheduler in a setting: whether it meets its constraints, over all its seeds.

A `records.Recorder` keeps the `DeviceAccounts` of each run, `comparison.collected` calls `judge`
once for all runs of a policy, and adds the note of `cannot_tell`.

Seeds are the independent replicates: within a run, rounds and devices depend on each other. A mean
over seeds is beyond a limit if its excess is statistically significant. The chance variation is the
spread over seeds, but no more than the channel causes: a policy that neglects different devices in
each run is responsible for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import pdtrik, stdtrit

from fl_edge_env.typing import BoolArray, FloatArray

OK = "ok"
OVER_BUDGET = "over budget"
LEAVES_OUT = "leaves out"
OVERWEIGHTS = "overweights"
TOO_SHORT = "too short"

# The limits: energy over the budget, of each device and in the mean of all; influence and
# participation of each device over its fair amount; the fraction of all participation that devices
# may lack together; the filled fraction of the cohort; the sum of the weights of a round; and the
# fair number of participations of each device in all runs together.
DEVICE_ENERGY = 1.10
ALL_ENERGY = 1.03
INFLUENCE = 0.5
PARTICIPATION = 0.5
LACKING = 0.05
FILLED = 0.9
WEIGHT = 1.1
ASKED = 2.0

# The limits of energy in the rounds until a target. They are wider than in the whole run, because
# virtual queues that start empty let a policy overspend at first: LROA by 9 % on the digits.
DEVICE_ENERGY_UNTIL_TARGET = 1.25
ALL_ENERGY_UNTIL_TARGET = 1.15

# In influence, a weight that a policy sets counts up to this many times w / rho. With the weight
# w / rho, a device that meets its participation target has exactly its data share in the aggregate.
# Without this limit, large weights could make up for devices that hardly ever take part.
MOST_WEIGHT = 1.25

# Chance comes in lumps of at most this many participations times the channel's coherence time. For
# energies from 1 to 40 J, the largest is about 4 times the mean. In the variance of many devices a
# lump counts half of that.
_LUMP = 4.0

# Each rule's probability of a false alarm for a scheduler that obeys it: 5 % in a table of fifteen.
LEVEL = 0.05 / 15


class DeviceAccounts(NamedTuple):
    """Accounts of S runs of a policy over all rounds, from which its status is judged.

    Attributes
    ----------
    energy : ndarray, shape (S, N)
        Energy of each device over its budget: the expected energy in rounds with a sampled cohort,
        which does not depend on chance, and the energy spent in the others.
    influence : ndarray, shape (S, N)
        Each device's weights in the aggregate, over its data shares in the rounds in which it is
        available: its share of the available data for a chosen cohort, of all data for draws, and
        at most of all data. A weight that the policy sets counts up to `MOST_WEIGHT`. 1 for a
        device that was never available.
    participation : ndarray, shape (S, N)
        Participations relative to `asked`.
    asked : ndarray, shape (S, N)
        A device's fair number of participations in a run: K times its share of the available data
        in each round in which it is available, but no more than for all data in all rounds.
    filled : ndarray, shape (S,)
        Number of participants over the possible cohort size, which is K or the number of available
        devices. For draws, the expected number of distinct devices, relative to draws in proportion
        to the data. Late devices do not count as participants.
    weight : ndarray, shape (S,)
        Mean over the rounds of the sum of the weights; for draws the expected sum, which is 1.
    lasting : ndarray, shape (S,)
        Rounds for which a device's good or bad channel lasts; 1 for gains independent over rounds.
    drawn : bool
        True if all decisions sampled their cohort, so `energy` does not depend on chance.
    """

    energy: FloatArray
    influence: FloatArray
    participation: FloatArray
    asked: FloatArray
    filled: FloatArray
    weight: FloatArray
    lasting: FloatArray
    drawn: bool


def joined(parts: Sequence[DeviceAccounts]) -> DeviceAccounts:
    """The accounts of a policy's runs in one table."""
    *arrays, drawn = zip(*parts, strict=True)
    return DeviceAccounts._make([*(np.concatenate(values) for values in arrays), all(drawn)])


class Milestones(NamedTuple):
    """The accounts of a run at each new highest test accuracy, to look up any target.

    Attributes
    ----------
    accuracy : ndarray, shape (M,)
        The accuracies, ascending.
    accounts : DeviceAccounts
        A row for each: the accounts of the rounds so far.
    """

    accuracy: FloatArray
    accounts: DeviceAccounts

    def until(self, target: float) -> DeviceAccounts | None:
        """The accounts up to the first round at the target, or None if it is never reached."""
        reached = np.flatnonzero(self.accuracy >= target)[:1]
        if not len(reached):
            return None
        *arrays, drawn = self.accounts
        return DeviceAccounts._make([*(values[reached] for values in arrays), drawn])


class Status(NamedTuple):
    """One of the names above, and a reason for the reader, empty for `OK`."""

    name: str
    reason: str


class Sensitivity(NamedTuple):
    """Excesses that chance could hide in a policy's runs: not significant as means over seeds.

    Attributes
    ----------
    device, together : float
        Largest energy of a device, and of all together, over the budget; infinite for one seed.
    influence : float
        Smallest influence of a device; minus infinity for one seed.
    """

    device: float
    together: float
    influence: float


def judge(accounts: DeviceAccounts, until_target: DeviceAccounts | None = None) -> Status:
    """The status of a policy by the accounts of its runs.

    A policy is over budget if a device spends more than 10 % over its budget, or all devices
    together more than 3 %. It leaves out devices if a device's influence is below one half, if its
    participation is below half of both its fair number and an even split, if devices together lack
    more than 5 % of their fair participation, or if less than 0.9 of the cohort is filled. It
    overweights if the weights of a round sum to more than 1.1 on average. The filled cohort, the
    weights, and the energies of a policy that always samples are judged without a test. Every other
    excess must be statistically significant, which takes at least two seeds.

    If the time to a target ranks the policies, the rounds until the target are judged as well, in
    the runs that reach it (`until_target`) and with wider limits of energy, 25 % and 15 %: later
    rounds cannot make up for them. Runs are too short to rank a policy if a device's fair number of
    participations is below two in all of them together.

    Notes
    -----
    An excess of all devices together is tested by a one-sided t-test over the seeds at `LEVEL`.
    Among N devices, some have seeds that agree by chance. So for a single device, the chance
    variation common to all devices must not explain the excess either, at ``LEVEL / N``. It is
    modelled as a Poisson number of lumps, whose size follows from the spread of all devices over
    seeds: one participation if cohorts are random, nearly nothing for round robin, 14
    participations for proportional fair scheduling if channels stay good for long. Both tests cap
    the variance at `_LUMP` times the channel's coherence time: otherwise a policy could spread its
    runs by preferring different devices in each.

    If devices exceed a limit only together, they are judged as a group: in each seed, the mean of
    the devices that exceed it on average in the other seeds. Missing participation is measured in
    the same way, by the devices that have too little in the other seeds: in participations, up to
    a whole number, or in influence if all decisions are draws, because weights make up for rare
    draws.

    Participations are whole numbers: a device's energy may be one participation per run above the
    budget, its influence and participation one in all runs below the limit.
    """
    pooled = accounts.asked.sum(axis=0)
    least = float(np.min(pooled, where=pooled > 0, initial=np.inf))
    status = _judge(accounts)
    if status.name == OK and least < ASKED:
        return Status(TOO_SHORT, f"too short: a device's fair share is {least:.2g} participations")
    if status.name == OK and until_target is not None:
        limits = DEVICE_ENERGY_UNTIL_TARGET, ALL_ENERGY_UNTIL_TARGET
        name, reason = _judge(until_target, *limits)
        return Status(name, f"until the target: {reason}" if reason else "")
    return status


def _judge(
    accounts: DeviceAccounts, device: float = DEVICE_ENERGY, together: float = ALL_ENERGY
) -> Status:
    """The status with these limits on the energy of a device and of all together."""
    energy, influence, participation = _rules(accounts, device)
    mean = accounts.energy.mean(axis=0)
    drawn = accounts.drawn
    if drawn:
        over = mean > device
        all_over = bool(accounts.energy.mean() > together)
    else:
        over = energy.beyond()
        excess_of_all = accounts.energy.mean() - together
        all_over = len(energy.ratio) > 1 and excess_of_all > _margin_together(energy)
    spends = []
    misses = []
    if over.any():
        excess = 100 * (mean[over].max() - 1)
        spends.append(f"{_some(over)} devices up to {excess:,.0f} % over budget")
    elif not drawn and energy.beyond_as_group():
        over = mean > energy.limit
        excess = 100 * (mean[over].mean() - 1)
        spends.append(f"{_some(over)} devices on average {excess:,.0f} % over budget")
    if all_over:
        spends.append(f"all devices on average {100 * (accounts.energy.mean() - 1):,.1f} % over")
    out = influence.beyond() | participation.beyond()
    if out.any():
        misses.append(f"leaves out {_some(out)}")
    else:
        for rule in (influence, participation):
            if not misses and rule.beyond_as_group():
                out = rule.ratio.mean(axis=0) < rule.limit
                misses.append(f"leaves out {_some(out)} as a group")
        if not misses and (lacking := _lacking(accounts)):
            misses.append(f"devices lack {100 * lacking:.0f} % of all participation")
    if accounts.filled.mean() < FILLED:
        misses.append(f"fills {100 * accounts.filled.mean():.0f} % of the cohort")
    weighs = []
    if accounts.weight.mean() > WEIGHT:
        weighs.append(f"weights of a round sum to {accounts.weight.mean():.2f}")
    name = OVER_BUDGET if spends else LEAVES_OUT if misses else OVERWEIGHTS if weighs else OK
    return Status(name, ", ".join(spends + misses + weighs))


def sensitivity(accounts: DeviceAccounts) -> Sensitivity:
    """Excesses that a policy's runs could hide; a device's by the common chance variation."""
    energy, influence, _ = _rules(accounts)
    several = len(accounts.energy) > 1
    least = float(influence.hidden().min()) if several else -np.inf
    if accounts.drawn:
        return Sensitivity(DEVICE_ENERGY, ALL_ENERGY, least)
    if not several:
        return Sensitivity(np.inf, np.inf, least)
    return Sensitivity(float(energy.hidden().max()), ALL_ENERGY + _margin_together(energy), least)


def cannot_tell(accounts: Sequence[DeviceAccounts]) -> str:
    """A note on excesses that chance could hide in the runs of policies that are ok, or empty."""
    if not accounts:
        return ""
    seeds = min(len(each.filled) for each in accounts)
    if seeds == 1:
        return "One seed cannot show whether an excess is chance: only expected energies count."
    bounds = [sensitivity(each) for each in accounts]
    device = max(each.device for each in bounds)
    together = max(each.together for each in bounds)
    influence = min(each.influence for each in bounds)
    hidden = []
    if device > 4 / 3:
        times = f"{device:.2g}" if device < 10 else "more than ten"
        hidden.append(f"a single device at {times} times its budget")
    if together > 1.05:
        hidden.append(f"all devices at {together:.3g} times theirs")
    if influence <= 0:
        hidden.append("a device left out")
    elif influence < 1 / 3:
        hidden.append(f"an influence of {100 * influence:.0f} %")
    if not hidden:
        return ""
    either = " or ".join(filter(None, [", ".join(hidden[:-1]), hidden[-1]]))
    return f"With {seeds} seeds, {either} could still be chance."


def _some(which: BoolArray) -> str:
    return f"{which.sum()} of {which.size}"


class _Rule(NamedTuple):
    """A limit on the means over seeds of the ratios of each device.

    Attributes
    ----------
    ratio : ndarray, shape (S, N)
        The ratios in each run.
    limit : ndarray, shape (N,)
        Limits of their means.
    sign : int
        1 for upper limits, -1 for lower ones.
    one : ndarray, shape (N,)
        The contribution of a participation to the ratio in a run.
    largest : float
        The largest lump of chance, in participations.
    """

    ratio: FloatArray
    limit: FloatArray
    sign: int
    one: FloatArray
    largest: float

    def beyond(self) -> BoolArray:
        """The devices whose means are significantly beyond their limits, shape (N,)."""
        if len(self.ratio) == 1:
            return np.zeros(len(self.limit), dtype=np.bool_)
        mean = self.ratio.mean(axis=0)
        most = self.largest * self.one * self.limit
        beyond: BoolArray = self.sign * (mean - self.limit) > _margin(self.ratio, most)
        beyond &= self.sign * (mean - self._by_lumps()) > 0
        return beyond

    def beyond_as_group(self) -> bool:
        """Whether devices that exceed their limits in the other seeds also do so in each seed.

        If all devices keep to their limits, this choice is independent of the chance variation in a
        seed. It takes three seeds: with two, each alone would choose for the other.
        """
        seeds = len(self.ratio)
        if seeds < 3:
            return False
        others = (self.ratio.sum(axis=0) - self.ratio) / (seeds - 1)
        chosen = self.sign * (others - self.limit) > 0
        number = np.maximum(chosen.sum(axis=1), 1)
        excess = self.sign * ((self.ratio - self.limit) * chosen).sum(axis=1) / number
        most = (self.largest / 2 * self.one * self.limit * chosen).sum(axis=1) / number**2
        return bool(excess.mean() > _margin(excess, float(most.mean())))

    def hidden(self) -> FloatArray:
        """The most extreme means over seeds that are not significant, if chance is in lumps."""
        # x = limit + sign t sqrt(lump x), the t-test, is a quadratic equation in sqrt(x).
        half = self.sign * _t(len(self.ratio)) * np.sqrt(self._lump()) / 2
        by_seeds = (half + np.sqrt(half**2 + self.limit)) ** 2
        return self.sign * np.maximum(self.sign * by_seeds, self.sign * self._by_lumps())

    def _lump(self) -> FloatArray:
        """Size of the lumps in the means over seeds, estimated from their spread; shape (N,)."""
        lumps = self.ratio.var(axis=0, ddof=1) / self.one  # in participations, times the ratio
        # Even without chance, the size stays large enough to compute a Poisson distribution.
        size = np.clip(lumps.mean() / max(self.ratio.mean(), 1e-9), 1e-3, self.largest)
        lump: FloatArray = size * self.one / len(self.ratio)
        return lump

    def _by_lumps(self) -> FloatArray:
        """The means farthest beyond the limits that a Poisson number of lumps explains."""
        lump = self._lump()
        level = LEVEL / lump.size
        mean = self.limit / lump
        number = np.add(pdtrik(1.0 - level, mean), 1.0) if self.sign > 0 else pdtrik(level, mean)
        farthest: FloatArray = np.asarray(number, np.float64) * lump
        return farthest


def _rules(accounts: DeviceAccounts, device: float = DEVICE_ENERGY) -> tuple[_Rule, _Rule, _Rule]:
    """The limits of energy (`device`, or one participation more), influence and participation."""
    asked = _asked(accounts)
    one = 1.0 / asked
    often = accounts.participation.mean(axis=0)
    # A participation costs less if a device participates more often than its fair number.
    each = accounts.energy.mean(axis=0) / np.maximum(often, 1e-9)
    one_energy = one * np.where(often > 0, np.clip(each, 1e-3, 1.0), 1.0)
    lump = _LUMP * float(accounts.lasting.max())
    most = np.maximum(device, 1.0 + one_energy)
    pooled = one / len(accounts.asked)
    least, rarest = (
        np.clip(1.0 - pooled, 0.0, top) for top in (INFLUENCE, PARTICIPATION * _even(asked))
    )
    return (
        _Rule(accounts.energy, most, 1, one_energy, lump),
        _Rule(accounts.influence, least, -1, one, lump),
        _Rule(accounts.participation, rarest, -1, one, lump),
    )


def _lacking(accounts: DeviceAccounts) -> float:
    """The fraction of all participation that devices lack; 0 unless it exceeds `LACKING`."""
    seeds, devices = accounts.asked.shape
    if seeds < 3:  # with two seeds, each alone would choose for the other
        return 0.0
    asked = _asked(accounts)
    got = accounts.influence
    least = np.ones(devices)
    if not accounts.drawn:
        even = _even(asked)
        got = accounts.participation / even
        least = np.floor(asked * even + 1e-9) / (asked * even)
    others = (got.sum(axis=0) - got) / (seeds - 1)
    lacking = ((least - got) * (others < least)).sum(axis=1) / devices
    most = _LUMP / 2 * float(accounts.lasting.max()) * float(np.mean(1.0 / asked)) / devices
    mean = float(lacking.mean())
    return mean if mean - LACKING > _margin(lacking, most) else 0.0


def _asked(accounts: DeviceAccounts) -> FloatArray:
    """Mean fair number of participations of each device in a run, shape (N,)."""
    asked: FloatArray = np.maximum(accounts.asked.mean(axis=0), 1e-9)
    return asked


def _even(asked: FloatArray) -> FloatArray:
    """An even split of the participations over each device's fair number, at most 1; (N,)."""
    even: FloatArray = np.minimum(1.0, asked.mean() / asked)
    return even


def _margin_together(energy: _Rule) -> float:
    """The excess over `ALL_ENERGY` of the mean of all devices that the t-test tolerates."""
    most = energy.largest / 2 * float(energy.one.mean()) * ALL_ENERGY / len(energy.one)
    return float(_margin(energy.ratio.mean(axis=1), most))


def _t(seeds: int) -> float:
    return float(stdtrit(seeds - 1, 1.0 - LEVEL))


def _margin(ratio: FloatArray, most: float | FloatArray) -> FloatArray:
    """The excess over a limit of a mean over seeds that the t-test tolerates.

    `most` is the largest variance in a run that chance explains.
    """
    variance = np.minimum(ratio.var(axis=0, ddof=1), most)
    margin: FloatArray = _t(len(ratio)) * np.sqrt(variance / len(ratio))
    return margin
