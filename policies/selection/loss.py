"""Selectors that use the losses reported by participants."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_edge_env.typing import BoolArray, FloatArray, Info, IntArray
from policies.selection.selector import Candidates, Selector, smallest


class PowerOfChoice(Selector):
    """The K devices with the largest losses among 2 K drawn in proportion to their data.

    Cho, Wang and Joshi, "Towards understanding biased client selection in federated learning",
    AISTATS 2022. As in their variant "rpow-d", a device's loss is its last reported one, and
    infinite before its first participation. Here it is the loss of the received model over all of
    the device's data, which takes one pass over them.
    """

    name = "Power of choice"
    uses_losses = True

    def start(self, batch: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """Begin without known losses; see `Selector.start`."""
        return {"loss": np.full((*batch, self.scenario.num_devices), np.inf)}

    def select(self, candidates: Candidates) -> IntArray:
        """Draw candidates and choose the largest losses; see `Selector.select`."""
        # The d smallest of exponential times with rates w: a draw by w without replacement.
        arrival = -np.log1p(-candidates.uniform) / self.scenario.weights
        drawn = smallest(arrival, candidates.available, 2 * self.scenario.cohort_size)
        loss = np.take_along_axis(self.memory["loss"], drawn, axis=-1)
        best = smallest(-loss, drawn >= 0, self.scenario.cohort_size)
        return np.where(best >= 0, np.take_along_axis(drawn, best, axis=-1), -1)

    def learn(self, info: Info) -> None:
        """Keep the `local_losses` of the `participants`; see `Selector.learn`."""
        known = self.memory["loss"]
        self.memory["loss"] = np.where(info["participants"], info["local_losses"], known)


# Constants of Oort, the defaults of its authors' code in FedScale.
_EXPLORE = 0.9
_EXPLORE_DECAY = 0.98
_LEAST_EXPLORE = 0.3
_SAMPLE_WINDOW = 5
_CLIP = 0.9
_STALENESS = 0.1
_SLOWNESS = 2.0
_FIRST_PERCENTILE = 30.0
_PACE = 5.0
_PACE_ROUNDS = 20
_STEADY = 0.1
_SHARP = 5.0
_CUT_OFF = 0.05
_POOL = 10


class Oort(Selector):
    """Fast devices with large losses, and some new ones.

    Lai et al., "Oort: efficient federated learning via guided participant selection", OSDI 2021,
    with the rules and defaults of the authors' code in FedScale. A device's utility is
    ``D sqrt(mean loss^2)`` over its D samples at its last participation, and D if it is new. A
    score is the utility, clipped at the 90th percentile and scaled to [0, 1], plus
    ``sqrt(0.1 ln R / last round)`` after R rounds. Utilities of new devices and scores of known
    ones are multiplied by ``(T_pref / T)^2`` if the device takes longer than T_pref. This is a
    percentile of all times, at first the 30th; every 20 rounds it rises by 5 points if the utility
    of known participants changed by at most a tenth, or falls by 5 if it grew sixfold. New devices
    are a fraction of the cohort, which falls from 0.9 by 2 % a round to 0.3; they are drawn by
    utility from the best five per slot. Known devices fill the other k slots, drawn by score from
    the best 10 k + 1 and all that reach 5 % of the (k + 1)-th best score.

    Deviations: times are for the coming round, not from the last participation. Losses are the
    received model's on all data, as in the paper, not the last batch's. New devices get at least
    one slot; FedScale rounds to none and fails for cohorts of up to three. Slots that new or known
    devices cannot fill go to the others; FedScale leaves them empty or repeats the last new
    devices. The first cohort is drawn like new devices, not uniformly. A late or lost upload
    changes no utility; FedScale assumes the mean. The minimum utility includes zero losses.
    """

    uses_losses = True

    def start(self, batch: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """Begin with all devices new; see `Selector.start`."""
        shape = (*batch, self.scenario.num_devices)
        return {
            "utility": np.array(np.broadcast_to(self.scenario.num_samples, shape), dtype=float),
            "last_round": np.zeros(shape, dtype=np.int64),
            "number": np.zeros(batch, dtype=np.int64),
            "percentile": np.full(batch, _FIRST_PERCENTILE),
            "taken_in": np.zeros((*batch, 2)),  # of known participants, now and before
        }

    def select(self, candidates: Candidates) -> IntArray:
        """Explore and exploit; see `Selector.select`."""
        if candidates.time.ndim != 1:
            raise ValueError("Oort decides one system at a time, as training does")
        seen = self.memory["last_round"] > 0
        new = candidates.available & ~seen
        known = candidates.available & seen
        explored, exploited = self._slots(int(new.sum()), int(known.sum()))
        odds = self.memory["utility"] * self.slowness(candidates)
        chosen = _drawn(odds, new, _SAMPLE_WINDOW * explored, explored, candidates)
        if not exploited:
            return chosen
        score = self.score(candidates)
        best = -np.sort(-score[known])
        admitted = np.sum(best >= _CUT_OFF * best[min(exploited, best.size - 1)])
        pool = max(int(admitted), _POOL * exploited + 1)
        return np.concatenate([_drawn(score, known, pool, exploited, candidates), chosen])

    def _slots(self, new: int, known: int) -> tuple[int, int]:
        """Slots of the cohort for new and for known devices, of which this many are available."""
        count = min(self.scenario.cohort_size, new + known)
        explore = max(_EXPLORE * _EXPLORE_DECAY ** int(self.memory["number"]), _LEAST_EXPLORE)
        exploited = min(count - max(int(count * explore), 1), known)
        exploited = max(exploited, count - new)
        return count - exploited, exploited

    def slowness(self, candidates: Candidates) -> FloatArray:
        """Factors that lower the scores of slow devices, shape (N,); 1 for fast devices."""
        time = candidates.time
        place = int(time.size * float(self.memory["percentile"]) / 100.0)
        preferred = np.sort(time)[min(place, time.size - 1)]
        return np.minimum(preferred / time, 1.0) ** _SLOWNESS

    def score(self, candidates: Candidates) -> FloatArray:
        """The score of each device, shape (N,), meaningful for known devices only."""
        utility = self.memory["utility"]
        last = np.maximum(self.memory["last_round"], 1)
        sorted_utility = np.sort(utility[candidates.available])
        low = 0.999 * sorted_utility[0]
        high = sorted_utility[-1]
        clipped = np.minimum(utility, sorted_utility[int(_CLIP * sorted_utility.size)])
        fresh = np.sqrt(_STALENESS * np.log(self.memory["number"]) / last)
        score = (clipped - low) / max(high - low, 1e-4) + fresh
        return score * self.slowness(candidates)

    def learn(self, info: Info) -> None:
        """Update utilities, from `local_loss_rms`, and the pace; see `Selector.learn`."""
        if "energy_spent" not in info:  # a reset
            return
        devices = np.flatnonzero(info["participants"])
        memory = self.memory
        number = memory["number"] + 1
        utility = self.scenario.num_samples[devices] * info["local_loss_rms"][devices]
        known = memory["last_round"][devices] > 0
        memory["number"] = number
        memory["utility"][devices] = utility
        memory["last_round"][devices] = number
        memory["taken_in"][0] += utility[known].mean() if known.any() else 0.0
        if number % _PACE_ROUNDS == 0:
            now, before = memory["taken_in"]
            change = abs(now - before)
            percentile = memory["percentile"]
            if number > _PACE_ROUNDS and change <= _STEADY * before:
                memory["percentile"] = np.minimum(percentile + _PACE, 100.0)
            elif number > _PACE_ROUNDS and change >= _SHARP * before:
                memory["percentile"] = np.maximum(percentile - _PACE, _PACE)
            memory["taken_in"] = np.array([0.0, now])


def _drawn(
    odds: FloatArray, allowed: BoolArray, pool: int, count: int, candidates: Candidates
) -> IntArray:
    """Draw devices by odds, without replacement, from the best `pool` allowed devices."""
    best = smallest(-odds, allowed, pool)
    best = best[best >= 0]
    # The smallest of exponential times with the odds as rates are such a draw.
    with np.errstate(divide="ignore", invalid="ignore"):
        arrival = -np.log1p(-candidates.uniform[best]) / odds[best]
    return best[np.argsort(arrival)[:count]]
