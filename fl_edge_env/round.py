"""What happened in a round."""

from __future__ import annotations

from typing import Any, NamedTuple

from fl_edge_env.typing import BoolArray, FloatArray, IntArray

# What a server does not know that knows the gains of participants alone: of any round, and of one
# whose cohort is drawn, in which anyone might have been.
_HIDDEN = {"device_time", "measured"}
_EXPECTED = _HIDDEN | {
    "energy_expected",
    "latency",
    "penalty",
    "drift",
    "reward_latency",
    "reward_drift",
}


class Round(NamedTuple):
    """Outcome of a round, for each of the B systems of a batch.

    For a single system the shapes have no B, and a quantity of shape (B,) is a number. The arrays
    are read-only. The accounts follow the kind of the decision, sampled or chosen (see
    `Allocation`). What is not defined is None.

    Where devices drop out, a sampled decision is renormalised: ``q_n 1[n is available]`` over its
    sum takes the place of q in every account, and the sampling error is a sum over the available
    devices. If the scenario's objective is the outcome, reward, costs and queues count what came of
    the round for both kinds of decision: `round_time`, `energy_spent`, and the participants.

    Attributes
    ----------
    cohort : ndarray of int, shape (B, K)
        The K devices drawn, of which one may appear more than once, or the devices chosen, then -1
        if they are fewer.
    device_time : ndarray, shape (B, N)
        Time each device takes, or would take, T_n [s], equation (9); at most the time at which the
        round ends without waiting, by the scenario's deadline or by the decision's `first`.
    round_time : ndarray, shape (B,)
        Longest time in the cohort [s].
    elapsed_time : ndarray, shape (B,)
        Sum of `round_time` since the reset [s].
    energy_expected : ndarray, shape (B, N)
        ``(1 - (1 - q_n)**K) E_n`` [J], equation (16); of a chosen cohort the energy spent.
    energy_spent : ndarray, shape (B, N)
        Energy of the devices in the cohort, zero for the others [J].
    latency : ndarray, shape (B,)
        What stands for the round time in the penalty [s]: the paper's proxy ``sum_n q_n T_n``, or
        with ``latency="round_time"`` the mean of `round_time` over the draw of the cohort from q;
        of a chosen cohort the `round_time`.
    reward_latency : ndarray, shape (B,)
        Term of the reward for the latency, ``-V latency`` [J^2]. If the objective is the outcome,
        ``-round_time / mean_time``, with the scenario's mean time: the whole reward, without unit.
    sampling_error : ndarray, shape (B,), or None
        ``sum_n w_n**2 / q_n``, equation (18); None for a chosen cohort, which is not sampled.
    penalty : ndarray, shape (B,), or None
        ``latency + lambda * sampling_error`` [s]; None for a chosen cohort.
    drift : ndarray, shape (B,), or None
        ``sum_n Q_n a_n``, with the queues at the start of the round [J^2], equation (24). None if
        the objective is the outcome.
    reward_sampling_error, reward_drift : ndarray, shape (B,), or None
        The other terms of the reward [J^2]: ``-V lambda sampling_error``, and ``-drift``. None if
        the objective is the outcome, and the first for a chosen cohort.
    cost : ndarray, shape (B,), or None
        Mean over the devices of the energy spent over the budget. None unless the objective is the
        outcome.
    costs : ndarray, shape (B, 2 N), or None
        For each device the energy spent over its budget, and then for each device ``2 - x / rho``,
        with x = 1 if it took part and was not late, and rho the share of the rounds in which it
        should. In the mean each must be at most 1. None unless the objective is the outcome.
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
    elapsed_time: FloatArray
    energy_expected: FloatArray
    energy_spent: FloatArray
    latency: FloatArray
    reward_latency: FloatArray
    sampling_error: FloatArray | None = None
    penalty: FloatArray | None = None
    drift: FloatArray | None = None
    reward_sampling_error: FloatArray | None = None
    reward_drift: FloatArray | None = None
    cost: FloatArray | None = None
    costs: FloatArray | None = None
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

        If it knows the gains of participants alone, the times of all devices are left out, and so
        is what is expected of a sampled round.
        """
        info = self.account()
        if self.measured is None:
            return info
        hidden = _HIDDEN if self.sampling_error is None else _EXPECTED
        return {name: value for name, value in info.items() if name not in hidden}

    @property
    def reward(self) -> FloatArray:
        """Sum of the terms of the reward that are defined, shape (B,).

        The negative drift-plus-penalty [J^2], ``-(V penalty + drift)`` of a sampled and ``-(V
        latency + drift)`` of a chosen decision. If the objective is the outcome, minus the time of
        the round over the scenario's mean time, of both.
        """
        reward = self.reward_latency
        for term in (self.reward_sampling_error, self.reward_drift):
            reward = reward if term is None else reward + term
        return reward
