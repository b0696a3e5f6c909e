"""The outcome of a round."""

from __future__ import annotations

from typing import Any, NamedTuple

from fl_edge_env.typing import BoolArray, FloatArray, IntArray

# Fields hidden with ``csi="participants"``: in every round, and in sampled rounds, whose expected
# values depend on the gains of all devices.
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

    A single system has no axis B, and its quantities of shape (B,) are numbers. The arrays are
    read-only. The accounts follow the kind of the decision, sampled or chosen (see `Allocation`).
    Undefined fields are None.

    If devices drop out, a sampled decision is renormalised: every account uses q set to zero for
    unavailable devices and divided by its sum, and the sampling error sums over the available
    devices. With ``objective="outcome"``, reward, costs and queues of both kinds of decision count
    realised values: `round_time`, `energy_spent` and the participants.

    Attributes
    ----------
    cohort : ndarray of int, shape (B, K)
        The K devices drawn, possibly repeated, or the devices chosen, padded with -1 to K entries.
    device_time : ndarray, shape (B, N)
        Time T_n that each device takes, or would take [s], equation (9), capped at the end of the
        round if the scenario's deadline or the decision's `first` ends it early.
    round_time : ndarray, shape (B,)
        Longest time in the cohort [s].
    elapsed_time : ndarray, shape (B,)
        Sum of `round_time` since the reset [s].
    energy_expected : ndarray, shape (B, N)
        ``(1 - (1 - q_n)**K) E_n`` [J], equation (16); for a chosen cohort `energy_spent`.
    energy_spent : ndarray, shape (B, N)
        Energy of the devices in the cohort, zero for the others [J].
    latency : ndarray, shape (B,)
        Latency in the penalty [s]: the paper's proxy ``sum_n q_n T_n``, or with
        ``latency="round_time"`` the expected `round_time` over draws of the cohort from q; for a
        chosen cohort `round_time`.
    reward_latency : ndarray, shape (B,)
        Latency term of the reward, ``-V latency`` [J^2]. With ``objective="outcome"`` it is the
        whole reward, ``-round_time / mean_time`` with the scenario's mean time, dimensionless.
    sampling_error : ndarray, shape (B,), or None
        ``sum_n w_n**2 / q_n``, equation (18); None for a chosen cohort.
    penalty : ndarray, shape (B,), or None
        ``latency + lambda * sampling_error`` [s]; None for a chosen cohort.
    drift : ndarray, shape (B,), or None
        ``sum_n Q_n a_n``, with the queues at the start of the round [J^2], equation (24). None with
        ``objective="outcome"``.
    reward_sampling_error, reward_drift : ndarray, shape (B,), or None
        The other terms of the reward [J^2]: ``-V lambda sampling_error``, and ``-drift``. None with
        ``objective="outcome"``, the first also for a chosen cohort.
    cost : ndarray, shape (B,), or None
        Mean over devices of energy spent divided by budget. None unless ``objective="outcome"``.
    costs : ndarray, shape (B, 2 N), or None
        Each device's energy spent divided by its budget, then each device's ``2 - x / rho``: x is 1
        if it took part and was not late, otherwise 0, and rho is its
        `fl_edge_env.lyapunov.participation_target`. In the long run the mean of each must be at
        most 1; over R rounds, 1 + 1 / (R rho) allows for one participation. None unless
        ``objective="outcome"``.
    available : ndarray of bool, shape (B, N), or None
        Available devices; None if all always are.
    q : ndarray, shape (B, N), or None
        Sampling probabilities of the draw, zero for unavailable devices; None for a chosen cohort,
        or if all devices are always available.
    failed : ndarray of bool, shape (B, N), or None
        Devices of the cohort whose upload failed: they spent time and energy, but their updates are
        lost. None in scenarios without failures.
    late : ndarray of bool, shape (B, N), or None
        Devices of the cohort that had not finished when the round ended: they spent energy until
        then, but their updates are lost, and they count as absent, x = 0 in `costs`. None if the
        server waits for all, that is without a deadline and without `first` in the decision.
    measured : ndarray of bool, shape (B, N), or None
        Devices whose gain the server learned, the participants; None unless ``csi="participants"``.
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
        """All fields by name, except those that are None; for evaluation."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    def info(self) -> dict[str, Any]:
        """Fields that the server learns, by name, except those that are None.

        With ``csi="participants"`` the device times and, if the cohort was sampled, the expected
        values are left out.
        """
        info = self.account()
        if self.measured is None:
            return info
        hidden = _HIDDEN if self.sampling_error is None else _EXPECTED
        return {name: value for name, value in info.items() if name not in hidden}

    @property
    def reward(self) -> FloatArray:
        """Sum of the defined reward terms, shape (B,).

        The negative drift-plus-penalty [J^2]: ``-(V penalty + drift)`` for a sampled decision,
        ``-(V latency + drift)`` for a chosen one. With ``objective="outcome"`` it is
        ``-round_time / mean_time`` for both.
        """
        reward = self.reward_latency
        for term in (self.reward_sampling_error, self.reward_drift):
            reward = reward if term is None else reward + term
        return reward
