"""What happened in a round."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fl_edge_env.checks import freeze
from fl_edge_env.typing import BoolArray, FloatArray, IntArray

# Means over the draw of a cohort in which anyone might have been: where gains are measured by
# participants alone, the server does not know them.
_EXPECTED = ("expected_round_time", "latency", "penalty", "drift", "reward_latency", "reward_drift")


class Round(NamedTuple):
    """Outcome of a round, for each of the B systems of a batch.

    For a single system the shapes have no B, and a quantity of shape (B,) is a number. The arrays
    are read-only. The accounts follow the kind of the decision, sampled or chosen (see
    `Allocation`).

    Where devices drop out, a sampled decision is renormalised: ``q_n 1[n is available]`` over its
    sum takes the place of q in every account, and the sampling error is a sum over the available
    devices. If the scenario's objective is the outcome, reward, drift and queues count what came of
    the round for both kinds of decision: `round_time`, `energy_spent`, and the participants.

    Attributes
    ----------
    cohort : ndarray of int, shape (B, K) or (B, k)
        The K devices drawn, of which one may appear more than once, or the k devices chosen,
        filled up with -1 where a system chose fewer.
    device_time : ndarray, shape (B, N)
        Time each device takes, or would take, T_n [s], equation (9); at most the time at which the
        round ends without waiting, by the scenario's deadline or by the decision's `first`.
    round_time : ndarray, shape (B,)
        Longest time in the cohort [s].
    expected_round_time : ndarray, shape (B,)
        Mean of `round_time` over the draw of the cohort from q [s]; of a chosen cohort the
        `round_time` itself.
    elapsed_time : ndarray, shape (B,)
        Sum of `round_time` since the reset [s].
    energy_expected : ndarray, shape (B, N)
        ``(1 - (1 - q_n)**K) E_n`` [J], equation (16); of a chosen cohort the energy spent.
    energy_spent : ndarray, shape (B, N)
        Energy of the devices in the cohort, zero for the others [J].
    latency : ndarray, shape (B,)
        What stands for the round time in the penalty [s]: the paper's proxy ``sum_n q_n T_n``,
        or `expected_round_time`, as the scenario says; of a chosen cohort the `round_time`.
    sampling_error : ndarray, shape (B,)
        ``sum_n w_n**2 / q_n``, equation (18); NaN for a chosen cohort, which is not sampled.
    penalty : ndarray, shape (B,)
        ``latency + lambda * sampling_error`` [s]; NaN for a chosen cohort.
    drift : ndarray, shape (B,)
        ``sum_n Q_n a_n``, with the queues at the start of the round [J^2], equation (24). Where
        the objective is the outcome, ``sum_n Q_n (energy spent - budget)_n + kappa sum_n Z_n
        (rho - x)_n``, with the participation queues Z, the targets rho, x = 1 for the
        participants that were not late, and kappa of `fl_edge_env.lyapunov.participation_weight`.
    reward_latency, reward_sampling_error, reward_drift : ndarray, shape (B,)
        The terms of the reward [J^2]; the second is NaN for a chosen cohort and where the
        objective is the outcome, and then left out of the sum.
    available : ndarray of bool, shape (B, N), or None
        Available devices; None in scenarios in which everyone always is.
    q : ndarray, shape (B, N), or None
        Probabilities that the cohort was drawn from, zero for the devices that were not available;
        None for a chosen cohort, and where everyone always is available.
    failed : ndarray of bool, shape (B, N), or None
        Devices of the cohort whose upload failed: they spent time and energy, and the server got
        nothing. None in scenarios without failures.
    late : ndarray of bool, shape (B, N), or None
        Devices of the cohort that were not finished when the round ended: they spent energy until
        then, and the server got nothing. In the terms of the outcome they took no part, x = 0.
        None where the server waits for all: without a deadline, and without `first` in the
        decision.
    measured : ndarray of bool, shape (B, N), or None
        Devices whose gain the server got to know, the participants; None in scenarios in which it
        knows all gains.
    """

    cohort: IntArray
    device_time: FloatArray
    round_time: FloatArray
    expected_round_time: FloatArray
    elapsed_time: FloatArray
    energy_expected: FloatArray
    energy_spent: FloatArray
    latency: FloatArray
    sampling_error: FloatArray
    penalty: FloatArray
    drift: FloatArray
    reward_latency: FloatArray
    reward_sampling_error: FloatArray
    reward_drift: FloatArray
    available: BoolArray | None = None
    q: FloatArray | None = None
    failed: BoolArray | None = None
    late: BoolArray | None = None
    measured: BoolArray | None = None

    def account(self) -> dict[str, Any]:
        """All that happened, by name, without the fields that are None, for evaluation."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    def info(self) -> dict[str, Any]:
        """All that the server gets to know, by name, without the fields that are None.

        Where it knows the gains of participants alone, the times and energies of the others are
        NaN, and so is what is expected of a sampled round.
        """
        info = self.account()
        if (measured := info.pop("measured", None)) is None:
            return info
        hidden = {"device_time": np.where(measured, self.device_time, np.nan)}
        if not np.isnan(self.sampling_error).any():
            hidden["energy_expected"] = np.where(measured, self.energy_expected, np.nan)
            hidden |= {name: np.full_like(info[name], np.nan)[()] for name in _EXPECTED}
        freeze(hidden.values())
        return info | hidden

    @property
    def reward(self) -> FloatArray:
        """Negative drift-plus-penalty [J^2], shape (B,).

        It is ``-(V penalty + drift)`` of a sampled and ``-(V latency + drift)`` of a chosen
        decision; where the objective is the outcome, ``-(V round_time + drift)`` of both.
        """
        sampling = self.reward_sampling_error
        return self.reward_latency + np.where(np.isnan(sampling), 0.0, sampling) + self.reward_drift
