"""The accounts of each device over a policy's runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fl_edge_env.typing import FloatArray


class DeviceAccounts(NamedTuple):
    """Accounts of S runs of a policy, from which its status is judged.

    Attributes
    ----------
    energy : ndarray, shape (S, N)
        Energy that each device spent, over its budget.
    participation : ndarray, shape (S, N)
        Number of each device's participations. If a decision gives weights, one with less than the
        weight of the device's data share counts less. If all decisions are sampled, it is `fair`
        times the device's influence, as the weights of draws make up for rare ones.
    actual : ndarray, shape (S, N)
        Number of each device's participations, without these exceptions.
    weighted : ndarray, shape (S, N)
        The sum of each device's weights in the aggregate times K, which is its number of
        participations if each has the weight 1 / K.
    fair : ndarray, shape (S, N)
        Fair number of participations: in proportion to the data, but at most an even split.
    drawn, allowed : ndarray, shape (S, N)
        Mean number of participations in the lottery, and the number that the budget allows.
    filled, least_filled : ndarray, shape (S,)
        Number of participants over the lottery's, at most 1, and its limit. For draws, the expected
        number of distinct devices, relative to draws in proportion to the data. Late devices do not
        count as participants.
    """

    energy: FloatArray
    participation: FloatArray
    actual: FloatArray
    weighted: FloatArray
    fair: FloatArray
    drawn: FloatArray
    allowed: FloatArray
    filled: FloatArray
    least_filled: FloatArray

    def share(self) -> FloatArray:
        """Participations over their fair number, (S, N); 1 for a device never available."""
        return over_fair(self.participation, self.fair)

    def lack(self) -> FloatArray:
        """The mean over devices of what they lack of their fair participation, (S,)."""
        lack: FloatArray = np.maximum(1.0 - self.share(), 0.0).mean(axis=-1)
        return lack

    def excess(self) -> FloatArray:
        """The mean over devices of what they spend beyond their budgets, (S,)."""
        excess: FloatArray = np.maximum(self.energy - 1.0, 0.0).mean(axis=-1)
        return excess

    def together(self) -> DeviceAccounts:
        """The devices of all runs as of one run."""
        counts = ("participation", "actual", "weighted", "fair", "drawn", "allowed")
        sums = {name: getattr(self, name).sum(axis=0, keepdims=True) for name in counts}
        return self._replace(energy=self.energy.mean(axis=0, keepdims=True), **sums)


def joined(parts: Sequence[DeviceAccounts]) -> DeviceAccounts:
    """The accounts of a policy's runs in one table."""
    return DeviceAccounts._make(np.concatenate(values) for values in zip(*parts, strict=True))


def over_fair(number: FloatArray, fair: FloatArray) -> FloatArray:
    """Numbers over fair ones of the same shape; 1 for a device that was never available."""
    return np.divide(number, fair, out=np.ones(fair.shape), where=fair > 0)
