"""The range of the features that an agent was trained with, and where a system leaves it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fl_edge_env import Scenario, physics
from fl_edge_env.checks import is_real
from fl_edge_env.scaling import FEATURES, Features, Scaling

# A feature's lowest and highest value.
Range: TypeAlias = tuple[float, float]

# How far a feature, a logarithm, may lie outside: a tenth of what it is the logarithm of. In its
# own system an agent stays inside; beyond a sixth (K = 3 after K = 2) it is 1.5 % off.
FEATURE_MARGIN = 0.1
# The factor by which the weight of the sampling error may differ; at 0.8 it costs 0.1 %.
_WEIGHT_FACTOR = 1.2


class SeenRange:
    """The lowest and highest value so far of every feature, in the order of the names."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self.low: NDArray[np.float32] = np.full(len(names), np.inf, dtype=np.float32)
        self.high = -self.low

    def add(self, features: Features) -> None:
        """Take in features, shape (..., F)."""
        flat = features.reshape(-1, features.shape[-1])
        np.minimum(self.low, flat.min(axis=0), out=self.low)
        np.maximum(self.high, flat.max(axis=0), out=self.high)

    def by_name(self) -> dict[str, Range]:
        """The ranges by the names of the features, none before the first ones were added."""
        if not np.isfinite(self.low).all():
            return {}
        ends = zip(self.low.tolist(), self.high.tolist(), strict=True)
        return dict(zip(self._names, ends, strict=True))


def checked_ranges(ranges: Mapping[str, Range], names: Sequence[str]) -> dict[str, Range]:
    """Ranges as a file has them, if they are of all features or of none."""
    if ranges and list(ranges) != list(names):
        raise ValueError(f"its ranges must be those of {', '.join(names)}, got {ranges!r}")
    for name, (low, high) in ranges.items():
        if not (is_real(low) and is_real(high) and math.isfinite(high - low) and low <= high):
            raise ValueError(f"its range of the {name} must be finite, got {low!r} to {high!r}")
    return {name: (float(low), float(high)) for name, (low, high) in ranges.items()}


def departures(met: Mapping[str, Range], known: Mapping[str, Range]) -> dict[str, str]:
    """The features met beyond their known range by more than `FEATURE_MARGIN`, with the words."""
    told = {}
    for name, (low, high) in met.items():
        least, most = known[name]
        ends = []
        if high > most + FEATURE_MARGIN:
            ends.append(f"up to {math.exp(high - most):.3g} times the largest")
        if low < least - FEATURE_MARGIN:
            ends.append(f"down to {math.exp(low - least):.2g} of the smallest")
        if ends:
            told[name] = f"{name} {' and '.join(ends)} in training"
    return told


def foreseen_departures(
    scenario: Scenario, trained_in: Scenario, seen: Mapping[str, Range]
) -> dict[str, str]:
    """The departures, in words, that can be told of another system before a round is played.

    The constants and the range of the gains bound all features but those that move with the queues.
    They are held against what training has seen and what it could have seen, as rare gains may
    have been missing. Beside them stands the weight of the sampling error, where it counts.
    """
    known = _foreseen_ranges(trained_in)
    for name, (low, high) in known.items():
        seen_low, seen_high = seen.get(name, (low, high))
        known[name] = min(low, seen_low), max(high, seen_high)
    told = departures(_foreseen_ranges(scenario), known)
    if trained_in.objective == "outcome":
        return told
    ours, theirs = _error_weight(scenario), _error_weight(trained_in)
    if not theirs / _WEIGHT_FACTOR <= ours <= theirs * _WEIGHT_FACTOR:
        ratio = ours / theirs if theirs else math.inf
        told["error weight"] = (
            f"weight of the sampling error against time {ratio:.3g} times that of training, which "
            "no feature shows"
        )
    return told


def _foreseen_ranges(scenario: Scenario) -> dict[str, Range]:
    """The ranges of `FEATURES` but the queue, over all devices and gains."""
    scaling = Scaling(scenario)
    box = scaling.feature_space()
    low, high = box.low.min(axis=0).tolist(), box.high.max(axis=0).tolist()
    ranges = dict(zip(scaling.names, zip(low, high, strict=True), strict=True))
    return {name: ranges[name] for name in FEATURES if name != "queue"}


def _error_weight(scenario: Scenario) -> float:
    """Weight lambda over the mean device time at the middle of everything."""
    device_time, _ = physics.time_and_energy(
        scenario.mean_gain, scenario.f_mid, scenario.p_mid, scenario
    )
    return float(scenario.lambda_ / device_time.mean())
