"""Bandit selectors: CS-UCB and Thompson sampling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_edge_env import Scenario, physics
from fl_edge_env.checks import finite_number
from fl_edge_env.lyapunov import participation_target
from fl_edge_env.typing import FloatArray, IntArray
from policies.estimate import GainEstimator
from policies.selection.selector import Candidates, Selector, had_turn, smallest


class _Bandit(Selector):
    """The queue of participation and the devices that took part last, which both remember."""

    def __init__(self, scenario: Scenario, fairness: float) -> None:
        super().__init__(scenario)
        self._fairness = finite_number("fairness", fairness, zero_allowed=True)
        self._target = participation_target(scenario)

    def start(self, batch: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """Nobody has taken part yet; see `Selector.start`."""
        shape = (*batch, self.scenario.num_devices)
        return {"missing": np.zeros(shape), "participated": np.zeros(shape, dtype=np.bool_)}

    def learn(self, info: Mapping[str, Any]) -> None:
        """Note the participants, those that were late too; see `Selector.learn`."""
        if "energy_spent" in info:
            participated = had_turn(info)
            missing = self.memory["missing"] + self._target - participated
            self.memory |= {"missing": np.maximum(missing, 0.0), "participated": participated}

    def _named(self, index: FloatArray, candidates: Candidates) -> IntArray:
        """The devices of the largest indices, their queues of participation added."""
        index = index + self._fairness * self.memory["missing"]
        return smallest(-index, candidates.available, self.scenario.cohort_size)


class UpperConfidence(_Bandit):
    """The K devices with the largest upper confidence bounds of their rewards, CS-UCB.

    A device that takes part earns ``1 - min(T, T_max) / T_max``, and nothing if it is late. Its
    index is the mean of what it has earned, plus ``exploration * sqrt((K + 1) ln t / z)`` in round
    t after z participations; devices that have not taken part yet come first. The bound is cut at
    one, the largest reward, and with the weight `fairness` a queue is added, which grows by the
    share of the rounds that a device's data ask for and falls by one with a participation: ``max(D
    + rho - x, 0)``.

    Xia, Quek, Guo, Wen, Yang and Zhu, "Multi-armed bandit-based client scheduling for federated
    learning", IEEE Transactions on Wireless Communications, 2020. The index without the queue is
    their CS-UCB; cut and with the queue it is that of CS-UCB-Q, where 2 stands for K + 1 and
    ``fairness = beta / (1 - beta)``. Their rules were read in a public re-implementation of them.

    Parameters
    ----------
    scenario : Scenario
        The system.
    exploration : float
        Factor on the width of the confidence bound, at least zero; the authors' is one. Where
        each device takes part a dozen times, bounds that wide are all above one, and say nothing.
    fairness : float
        Weight of the queue of participation, at least zero. The authors' first rule has none. At
        the default of one a device that is a participation behind its share comes first whatever
        the rewards are, so that these decide about the order within a turn, and with whom a device
        shares a round.
    longest : float, optional
        The time T_max that earns nothing [s]. By default four times that of the median device
        in the middle of its ranges, at the channel's mean gain.

    Raises
    ------
    ValueError
        If a number is outside its range.
    """

    name = "CS-UCB"

    def __init__(
        self,
        scenario: Scenario,
        *,
        exploration: float = 1.0,
        fairness: float = 1.0,
        longest: float | None = None,
    ) -> None:
        super().__init__(scenario, fairness)
        self._exploration = finite_number("exploration", exploration, zero_allowed=True)
        if longest is None:
            common = np.full(scenario.num_devices, scenario.channel.mean)
            time, _ = physics.time_and_energy(common, scenario.f_mid, scenario.p_mid, scenario)
            longest = 4.0 * float(np.median(time))
        self._longest = finite_number("longest", longest)

    def start(self, batch: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """Nobody has earned anything yet; see `Selector.start`."""
        shape = (*batch, self.scenario.num_devices)
        return super().start(batch) | {"reward": np.zeros(shape), "count": np.zeros(shape)}

    def learn(self, info: Mapping[str, Any]) -> None:
        """Take in the rewards of the participants by `device_time`; see `Selector.learn`."""
        super().learn(info)
        if "device_time" in info:
            took_part = self.memory["participated"]
            earned = 1.0 - np.minimum(info["device_time"], self._longest) / self._longest
            if "late" in info:
                earned = np.where(info["late"], 0.0, earned)
            count = self.memory["count"] + took_part
            reward = self.memory["reward"]
            step = (earned - reward) / np.maximum(count, 1.0)
            self.memory |= {"reward": np.where(took_part, reward + step, reward), "count": count}

    def select(self, candidates: Candidates) -> IntArray:
        """Choose the largest indices; see `Selector.select`."""
        return self._named(self.index(candidates.number), candidates)

    def index(self, number: int) -> FloatArray:
        """The index of each device before its queue is added, in a round counted from one."""
        count, fair = self.memory["count"], self._fairness > 0
        factor = 2.0 if fair else self.scenario.cohort_size + 1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            width = self._exploration * np.sqrt(factor * math.log(number) / count)
        bound = self.memory["reward"] + width
        if fair:
            bound = np.minimum(bound, 1.0)
        # New devices come first; with a queue it decides among them and those with a full bound.
        new = 1.0 if fair else np.inf
        index: FloatArray = np.where(count > 0, bound, new)
        return index


class Thompson(_Bandit):
    """The K devices whose coming gains are the largest by a sample of what is believed of them.

    Each device has a posterior of its mean gain, which its own measured gains have formed (see
    `policies.estimate.GainEstimator`). In every round a mean is drawn from it. Where fading stays,
    the gain expected in the coming round is the newest measurement as far as it is likely to
    last, and the drawn mean otherwise. The devices are ranked by its logarithm over the
    channel's mean, plus `fairness` times a queue, which grows by the share of the rounds that the
    device's data ask for and falls by one with a participation: ``max(D + rho - x, 0)``.

    Thompson, "On the likelihood that one unknown probability exceeds another in view of the
    evidence of two samples", Biometrika, 1933; the queue is that of CS-UCB-Q (see
    `UpperConfidence`). The combination is this project's.

    Parameters
    ----------
    scenario : Scenario
        The system.
    fairness : float
        Weight of the queue of participation, at least zero; without it far devices are left out.
        At the default of one a device that is a participation behind its share is chosen like one
        whose gain is 2.7 times as large, 4.3 dB.

    Raises
    ------
    ValueError
        If `fairness` is negative.
    """

    def __init__(self, scenario: Scenario, *, fairness: float = 1.0) -> None:
        super().__init__(scenario, fairness)
        self._estimator = GainEstimator(scenario)

    def start(self, batch: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """Nothing was measured yet; see `Selector.start`."""
        self._estimator.reset(batch)
        seen = np.zeros((*batch, self.scenario.num_devices))
        return super().start(batch) | {"seen": seen} | self._estimator.state()

    def select(self, candidates: Candidates) -> IntArray:
        """Draw means and choose the largest gains; see `Selector.select`."""
        estimator, gain = self._estimator, candidates.channel_gain
        estimator.restore(self.memory)
        # Where the server sees the gains of the round, the participants' are those seen last.
        measured = self.memory["seen"] if self.scenario.csi == "full" else gain
        estimator.update(measured, self.memory["participated"])
        self.memory |= {"seen": gain.copy()} | estimator.state()
        mean, kept = estimator.sample_mean(candidates.uniform), estimator.kept
        coming = kept * estimator.gain + (1.0 - kept) * mean
        return self._named(np.log(coming / self.scenario.channel.mean), candidates)
