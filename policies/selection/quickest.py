"""Quickest: a simple baseline for more complex schedulers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_edge_env import Scenario, physics
from fl_edge_env.checks import finite_or_zero, positive_integer
from fl_edge_env.lyapunov import participation_target
from fl_edge_env.typing import FloatArray, Info, IntArray
from policies.resources import within_energy
from policies.selection.selector import Candidates, Selector, smallest

_POWERS = 24  # candidates for a device's p
# Simulated gains for the typical times, and the least number of their rounds.
_SAMPLED = 1_000_000
_LEAST_ROUNDS = 100


class Quickest(Selector):
    """The K devices that are quickest compared with their own typical times.

    A device's participation target is ``rho = min(K w, 1)``. Its f and p minimise its time at the
    energy ``budget / rho`` that this allows for a participation (see `resources`), and its typical
    time is the median over simulated rounds. The cohort has the K smallest scores
    ``T / typical T + c (x - rho t)``, where x counts the device's participations in the previous t
    rounds. Updates are weighted by ``w / rho``, as in Opportunistic.

    Parameters
    ----------
    scenario : Scenario
        The system.
    groups : int
        Number of groups, from 1 to N, that take turns. A round takes as long as its slowest device,
        so it can help if devices of similar typical times take part together. The devices are
        sorted by typical time and split into groups with about equal sums of targets; if all
        targets are equal, N / 2 groups are pairs. The cohort comes from the group furthest behind
        its target. If fewer than K of its devices are available, others with small scores join.
    catch_up : float
        The c of the score, at least zero. If it is small, devices with good channels exceed their
        targets and overspend; if it is large, the channel hardly matters.
    """

    def __init__(self, scenario: Scenario, *, groups: int = 1, catch_up: float = 0.02) -> None:
        super().__init__(scenario)
        positive_integer("groups", groups, most=scenario.num_devices)
        if groups > 1:
            self.name = f"{self.name}, {groups} groups"
        self._catch_up = finite_or_zero("catch_up", catch_up)
        self._target = participation_target(scenario)
        self.weights = scenario.weights / self._target
        self._powers = np.geomspace(scenario.p_min, scenario.p_max, _POWERS)
        # Times fall with gains, so the median of the times is the time at the median of the gains.
        rounds = max(_LEAST_ROUNDS, _SAMPLED // scenario.num_devices)
        rng = np.random.default_rng(0)
        gain = np.median(
            scenario.channel.sample(rng, rounds, scenario.num_devices), axis=0, overwrite_input=True
        )
        self._typical_time = physics.time_and_energy(gain, *self.resources(gain), scenario)[0]
        self._form_groups(groups)

    def _form_groups(self, groups: int) -> None:
        """Split the devices, sorted by typical time, into groups of about equal targets."""
        self._order = np.argsort(self._typical_time, kind="stable")
        ordered = self._target[self._order]
        # The midpoint of a device's target in the cumulative sum gives its group; none is empty.
        middle = (np.cumsum(ordered) - 0.5 * ordered) / ordered.sum()
        _, self._starts, group = np.unique(
            (groups * middle).astype(np.int64), return_index=True, return_inverse=True
        )
        self._group = group[np.argsort(self._order)]
        self._group_target = np.add.reduceat(ordered, self._starts)

    def resources(self, channel_gain: FloatArray, *_: object) -> tuple[FloatArray, FloatArray]:
        """The f [Hz] and p [W] of least time at the energy of a participation, each (..., N).

        p is the best of 24 powers from p_min to p_max, and f is what the remaining energy allows,
        at most f_max. If even f_min and p_min need more, they are used.
        """
        scenario = self.scenario
        energy = scenario.energy_budget_j / self._target
        p = np.full_like(channel_gain, scenario.p_max)
        time, f = within_energy(channel_gain, p, energy, scenario)
        slower = within_energy(channel_gain, self._powers[-2], energy, scenario)[0]
        # The time is convex in the upload's, so that as p grows it falls and then perhaps rises: if
        # p_max beats the power below, it is the best. Only the other devices try all powers.
        others = np.nonzero(time >= slower)
        device = others[-1]
        if device.size:
            powers = self._powers[:, device]
            times, fs = within_energy(channel_gain[others], powers, energy, scenario, device)
            best = np.argmin(times, axis=0), np.arange(device.size)  # the least if none is allowed
            f[others] = fs[best]
            p[others] = powers[best]
        return f, p

    def start(self, batch: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """Count from zero; see `Selector.start`."""
        return {"count": np.zeros((*batch, self.scenario.num_devices), dtype=np.int64)}

    def select(self, candidates: Candidates) -> IntArray:
        """Choose the smallest scores in the group whose turn it is; see `Selector.select`."""
        count = self.memory["count"]
        rounds = candidates.number - 1
        ahead = count - self._target * rounds
        score = candidates.time / self._typical_time + self._catch_up * ahead
        if len(self._starts) > 1:
            served = np.add.reduceat(count[..., self._order], self._starts, axis=-1)
            turn = np.argmax(self._group_target * rounds - served, axis=-1)[..., None]
            order = np.lexsort((score, self._group != turn), axis=-1)
            score = np.argsort(order, axis=-1).astype(np.float64)
        return smallest(score, candidates.available, self.scenario.cohort_size)

    def learn(self, info: Info) -> None:
        """Count the rounds in which each device took part or was late; see `Selector.learn`."""
        if "energy_spent" in info:
            turn = (np.asarray(info["energy_spent"]) > 0) | info.get("late", False)
            self.memory["count"] = self.memory["count"] + turn
