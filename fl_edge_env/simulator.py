"""The federated round, for one system or a batch of independent ones.

This is the only implementation of the round: both environments and the evaluation without training
use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fl_edge_env import lyapunov, physics
from fl_edge_env.allocation import Allocation
from fl_edge_env.channels.protocol import check_range
from fl_edge_env.checks import freeze, positive_integer, real_array
from fl_edge_env.round import Round
from fl_edge_env.scenario import Scenario
from fl_edge_env.spaces import NEVER_MEASURED
from fl_edge_env.streams import Streams
from fl_edge_env.typing import BoolArray, FloatArray, IntArray

# Number of channel gains drawn ahead for each system, and for all of a batch: 64 MiB.
_BLOCK_NUMBERS = 1 << 14
_AHEAD_NUMBERS = 1 << 23
_MOST_NUMBERS = 1 << 31  # in the blocks of a batch, 16 GiB
# Up to this many devices times draws, comparing all pairs at once is faster than a search.
_MOST_COMPARED = 1 << 14


class Simulator:
    """Simulate one system of a scenario, or a batch of B independent ones.

    Call `reset` before the first round. Without `num_envs` there is one system, and the arrays have
    no batch axis. Coming chosen decisions may be played in a `scenario` with another cohort size.
    """

    def __init__(self, scenario: Scenario, num_envs: int | None = None) -> None:
        self.scenario = scenario
        numbers = max(scenario.num_devices, scenario.cohort_size)
        most = _MOST_NUMBERS // numbers
        batch = () if num_envs is None else (positive_integer("num_envs", num_envs, most),)
        devices = (*batch, scenario.num_devices)
        self.queue = np.zeros(devices)
        self.participation_queue = np.zeros(devices) if scenario.objective == "outcome" else None
        self.round_index = np.zeros(batch, dtype=np.int64)
        self.elapsed_time = np.zeros(batch)
        self._indices = list(np.ndindex(batch))
        self._rows = tuple(np.indices(batch)[..., None])
        self._streams = [Streams(scenario) for _ in self._indices]
        ahead = min(_BLOCK_NUMBERS, _AHEAD_NUMBERS // (num_envs or 1))
        self._make_blocks(max(1, min(scenario.num_rounds + 1, ahead // numbers)), batch)
        # Without full CSI: the gains the server knows, and their age in rounds.
        self._known_gain = np.ones(devices)
        self._age = np.ones(devices) if scenario.csi == "participants" else None

    def _make_blocks(self, rounds: int, batch: tuple[int, ...]) -> None:
        """Make room for random numbers drawn ahead: for a few rounds of all systems."""
        scenario = self.scenario
        block = (rounds, *batch, scenario.num_devices)
        self._block_gains = np.ones(block)
        self._block_draws = np.zeros((rounds, *batch, scenario.cohort_size))
        self._block_available = np.ones(block, np.bool_) if scenario.drops_out else None
        self._block_uploads = np.zeros(block) if scenario.upload_failure > 0 else None
        self._position = 0

    @property
    def channel_gain(self) -> FloatArray:
        """Gains of the coming round, shape (B, N): a view that later rounds may overwrite."""
        return self._block_gains[self._position]

    @property
    def available(self) -> BoolArray | None:
        """Available devices of the coming round, (B, N): a view; None if all always are."""
        return None if self._block_available is None else self._block_available[self._position]

    def measure(self, gain: FloatArray) -> None:
        """Replace the gains drawn for the coming round by measured ones, shape (B, N).

        Raises `ValueError` for another shape, or gains outside the channel's range.
        """
        measured = real_array("gain", gain)
        if measured.shape != self.queue.shape:
            raise ValueError(f"gain must have shape {self.queue.shape}, got {measured.shape}")
        check_range("gain must be", measured, self.scenario.channel)
        self._block_gains[self._position] = measured

    def _fill_block(self, system: int) -> None:
        """Draw the rest of a system's block, from the coming round on."""
        coming = (slice(self._position, None), *self._indices[system])
        rounds = len(self._block_gains) - self._position
        drawn = self._streams[system].next_rounds(rounds)
        self._block_gains[coming] = drawn.gains
        self._block_draws[coming] = drawn.draws
        if self._block_available is not None:
            self._block_available[coming] = drawn.available
        if self._block_uploads is not None:
            self._block_uploads[coming] = drawn.uploads

    def reset(self, seeds: Sequence[int | None], mask: BoolArray | None = None) -> None:
        """Start a new episode, with empty queues and the first channel gains.

        `seeds` has one entry for each system; None starts the next episode of the previous seed.
        `mask`, bool of shape (B,), selects the systems to reset, by default all. Raises
        `ValueError` if the number of seeds or the mask is wrong.
        """
        if len(seeds) != len(self._indices):
            raise ValueError(f"seeds must hold {len(self._indices)} seeds, got {len(seeds)}")
        systems = [*range(len(self._indices))]
        if mask is not None:
            chosen = np.asarray(mask)
            shape = self.round_index.shape
            if chosen.shape != shape or chosen.dtype != np.bool_ or not chosen.any():
                raise ValueError(
                    f"reset_mask must be a bool array of shape {shape} with at least one True, got "
                    f"{mask!r}"
                )
            systems = np.flatnonzero(chosen).tolist()
        if len(systems) == len(self._indices):
            self._position = 0
        for system in systems:
            self._start(system, seeds[system])

    def _start(self, system: int, seed: int | None) -> None:
        """Start an episode of one system."""
        index = self._indices[system]
        stream = self._streams[system]
        stream.start_episode(seed)
        if self.scenario.csi == "delayed":
            # An unplayed round supplies the first observation.
            self._known_gain[index] = stream.next_rounds(1).gains[-1]
        self._fill_block(system)
        self.queue[index] = 0.0
        if self.participation_queue is not None:
            self.participation_queue[index] = 0.0
        if self._age is not None:
            self._known_gain[index] = self.scenario.channel.mean
            self._age[index] = NEVER_MEASURED
        self.round_index[index] = 0
        self.elapsed_time[index] = 0.0

    def training_seed(self) -> np.random.SeedSequence:
        """Seed of the training stream in the current episode of the first system."""
        return self._streams[0].training

    def observe(self) -> dict[str, FloatArray]:
        """Return the observation described in `FLEdgeEnv`, shape (B, N), as read-only copies."""
        gain = self.channel_gain if self.scenario.csi == "full" else self._known_gain
        observation = {"channel_gain": gain.copy(), "queue": self.queue.copy()}
        if self._age is not None:
            observation["age"] = self._age.copy()
        if self.participation_queue is not None:
            observation["participation_queue"] = self.participation_queue.copy()
        available = self.available
        if available is not None:
            observation["available"] = available.astype(np.float64)
        freeze(observation.values())
        return observation

    @property
    def done(self) -> BoolArray:
        """Systems that have played all their rounds, bool of shape (B,)."""
        return self.round_index >= self.scenario.num_rounds

    def advance(self, decision: Allocation, *, checked: bool = False) -> Round:
        """Play one round; the decision's fields have shape (B, N), or (N,) for a single system.

        Raises `ValueError` if the decision is invalid in this scenario, or names an unavailable
        device. With `checked` the decision was validated before, or `decode_action` returned it.
        """
        scenario = self.scenario
        if not checked:
            decision = decision.of_shape(self.queue.shape).validate(scenario)
        # A copy, as later rounds overwrite it.
        available = None if self.available is None else self.available.copy()
        device_time, device_energy, late = self._cost(decision)
        cohort, participates, q = self._cohort(decision, available)
        round_time = np.where(participates, device_time, 0.0).max(axis=-1)
        spent = np.where(participates, device_energy, 0.0)
        # Nothing about a chosen cohort is random.
        fields = {
            "round_time": round_time,
            "energy_spent": spent,
            "latency": round_time,
            "energy_expected": spent,
        }
        if q is not None:  # means over the draw
            participation = physics.participation_probability(q, scenario.cohort_size)
            fields |= {
                "energy_expected": participation * device_energy,
                "latency": lyapunov.latency(device_time, q, scenario),
                "sampling_error": lyapunov.sampling_error(q, scenario.weights, available),
            }
        in_time = participates if late is None else participates & ~late
        fields |= self._objective(fields, in_time)
        self._update_queues(fields, in_time)
        failed = None
        if self._block_uploads is not None:
            failed = in_time & (self._block_uploads[self._position] < scenario.upload_failure)
        outcome = Round(
            **fields,
            cohort=cohort,
            q=None if available is None else q,
            device_time=device_time,
            elapsed_time=self.elapsed_time + fields["round_time"],
            available=available,
            failed=failed,
            late=None if late is None else participates & late,
            measured=participates if scenario.csi == "participants" else None,
        )
        freeze(outcome)
        self._end_round(outcome, participates)
        return outcome

    def _cost(self, decision: Allocation) -> tuple[FloatArray, FloatArray, BoolArray | None]:
        """Times [s] and energies [J] at the end of the round, and late devices if any can be."""
        played = decision.f, decision.p, self.scenario
        bandwidth = decision.bandwidth
        if bandwidth is not None:  # other devices' entries are ignored
            bandwidth = np.where(decision.participates, bandwidth, 0.0)
        time, energy, late = physics.by_deadline(self.channel_gain, *played, bandwidth)
        if decision.first is None:
            return time, energy, late
        # The round ends when this many devices of the cohort have finished.
        cohort = decision.cohort
        assert cohort is not None
        times = np.where(cohort >= 0, np.take_along_axis(time, cohort, axis=-1), np.inf)
        times.sort(axis=-1)
        end = np.take_along_axis(times, decision.first[..., None] - 1, axis=-1)
        time, energy, later = physics.cut(end, time, energy, *played)
        return time, energy, later if late is None else late | later

    def _cohort(
        self, decision: Allocation, available: BoolArray | None
    ) -> tuple[IntArray, BoolArray, FloatArray | None]:
        """The cohort, padded with -1 to K entries, its members, and the q of a sampled decision."""
        if decision.cohort is not None:
            participates = decision.participates.copy()  # the decision keeps its own array
            if available is not None and (participates & ~available).any():
                *system, device = np.argwhere(participates & ~available)[0].tolist()
                where = f" in system {system[0]}" if system else ""
                raise ValueError(
                    f"cohort must name available devices, got device {device}{where}, "
                    'which is not: choose devices with observation["available"] == 1'
                )
            cohort = np.full((*self.round_index.shape, self.scenario.cohort_size), -1)
            cohort[..., : decision.cohort.shape[-1]] = decision.cohort
            return cohort, participates, None
        q = decision.q
        assert q is not None
        if available is not None:
            reduced = np.where(available, q, 0.0)
            q = reduced / reduced.sum(axis=-1, keepdims=True)
        cohort = self._draw_cohort(q, available)
        participates = np.zeros_like(q, np.bool_)
        participates[(*self._rows, cohort)] = True
        return cohort, participates, q

    def _objective(self, fields: Mapping[str, Any], in_time: BoolArray) -> dict[str, Any]:
        """The penalty, reward and cost fields of `Round` that are defined."""
        scenario = self.scenario
        error = fields.get("sampling_error")
        terms = {}
        if error is not None:
            terms["penalty"] = fields["latency"] + scenario.lambda_ * error
        if self.participation_queue is not None:
            terms["reward_latency"] = -fields["round_time"] / scenario.mean_time
            costs = lyapunov.constraint_costs(fields["energy_spent"], in_time, scenario)
            return terms | {"cost": costs[0].mean(axis=-1), "costs": np.concatenate(costs, axis=-1)}
        excess = fields["energy_expected"] - scenario.energy_budget_j
        terms["drift"] = lyapunov.drift(self.queue, excess)
        terms["reward_latency"] = -scenario.V * fields["latency"]
        if error is not None:
            terms["reward_sampling_error"] = -scenario.V * scenario.lambda_ * error
        return terms | {"reward_drift": -terms["drift"]}

    def _update_queues(self, fields: Mapping[str, Any], in_time: BoolArray) -> None:
        """Add the round to the queues of energy and, if it has them, of participation."""
        scenario = self.scenario
        # The realised energy if it is what counts, or all that the server knows.
        realised = self.participation_queue is not None or scenario.csi == "participants"
        energy = fields["energy_spent" if realised else "energy_expected"]
        self.queue = lyapunov.next_queue(self.queue, energy - scenario.energy_budget_j)
        if self.participation_queue is not None:
            self.participation_queue += lyapunov.participation_target(scenario) - in_time

    def _end_round(self, outcome: Round, participates: BoolArray) -> None:
        """Record the gains that the server learns, and advance to the next round."""
        if self.scenario.csi == "delayed":
            self._known_gain[...] = self.channel_gain
        elif self._age is not None:
            np.copyto(self._known_gain, self.channel_gain, where=participates)
            self._age[...] = np.where(participates, 1.0, np.minimum(self._age + 1, NEVER_MEASURED))
        self.elapsed_time[...] = outcome.elapsed_time
        self.round_index += 1
        self._position += 1
        if self._position == len(self._block_gains):
            self._position = 0
            for system in range(len(self._indices)):
                self._fill_block(system)

    def _draw_cohort(self, q: FloatArray, available: BoolArray | None) -> IntArray:
        """Draw K devices with replacement, by inverting the distribution function."""
        draws = self._block_draws[self._position]
        cdf = q.cumsum(axis=-1)
        cdf[..., -1] = np.inf  # rounding must not lead past the last device
        if available is not None:  # nor past the last available one
            from_behind = np.logical_or.accumulate(available[..., ::-1], axis=-1)[..., ::-1]
            cdf[..., :-1][~from_behind[..., 1:]] = np.inf
        if cdf.ndim == 1:
            return cdf.searchsorted(draws, side="right")
        if cdf.shape[-1] * draws.shape[-1] > _MOST_COMPARED:
            rows = zip(cdf, draws, strict=True)
            return np.stack([row.searchsorted(drawn, side="right") for row, drawn in rows])
        return (cdf[:, None, :] > draws[..., None]).argmax(axis=-1)
