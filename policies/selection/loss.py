"""Selectors that look at the losses that participants report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_edge_env.typing import FloatArray, IntArray
from policies.selection.selector import Candidates, Selector, smallest


class PowerOfChoice(Selector):
    """Of 2 K devices drawn by their data, the K with the largest losses.

    Cho, Wang and Joshi, "Towards understanding biased client selection in federated learning",
    AISTATS 2022. As in their variant "rpow-d" a device's loss is the one it reported when it took
    part last, and a device that never took part counts as the largest loss. Here it is the loss
    of the model that the device received over all its data, for which it passes over them once.
    """

    name = "Power of choice"
    uses_losses = True

    def start(self, batch: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """No loss is known yet; see `Selector.start`."""
        return {"loss": np.full((*batch, self.scenario.num_devices), np.inf)}

    def select(self, candidates: Candidates) -> IntArray:
        """Draw candidates and choose the largest losses; see `Selector.select`."""
        # The d smallest of exponential times with rates w: a draw by w without replacement.
        arrival = -np.log1p(-candidates.uniform) / self.scenario.weights
        drawn = smallest(arrival, candidates.available, 2 * self.scenario.cohort_size)
        loss = np.take_along_axis(self.memory["loss"], drawn, axis=-1)
        best = smallest(-loss, drawn >= 0, self.scenario.cohort_size)
        cohort: IntArray = np.where(best >= 0, np.take_along_axis(drawn, best, axis=-1), -1)
        return cohort

    def learn(self, info: Mapping[str, Any]) -> None:
        """Keep the `local_losses` of the `participants`; see `Selector.learn`."""
        known = self.memory["loss"]
        self.memory["loss"] = np.where(info["participants"], info["local_losses"], known)


# Constants of Oort, from its paper and its code.
_EXPLORE, _EXPLORE_DECAY, _LEAST_EXPLORE = 0.9, 0.98, 0.3
_CLIP_PERCENTILE = 90.0
_STALENESS = 0.1
_FIRST_PERCENTILE, _PACE, _WINDOW, _STEADY = 30.0, 5.0, 20, 0.1
_SLOWNESS = 2.0
_CUTOFF = 0.95


class Oort(Selector):
    """Devices with much to learn from that are fast enough, and some that are new.

    Lai et al., "Oort: efficient federated learning via guided participant selection", OSDI 2021.
    A device's statistical utility is ``D sqrt(mean loss^2)`` over its samples when it took part
    last. The score is the utility, clipped at its 90th percentile and scaled to [0, 1], plus
    ``sqrt(0.1 ln R / last round)``, times ``(T_pref / T)^2`` for devices slower than T_pref. That
    is a percentile of the present times, the 30th at first and 5 points more after 20 rounds in
    which the utility taken in changed by at most a tenth. Of the K places, a share of 0.9 that
    falls by 2 % in each round to 0.3 goes to devices that never took part, drawn by their speed;
    the others are drawn by score among those within 95 % of the best scores.

    Deviations: times are those of the present channel, not of the past; new devices are drawn by
    one over their times; the utility taken in is that of all who took part, the new ones
    included; no device is left out for having taken part too often, and the pace only slackens.
    """

    uses_losses = True

    def start(self, batch: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """Nobody has taken part yet; see `Selector.start`."""
        shape = (*batch, self.scenario.num_devices)
        return {
            "utility": np.zeros(shape),
            "last_round": np.zeros(shape, dtype=np.int64),
            "number": np.zeros(batch, dtype=np.int64),
            "percentile": np.full(batch, _FIRST_PERCENTILE),
            "taken_in": np.zeros((*batch, 2)),  # utility of this window and of the last
        }

    def select(self, candidates: Candidates) -> IntArray:
        """Explore and exploit; see `Selector.select`."""
        if candidates.time.ndim != 1:
            raise ValueError("Oort decides one system at a time, as training does")
        count = min(self.scenario.cohort_size, int(candidates.available.sum()))
        seen = self.memory["last_round"] > 0
        unseen = ~seen & candidates.available
        known = seen & candidates.available
        explore = max(_EXPLORE * _EXPLORE_DECAY ** (candidates.number - 1), _LEAST_EXPLORE)
        exploited = int(count * (1.0 - explore)) if unseen.any() else count
        exploited = max(min(exploited, int(known.sum())), count - int(unseen.sum()))
        # Exponential times with rates of the odds: a draw by the odds without replacement.
        arrival = -np.log1p(-candidates.uniform)
        new = smallest(arrival * candidates.time, unseen, count - exploited)
        if not exploited:
            return new
        score = self.score(candidates, known)
        threshold = _CUTOFF * np.sort(score[known])[-exploited]
        with np.errstate(divide="ignore"):
            old = smallest(arrival / score, known & (score >= threshold), exploited)
        return np.concatenate([old, new])

    def score(self, candidates: Candidates, known: NDArray[np.bool_]) -> FloatArray:
        """The score of each device, shape (N,), of use for known ones.

        These are the available devices that have taken part, at least one.
        """
        utility, last = self.memory["utility"], np.maximum(self.memory["last_round"], 1)
        low, high = utility[known].min(), utility[known].max()
        clipped = np.minimum(utility, np.percentile(utility[known], _CLIP_PERCENTILE))
        scale = high - low if high > low else 1.0
        fresh = np.sqrt(_STALENESS * math.log(candidates.number) / last)
        score: FloatArray = (clipped - low) / scale + fresh
        preferred = np.percentile(candidates.time, min(float(self.memory["percentile"]), 100.0))
        slow = candidates.time > preferred
        return np.where(slow, score * (preferred / candidates.time) ** _SLOWNESS, score)

    def learn(self, info: Mapping[str, Any]) -> None:
        """Keep the newest utilities, and slacken the pace where they stagnate.

        They follow from `local_loss_rms` of the `participants`; see `Selector.learn`.
        """
        if "energy_spent" not in info:  # a reset
            return
        devices, memory = np.flatnonzero(info["participants"]), self.memory
        number = memory["number"] + 1
        utility = self.scenario.num_samples[devices] * info["local_loss_rms"][devices]
        memory["number"] = number
        memory["utility"][devices] = utility
        memory["last_round"][devices] = number
        memory["taken_in"][0] += utility.sum()
        if number % _WINDOW == 0:
            now, before = memory["taken_in"]
            if before > 0 and abs(now - before) <= _STEADY * before:
                memory["percentile"] = memory["percentile"] + _PACE
            memory["taken_in"] = np.array([0.0, now])
