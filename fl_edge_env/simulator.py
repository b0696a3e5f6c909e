"""The federated round, for one system or a batch of independent ones.

This is the only implementation of the round: the single and the vector environment and the
evaluation without training all call it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_edge_env import lyapunov, physics
from fl_edge_env.allocation import Allocation
from fl_edge_env.checks import is_integer
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray, IntArray

# Size of a block of channel gains that are drawn ahead for each system.
_BLOCK_NUMBERS = 1 << 14


class Round(NamedTuple):
    """What happened in a round, for each of the B systems of a batch.

    For a single system the shapes have no B, and a quantity of shape (B,) is a number.

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
        What stands for the round time in the penalty [s]: the paper's proxy ``sum_n q_n T_n``,
        or `expected_round_time`, as the scenario says.
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

    def start_episode(self, seed: int | None) -> None:
        if seed is not None:
            self._root = np.random.SeedSequence(seed)
        channel, cohort, self.training = self._root.spawn(1)[0].spawn(3)
        self._channel = np.random.default_rng(channel)
        self._cohort = np.random.default_rng(cohort)
        self._drawn = 0
        self._last: FloatArray | None = None

    def next_rounds(self, count: int) -> tuple[FloatArray, FloatArray]:
        """Gains of the next rounds, shape (count, N), and the uniform numbers of their K draws."""
        scenario = self._scenario
        gains = scenario.channel.draw(
            self._channel,
            count,
            scenario.num_devices,
            first_round=self._drawn,
            previous=self._last,
        )
        self._drawn += count
        self._last = gains[-1]
        return gains, self._cohort.random((count, scenario.cohort_size))


class Simulator:
    """One system of a scenario, or a batch of B independent ones.

    Parameters
    ----------
    scenario : Scenario
        The system.
    num_envs : int, optional
        Batch size B. Without it there is one system, and the arrays have no batch axis.
    """

    def __init__(self, scenario: Scenario, num_envs: int | None = None) -> None:
        self.scenario = scenario
        batch = () if num_envs is None else (num_envs,)
        self.queue = np.zeros((*batch, scenario.num_devices))
        self.round_index = np.zeros(batch, dtype=np.int64)
        self.elapsed_time = np.zeros(batch)
        self._indices = list(np.ndindex(batch))
        self._streams = [_Streams(scenario) for _ in self._indices]
        # Draws are made ahead, a block of rounds at a time for each system.
        rounds = scenario.num_rounds + 1 + scenario.delayed_csi
        rounds = max(1, min(rounds, _BLOCK_NUMBERS // scenario.num_devices))
        self._block_gains = np.ones((*batch, rounds, scenario.num_devices))
        self._block_draws = np.zeros((*batch, rounds, scenario.cohort_size))
        self._position = np.zeros(batch, dtype=np.int64)
        self._rows = tuple(np.indices(batch))
        # The gains of the round before the coming one, which are observed where they are delayed.
        self._last_gain = np.ones((*batch, scenario.num_devices))
        self._load_round()

    def _load_round(self) -> None:
        now = (*self._rows, self._position)
        self.channel_gain: FloatArray = self._block_gains[now]
        self._draws: FloatArray = self._block_draws[now]

    def _next_round(self, moving: BoolArray | EllipsisType) -> None:
        """Go on to the next gains and draws."""
        if self.scenario.delayed_csi:
            self._last_gain[moving] = self.channel_gain[moving]
        self._position[moving] += 1
        rounds = self._block_gains.shape[-2]
        if self._position.max() == rounds:
            for system in np.flatnonzero(self._position == rounds).tolist():
                self._draw_block(system)
        self._load_round()

    def _draw_block(self, system: int) -> None:
        index = self._indices[system]
        block = self._streams[system].next_rounds(self._block_gains.shape[-2])
        self._block_gains[index], self._block_draws[index] = block
        self._position[index] = 0

    def reset(self, seeds: Sequence[int | None], mask: BoolArray | None = None) -> None:
        """Start a new episode: empty queues, the first channel gains.

        Parameters
        ----------
        seeds : sequence of int or None, length B
            Seed of each system; None goes on to the next episode of the seed given last.
        mask : ndarray of bool, shape (B,), optional
            The systems to reset; all by default.

        Raises
        ------
        ValueError
            If the number of seeds is wrong.
        """
        if len(seeds) != len(self._indices):
            raise ValueError(f"seeds must hold {len(self._indices)} seeds, got {len(seeds)}")
        systems = range(len(self._indices)) if mask is None else np.flatnonzero(mask).tolist()
        for system in systems:
            index = self._indices[system]
            self._streams[system].start_episode(seeds[system])
            self._draw_block(system)
            self.queue[index] = 0.0
            self.round_index[index] = 0
            self.elapsed_time[index] = 0.0
        self._load_round()
        if self.scenario.delayed_csi:  # a round that nobody plays supplies the first observation
            self._next_round(... if mask is None else mask)

    def state(self) -> dict[str, FloatArray | IntArray]:
        """What the rounds so far have left, to be taken up by `restore`; copies."""
        return {
            "queue": self.queue.copy(),
            "round_index": self.round_index.copy(),
            "elapsed_time": self.elapsed_time.copy(),
        }

    def restore(self, seeds: Sequence[int], state: Mapping[str, FloatArray | IntArray]) -> None:
        """Take up the first episode of the seeds where `state` was called.

        Parameters
        ----------
        seeds : sequence of int, length B
            Seed of each system.
        state : mapping
            As `state` returned it.

        Raises
        ------
        ValueError
            If a seed is no integer of at least 0, or the state is not one of such a system. The
            simulator is then left as it was.
        """
        for seed in seeds:
            if not is_integer(seed) or seed < 0:
                raise ValueError(f"seed must be an integer of at least 0, got {seed!r}")
        queue, round_index, elapsed_time = (
            self._saved(state, name) for name in ("queue", "round_index", "elapsed_time")
        )
        if round_index.max() > self.scenario.num_rounds:
            raise ValueError(
                f"round_index must be at most num_rounds = {self.scenario.num_rounds}, "
                f"got {round_index.max()}"
            )
        self.reset(seeds)
        for passed in range(int(round_index.max())):
            self._next_round(round_index > passed)
        self.queue[...] = queue
        self.round_index[...] = round_index
        self.elapsed_time[...] = elapsed_time

    def _saved(self, state: Mapping[str, FloatArray | IntArray], name: str) -> NDArray[Any]:
        """The array of a saved state that is to replace the attribute of that name."""
        if not isinstance(state, Mapping) or name not in state:
            found = list(state) if isinstance(state, Mapping) else state
            raise ValueError(f"state must be a mapping that holds {name}, got {found!r}")
        now: NDArray[Any] = getattr(self, name)
        kinds, numbers = ("iu", "integers") if now.dtype.kind == "i" else ("fiu", "numbers")
        try:
            values = np.asarray(state[name])
        except ValueError:  # of rows of different length
            values = np.array(None)
        if values.dtype.kind not in kinds or values.shape != now.shape:
            raise ValueError(
                f"{name} must be {numbers} of shape {now.shape}, "
                f"got {values.dtype} of shape {values.shape}"
            )
        if not np.all((values >= 0) & np.isfinite(values)):
            raise ValueError(
                f"{name} must be finite and not negative, "
                f"got values from {values.min()} to {values.max()}"
            )
        return values

    def training_seed(self, system: int = 0) -> np.random.SeedSequence:
        """Seed of the training stream in the present episode of one system."""
        return self._streams[system].training

    def observe(self) -> dict[str, FloatArray]:
        """Channel gains and queues [J], shape (B, N); later rounds do not change the arrays."""
        gain = self._last_gain if self.scenario.delayed_csi else self.channel_gain
        return {"channel_gain": gain.copy(), "queue": self.queue.copy()}

    @property
    def done(self) -> BoolArray:
        """Whether each system has played all its rounds, shape (B,)."""
        return self.round_index >= self.scenario.num_rounds

    def advance(self, allocation: Allocation, mask: BoolArray | None = None) -> Round:
        """Play one round.

        Parameters
        ----------
        allocation : Allocation
            The decision, with fields of shape (B, N), or (N,) for a single system.
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
        if allocation.f.shape != self.queue.shape:
            raise ValueError(
                f"f, p and q must have shape {self.queue.shape}, got {allocation.f.shape}"
            )
        allocation.validate(scenario)
        q = allocation.q
        device_time, device_energy = physics.time_and_energy(
            self.channel_gain, allocation.f, allocation.p, scenario
        )
        energy_expected, excess = lyapunov.energy_excess(q, device_energy, scenario)
        cohort = self._draw_cohort(q) if allocation.cohort is None else allocation.cohort
        drawn = (*(row[:, None] for row in self._rows), cohort)
        round_time = device_time[drawn].max(axis=-1)
        energy_spent = np.zeros(device_energy.shape)
        energy_spent[drawn] = device_energy[drawn]
        latency = lyapunov.latency(device_time, q, scenario)
        sampling_error = lyapunov.sampling_error(q, scenario.weights)
        drift = lyapunov.drift(self.queue, excess)

        queue = lyapunov.next_queue(self.queue, excess)
        elapsed_time = self.elapsed_time + round_time
        moving: BoolArray | EllipsisType = ... if mask is None else mask
        self.queue[moving] = queue[moving]
        self.elapsed_time[moving] = elapsed_time[moving]
        self.round_index[moving] += 1
        self._next_round(moving)

        return Round(
            cohort=cohort,
            device_time=device_time,
            round_time=round_time,
            expected_round_time=physics.expected_maximum(device_time, q, scenario.cohort_size),
            elapsed_time=elapsed_time,
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
        cdf[..., -1] = np.inf  # rounding must not lead past the last device
        if cdf.ndim == 1:
            return cdf.searchsorted(self._draws, side="right")
        cohort: IntArray = (cdf[:, None, :] > self._draws[..., None]).argmax(axis=-1)
        return cohort
