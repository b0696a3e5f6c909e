"""The status of a scheduler in a setting: within its constraints or not, over all its seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fl_edge_env.typing import FloatArray

OK, OVER_BUDGET, LEAVES_OUT = "ok", "over budget", "leaves out"


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
        A draw fills one.
    drawn : bool
        True if all decisions drew their cohort, so that `energy` has no luck.
    """

    energy: FloatArray
    influence: FloatArray
    participation: FloatArray
    asked: FloatArray
    filled: FloatArray
    drawn: bool


def joined(parts: Sequence[DeviceAccounts]) -> DeviceAccounts:
    """The accounts of the runs of several jobs of a policy."""
    *arrays, drawn = zip(*parts, strict=True)
    return DeviceAccounts._make([*(np.concatenate(values) for values in arrays), all(drawn)])


class Status(NamedTuple):
    """`OK`, `OVER_BUDGET` or `LEAVES_OUT`, and why, in words and numbers; empty where it is ok."""

    name: str
    reason: str


def cannot_tell(accounts: Sequence[DeviceAccounts]) -> str:
    """What the accounts of the policies of a table cannot tell from luck, in a sentence."""
    return ""


def judge(accounts: DeviceAccounts) -> Status:
    """The status of a policy by the accounts of its runs."""
    return Status(OK, "")
