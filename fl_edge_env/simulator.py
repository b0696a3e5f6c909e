"""The federated round, for a batch of independent systems.

This is the only implementation of the round: the single and the vector environment and the
evaluation without training all call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fl_edge_env import lyapunov, physics
from fl_edge_env.allocation import Allocation
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray, IntArray

# Channel gains are drawn ahead, this many numbers at a time for each system.
_BLOCK_NUMBERS = 1 << 14


class Round(NamedTuple):
    """What happened in a round, for each of the B systems of a batch.

    Attributes
    ----------
    cohort : ndarray of int, shape (B, K)
        The devices drawn; a device may appear more than once.
    device_time : ndarray, shape (B, N)
        Time each device takes, or would take, T_n [s].
    round_time : ndarray, shape (B,)
        Longest time in the cohort [s].
    expected_round_time : ndarray, shape (B,)
        Mean of `round_time` over the draw of the cohort from q [s].
    elapsed_time : ndarray, shape (B,)
        Sum of `round_time` since the reset [s].
    energy_expected : ndarray, shape (B, N)
        ``(1 - (1 - q_n)**K) E_n`` [J].
    energy_spent : ndarray, shape (B, N)
        Energy of the devices in the cohort, zero for the others [J].
    latency : ndarray, shape (B,)
        The paper's proxy of the round time, ``sum_n q_n T_n`` [s].
    sampling_error : ndarray, shape (B,)
        ``sum_n w_n**2 / q_n``.
    penalty : ndarray, shape (B,)
        ``latency + lambda * sampling_error`` [s].
    drift : ndarray, shape (B,)
        ``sum_n Q_n a_n``, with the queues at the start of the round [J^2].
    reward_terms : dict of ndarray, shape (B,)
        The parts ``latency``, ``sampling_error`` and ``drift`` whose sum is the reward.
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
    reward_terms: dict[str, FloatArray]

    @property
    def reward(self) -> FloatArray:
        """Negative drift-plus-penalty, ``-(V penalty + drift)`` [J^2], shape (B,)."""
        terms = self.reward_terms
        return terms["latency"] + terms["sampling_error"] + terms["drift"]


class _Streams:
    """The random numbers of one system: each episode has its own channel and cohort stream.

    The streams of an episode come from one seed sequence, and do not depend on the decisions:
    every policy meets the same channel under the same seed.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._root = np.random.SeedSequence()
        self._block_rounds = max(
            1, min(scenario.num_rounds + 1, _BLOCK_NUMBERS // scenario.num_devices)
        )

    def start_episode(self, seed: int | None) -> None:
        if seed is not None:
            self._root = np.random.SeedSequence(seed)
        channel, cohort, self.training = self._root.spawn(1)[0].spawn(3)
        self._channel = np.random.default_rng(channel)
        self._cohort = np.random.default_rng(cohort)
        self._drawn, self._left = 0, 0
        self._gains: FloatArray | None = None

    def next_round(self) -> tuple[FloatArray, FloatArray]:
        """Gains of the next round, shape (N,), and the uniform numbers of its K draws."""
        scenario = self._scenario
        if self._gains is None or self._left == 0:
            self._gains = scenario.channel.draw(
                self._channel,
                self._block_rounds,
                scenario.num_devices,
                first_round=self._drawn,
                previous=None if self._gains is None else self._gains[-1],
            )
            self._uniforms = self._cohort.random((self._block_rounds, scenario.cohort_size))
            self._drawn += self._block_rounds
            self._left = self._block_rounds
        self._left -= 1
        return self._gains[-self._left - 1], self._uniforms[-self._left - 1]


class Simulator:
    """A batch of B independent systems of one scenario.

    Parameters
    ----------
    scenario : Scenario
        The system.
    num_envs : int
        Batch size B.
    """

    def __init__(self, scenario: Scenario, num_envs: int = 1) -> None:
        self.scenario = scenario
        self.num_envs = num_envs
        shape = (num_envs, scenario.num_devices)
        self.channel_gain = np.zeros(shape)
        self.queue = np.zeros(shape)
        self.round_index = np.zeros(num_envs, dtype=np.int64)
        self.elapsed_time = np.zeros(num_envs)
        self._draws = np.zeros((num_envs, scenario.cohort_size))
        self._batch_index = np.arange(num_envs)[:, None]
        self._streams = [_Streams(scenario) for _ in range(num_envs)]

    def reset(self, seeds: Sequence[int | None], mask: BoolArray | None = None) -> None:
        """Start a new episode: empty queues, the first channel gains.

        Parameters
        ----------
        seeds : sequence of int or None, length B
            Seed of each system; None goes on to the next episode of the seed given last.
        mask : ndarray of bool, shape (B,), optional
            The systems to reset; all by default.
        """
        for index in self._rows(mask):
            self._streams[index].start_episode(seeds[index])
            self.queue[index] = 0.0
            self.round_index[index] = 0
            self.elapsed_time[index] = 0.0
            self.channel_gain[index], self._draws[index] = self._streams[index].next_round()

    def _rows(self, mask: BoolArray | None) -> Iterable[int]:
        return range(self.num_envs) if mask is None else np.flatnonzero(mask).tolist()

    def training_seed(self, index: int = 0) -> np.random.SeedSequence:
        """Seed of the training stream in the present episode of one system."""
        return self._streams[index].training

    def observe(self) -> dict[str, FloatArray]:
        """Channel gains and queues [J], arrays of shape (B, N) that later rounds do not change."""
        return {"channel_gain": self.channel_gain.copy(), "queue": self.queue.copy()}

    @property
    def done(self) -> BoolArray:
        """Whether each system has played all its rounds, shape (B,)."""
        return self.round_index >= self.scenario.num_rounds

    def advance(self, allocation: Allocation, mask: BoolArray | None = None) -> Round:
        """Play one round.

        Parameters
        ----------
        allocation : Allocation
            The decision, with fields of shape (B, N).
        mask : ndarray of bool, shape (B,), optional
            The systems whose state moves on; all by default. The result covers all.

        Returns
        -------
        Round

        Raises
        ------
        ValueError
            If the decision is not valid in this scenario.
        """
        scenario = self.scenario
        allocation.validate(scenario)
        if allocation.f.shape != self.queue.shape:
            raise ValueError(
                f"f, p and q must have shape {self.queue.shape}, got {allocation.f.shape}"
            )
        q = allocation.q
        device_time, device_energy = physics.time_and_energy(
            self.channel_gain, allocation.f, allocation.p, scenario
        )
        energy_expected, excess = lyapunov.energy_excess(q, device_energy, scenario)
        cohort = self._draw_cohort(q) if allocation.cohort is None else allocation.cohort
        drawn = self._batch_index, cohort
        round_time = device_time[drawn].max(axis=-1)
        energy_spent = np.zeros(device_energy.shape)
        energy_spent[drawn] = device_energy[drawn]
        latency = (q * device_time).sum(axis=-1)
        sampling_error = lyapunov.sampling_error(q, scenario.weights)
        drift = lyapunov.drift(self.queue, excess)

        queue = lyapunov.next_queue(self.queue, excess)
        elapsed_time = self.elapsed_time + round_time
        if mask is None:
            self.queue, self.elapsed_time = queue, elapsed_time
            self.round_index += 1
        else:
            self.queue[mask], self.elapsed_time[mask] = queue[mask], elapsed_time[mask]
            self.round_index[mask] += 1
        for index in self._rows(mask):
            self.channel_gain[index], self._draws[index] = self._streams[index].next_round()

        return Round(
            cohort=cohort,
            device_time=device_time,
            round_time=round_time,
            expected_round_time=physics.expected_maximum(device_time, q, scenario.cohort_size),
            elapsed_time=elapsed_time.copy(),  # a reset clears the state in place
            energy_expected=energy_expected,
            energy_spent=energy_spent,
            latency=latency,
            sampling_error=sampling_error,
            penalty=latency + scenario.lambda_ * sampling_error,
            drift=drift,
            reward_terms={
                "latency": -scenario.V * latency,
                "sampling_error": -scenario.V * scenario.lambda_ * sampling_error,
                "drift": -drift,
            },
        )

    def _draw_cohort(self, q: FloatArray) -> IntArray:
        """K draws with replacement: invert the distribution function at the uniform numbers."""
        cdf = q.cumsum(axis=-1)
        cdf[:, -1] = np.inf  # rounding must not lead past the last device
        cohort = np.empty(self._draws.shape, dtype=np.int64)
        for index in range(self.num_envs):
            cohort[index] = cdf[index].searchsorted(self._draws[index], side="right")
        return cohort
