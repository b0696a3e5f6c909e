"""The parts of a decision: the one table of what the server sets in a round.

Every part is a field of `Allocation` and a row of an action; `Scenario.decision` holds those of a
scenario, in the order of the rows. Encoding, spaces, checks and scaling go over the table, so that
a part is added here, to `Allocation`, and to the scenario and physics that use it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_edge_env.checks import all_true, read_only
from fl_edge_env.typing import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from fl_edge_env.allocation import Allocation
    from fl_edge_env.scenario import Scenario

# How far a decision may miss its bounds: relative for settings, so that bounds that were rounded
# to 32 bits pass, and absolute for the sum of q.
BOUND_TOLERANCE = 1e-7
_SUM_TOLERANCE = 1e-6
# Below it the sampling error, w^2 / q, would leave the range of floating-point numbers.
_LEAST_Q = 1e-100
# Least part of the whole band that a device may have: with less its time and energy lose all
# bounds. Far below what is worth while, so that a split may be clipped to it without a thought.
LEAST_SHARE = 1e-12
# Bands from here on [Hz] in which nobody means a single hertz.
_LEAST_BAND = 100.0


class Decoding(NamedTuple):
    """Parameters of `decode_action`, and the fields of `Allocation` decided so far."""

    scenario: Scenario
    softmax_scale: float
    available: BoolArray | None
    decided: dict[str, Any]


def _always(scenario: Scenario) -> bool:  # noqa: ARG001
    return True


@dataclass(frozen=True, eq=False)
class Part(ABC):
    """A part of the decision.

    `name` is the field of `Allocation`, and `plural` names its values in messages. `exists` tells
    if decisions of a scenario have it, and actions its row; `absent` is the end of the message to
    who gives it where not.
    """

    name: str
    plural: str
    exists: Callable[[Scenario], bool] = _always
    absent: str = ""

    @abstractmethod
    def decode(self, row: FloatArray, by: Decoding) -> None:
        """Add to the fields of `Allocation` that of a row in [-1, 1], shape (..., N)."""

    @abstractmethod
    def encode(
        self, allocation: Allocation, scenario: Scenario, softmax_scale: float
    ) -> FloatArray:
        """The row from which `decode` makes the part again."""

    @abstractmethod
    def check(self, allocation: Allocation, scenario: Scenario) -> None:
        """Raise `ValueError` where the part of an allocation does not fit the scenario."""


@dataclass(frozen=True, eq=False)
class Setting(Part):
    """A number for each device, in the range from the scenario's ``name_min`` to ``name_max``.

    A row maps linearly to the range. A device takes most time at the lower end, and most energy at
    the upper one.
    """

    @cached_property
    def _range(self) -> Callable[[Scenario], tuple[FloatArray, FloatArray, FloatArray]]:
        """Gives the lower end, the middle and the upper end of the range, shape (N,)."""
        return attrgetter(*(f"{self.name}_{point}" for point in ("min", "mid", "max")))

    def at(self, scenario: Scenario, point: str) -> FloatArray:
        """Value at a point of the range, shape (N,): min, mid or max."""
        value: FloatArray = getattr(scenario, f"{self.name}_{point}")
        return value

    def decode(self, row: FloatArray, by: Decoding) -> None:
        """See `Part.decode`."""
        mid, half, least = by.scenario.spans[self.name]
        by.decided[self.name] = np.maximum(mid + half * row, least)

    def span(self, scenario: Scenario) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Middle and half width of the range, and the least value of a decoded row, shape (N,)."""
        low, mid, high = self._range(scenario)
        # Near the lower end rounding has the size of the upper one, which may be far larger.
        return mid, read_only(0.5 * (high - low)), read_only((1 - BOUND_TOLERANCE) * low)

    def encode(
        self,
        allocation: Allocation,
        scenario: Scenario,
        softmax_scale: float,  # noqa: ARG002
    ) -> FloatArray:
        """See `Part.encode`."""
        low, _, high = self._range(scenario)
        value: FloatArray = getattr(allocation, self.name)
        span = np.where(high > low, high - low, 1.0)  # an empty range maps to 0
        return np.where(high > low, 2.0 * (value - low) / span - 1.0, 0.0)

    def check(self, allocation: Allocation, scenario: Scenario) -> None:
        """See `Part.check`."""
        value: FloatArray = getattr(allocation, self.name)
        low, _, high = self._range(scenario)
        if all_true((value >= low) & (value <= high)):
            return
        inside = (value >= low * (1 - BOUND_TOLERANCE)) & (value <= high * (1 + BOUND_TOLERANCE))
        if not all_true(inside):
            worst = np.unravel_index(int(np.argmin(inside)), inside.shape)
            device = int(worst[-1])
            raise ValueError(
                f"{self.name} must lie in [{low[device]:.12g}, {high[device]:.12g}] for device "
                f"{device}, got {value[worst]:.12g}"
            )


@dataclass(frozen=True, eq=False)
class Selection(Part):
    """The choice of devices: probabilities from which they are drawn, or a cohort.

    A row holds scores. A softmax turns them into probabilities; where the scenario's objective is
    the outcome, the K devices with the highest scores are the cohort.
    """

    def decode(self, row: FloatArray, by: Decoding) -> None:
        """See `Part.decode`."""
        if by.scenario.objective == "outcome":
            places = min(by.scenario.cohort_size, by.scenario.num_devices)
            by.decided["cohort"] = highest(row, places, by.available)
            return
        score = by.softmax_scale * row
        odds = np.exp(score - score.max(axis=-1, keepdims=True))
        by.decided["q"] = odds / odds.sum(axis=-1, keepdims=True)

    def encode(
        self, allocation: Allocation, scenario: Scenario, softmax_scale: float
    ) -> FloatArray:
        """See `Part.encode`."""
        if (allocation.q is None) != (scenario.objective == "outcome"):
            kinds = ("chosen", "sampled") if allocation.q is None else ("sampled", "chosen")
            raise ValueError(
                f"an action holds a {kinds[1]} decision where the objective is "
                f"{scenario.objective!r}: a {kinds[0]} decision cannot be encoded"
            )
        if allocation.q is None:
            return np.where(allocation.participates, 1.0, -1.0)
        score = np.log(allocation.q) / softmax_scale
        low, high = score.min(axis=-1, keepdims=True), score.max(axis=-1, keepdims=True)
        centred: FloatArray = score - 0.5 * (low + high)
        return centred

    def check(self, allocation: Allocation, scenario: Scenario) -> None:
        """See `Part.check`."""
        if allocation.q is None:
            _check_cohort(allocation, scenario)
            return
        q = allocation.q
        # Written so that NaN fails the comparisons.
        if not all_true((q >= _LEAST_Q) & (q <= 1)):
            raise ValueError(
                f"q must lie in (0, 1] for every device and not be below {_LEAST_Q:g}, "
                f"got {extremes(q)}; a device that must not take part needs a chosen cohort "
                "in place of q"
            )
        total = q.sum(axis=-1)
        if not all_true(np.abs(total - 1) <= _SUM_TOLERANCE):
            raise ValueError(
                f"q must sum to 1 within {_SUM_TOLERANCE:g}, got a sum of {extremes(total)}"
            )


@dataclass(frozen=True, eq=False)
class Shares(Part):
    """The parts of the band of a chosen cohort [Hz].

    A row holds scores, which a softmax over the cohort turns into shares of the whole band. In a
    sampled decision each draw has an equal part, whatever the row.
    """

    def decode(self, row: FloatArray, by: Decoding) -> None:
        """See `Part.decode`."""
        if "cohort" not in by.decided:
            return
        member = membership(by.decided["cohort"], row.shape[-1])
        by.decided[self.name] = split_band(by.softmax_scale * row, member, by.scenario)

    def encode(
        self,
        allocation: Allocation,
        scenario: Scenario,  # noqa: ARG002
        softmax_scale: float,
    ) -> FloatArray:
        """See `Part.encode`."""
        if allocation.bandwidth is None or allocation.cohort is None:
            return np.zeros(allocation.f.shape)
        member = allocation.participates
        score = np.log(np.where(member, allocation.bandwidth, 1.0)) / softmax_scale
        low = np.where(member, score, np.inf).min(axis=-1, keepdims=True)
        high = np.where(member, score, -np.inf).max(axis=-1, keepdims=True)
        return np.where(member, score - 0.5 * (low + high), 0.0)

    def check(self, allocation: Allocation, scenario: Scenario) -> None:
        """See `Part.check`."""
        bandwidth, band = allocation.bandwidth, scenario.bandwidth_hz
        if bandwidth is None:
            return
        # Written so that NaN fails the comparisons.
        inside = (bandwidth >= 0) & (bandwidth <= band * (1 + BOUND_TOLERANCE))
        if not all_true(inside):
            where = tuple(np.argwhere(~inside)[0])
            raise ValueError(
                f"bandwidth must lie in [0, bandwidth_hz = {band:g}], in hertz, for every device, "
                f"got {bandwidth[where]:.9g} for device {where[-1]}: give each device of the "
                "cohort its part of the band, and the others zero"
            )
        member, least = allocation.participates, LEAST_SHARE * band
        too_little = member & (bandwidth < (1 - BOUND_TOLERANCE) * least)
        if too_little.any():
            where = tuple(np.argwhere(too_little)[0])
            raise ValueError(
                f"bandwidth must be at least {least:g} Hz, {LEAST_SHARE:g} of the band, for every "
                f"device of the cohort, as it would hardly finish otherwise, got "
                f"{bandwidth[where]:.9g} for device {where[-1]}: give it more, or leave it out of "
                "the cohort"
            )
        total = np.where(member, bandwidth, 0.0).sum(axis=-1)
        if not all_true(total <= band * (1 + BOUND_TOLERANCE)):
            raise ValueError(
                f"bandwidth must sum to at most bandwidth_hz = {band:g} over the cohort, got a sum "
                f"of {np.max(total):.9g}: multiply it by bandwidth_hz over its sum"
            )
        # Shares of one would be valid parts of a hertz, with which rounds hardly end.
        if band >= _LEAST_BAND and np.any(np.abs(total - 1) <= _SUM_TOLERANCE):
            raise ValueError(
                "bandwidth is in hertz and sums to bandwidth_hz over the cohort, got a sum of 1: "
                f"multiply shares of the band by bandwidth_hz = {band:g}"
            )


def shares_band(scenario: Scenario) -> bool:
    """True if chosen decisions may share out the band."""
    return scenario.bandwidth_split == "shared"


PARTS: tuple[Part, ...] = (
    Setting("f", "frequencies"),
    Setting("p", "powers"),
    Selection("q", "scores"),
    Shares(
        "bandwidth",
        "parts of the band",
        exists=shares_band,
        absent=", in which each device has an equal part of the band: leave it out, or give the "
        'scenario bandwidth_split="shared"',
    ),
)
SETTINGS = tuple(part for part in PARTS if isinstance(part, Setting))


def settings_at(scenario: Scenario, point: str) -> dict[str, FloatArray]:
    """Settings at a point of their ranges by name, as `physics.time_and_energy` takes them.

    The `point` is ``"min"``, at which a device takes the most time, ``"mid"``, or ``"max"``, at
    which it takes the most energy.
    """
    return {part.name: part.at(scenario, point) for part in SETTINGS if part.exists(scenario)}


def least_band(scenario: Scenario) -> dict[str, FloatArray]:
    """The least parts of the band [Hz] by name, as `physics.time_and_energy` takes them.

    Nothing where all parts are equal.
    """
    if not shares_band(scenario):
        return {}
    return {"bandwidth": np.full(scenario.num_devices, LEAST_SHARE * scenario.bandwidth_hz)}


def split_band(score: FloatArray, member: BoolArray, scenario: Scenario) -> FloatArray:
    """The whole band [Hz], shared out by a softmax of the members' scores; all shapes (..., N)."""
    score = np.where(member, score, -np.inf)
    top = np.maximum(score.max(axis=-1, keepdims=True), np.finfo(np.float64).min)
    odds = np.exp(score - top)
    total = np.maximum(odds.sum(axis=-1, keepdims=True), 1.0)  # less only where nobody is a member
    return np.where(member, scenario.bandwidth_hz * np.maximum(odds / total, LEAST_SHARE), 0.0)


def highest(
    score: NDArray[np.floating], count: int, available: BoolArray | None = None
) -> IntArray:
    """Indices of the `count` highest scores, of equal ones the first, shape (..., count).

    Only `available` devices are named, by default all. Filled up with -1 where there are fewer.
    """
    rank = -score if available is None else np.where(available, -score, np.inf)
    order = np.argsort(rank, axis=-1, kind="stable")[..., :count]
    named: IntArray = np.where(np.take_along_axis(rank, order, axis=-1) < np.inf, order, -1)
    if (lacking := count - named.shape[-1]) > 0:
        nobody = np.full((*named.shape[:-1], lacking), -1)
        named = np.concatenate([named, nobody], axis=-1)
    return named


def membership(cohort: IntArray, num_devices: int) -> BoolArray:
    """Members of cohorts (..., k), filled up with -1, as bool of shape (..., N)."""
    # -1 is the last column, which stands for nobody.
    chosen = np.zeros((*cohort.shape[:-1], num_devices + 1), dtype=np.bool_)
    np.put_along_axis(chosen, cohort, True, axis=-1)
    return chosen[..., :-1]


def extremes(value: FloatArray) -> str:
    """The least and the largest value, for messages."""
    return f"values from {value.min():.9g} to {value.max():.9g}"


def _check_cohort(allocation: Allocation, scenario: Scenario) -> None:
    cohort, batch = allocation.cohort, allocation.f.shape[:-1]
    assert cohort is not None
    size, most = cohort.shape[-1] if cohort.ndim else 0, scenario.cohort_size
    if cohort.shape[:-1] != batch or not cohort.ndim or not 1 <= size <= most:
        expected = ", ".join([*map(str, batch), "k"])
        raise ValueError(
            f"cohort must have shape ({expected}) with k from 1 to cohort_size = {most}, "
            f"got {cohort.shape}"
        )
    if cohort.min() < -1 or cohort.max() >= scenario.num_devices:
        raise ValueError(
            f"cohort must hold device indices from 0 to {scenario.num_devices - 1}, "
            f"or -1 for none, got {cohort.tolist()}"
        )
    named = np.count_nonzero(cohort >= 0, axis=-1)
    if not np.all(named > 0):
        raise ValueError(f"cohort must name at least one device, got {cohort.tolist()}")
    if np.any(np.count_nonzero(allocation.participates, axis=-1) != named):
        raise ValueError(
            f"cohort must name each device once, got {cohort.tolist()}: to draw with "
            "replacement give q in its place"
        )
