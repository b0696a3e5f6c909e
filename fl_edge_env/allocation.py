"""The decision of a round, and how it becomes an action of learning agents and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fl_edge_env.checks import all_true, real_array
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray, IntArray

# How far a decision may miss its bounds: relative for f, p and bandwidth, so that bounds that were
# rounded to 32 bits pass, and absolute for the sum of q.
BOUND_TOLERANCE = 1e-7
_SUM_TOLERANCE = 1e-6
# Below it the sampling error, w^2 / q, would leave the range of floating-point numbers.
_LEAST_Q = 1e-100
# Least part of the whole band that a device of a cohort may have: with less its time and energy
# lose all bounds. Far below what is worth while, so that a split may be clipped to it.
LEAST_SHARE = 1e-12
# Bands from here on [Hz] in which nobody means a single hertz.
_LEAST_BAND = 100.0


@dataclass(frozen=True, eq=False)
class Allocation:
    """The decision of the server in a round, in SI units.

    A *sampled* decision gives the probabilities `q`, from which K devices are drawn with
    replacement. A *chosen* decision names the `cohort`, at most K distinct devices. Energies, times
    and reward of the round depend on the kind; see `fl_edge_env.simulator.Round`.

    Where devices drop out, a sampled decision still gives a probability to every device, and the
    environment rescales the probabilities of the available ones. A chosen cohort must consist of
    available devices.

    Parameters
    ----------
    f : ndarray, shape (..., N)
        CPU frequency of each device [Hz].
    p : ndarray, shape (..., N)
        Transmission power of each device [W].
    q : ndarray, shape (..., N), optional
        Sampling probability of each device, in (0, 1], summing to one: a sampled decision.
    cohort : ndarray of int, shape (..., k), optional
        Indices of 1 to K distinct devices: a chosen decision. In a batch, rows that name fewer
        devices than others are filled up with -1.
    weights : ndarray, shape (..., k), optional
        How much the update of each device of a chosen cohort counts when the server aggregates;
        by default its share of the cohort's data. Entries beside a -1 do not count.
    first : int or ndarray of int, shape (...), optional
        The round ends when so many devices of a chosen cohort have finished, or at the scenario's
        deadline. The others are late: they have spent what they did until then, and their updates
        are lost. By default the round waits for all.
    bandwidth : ndarray, shape (..., N), optional
        Part of the band of each device of a chosen cohort [Hz], at least ``1e-12`` of the band and
        together at most the whole; those of other devices do not count. By default each device has
        ``B / K``, however many take part.

    Raises
    ------
    ValueError
        If an entry is not a real number, the shapes do not fit, or both or neither of `q` and
        `cohort` are given.
    """

    f: FloatArray
    p: FloatArray
    q: FloatArray | None = None
    cohort: IntArray | None = None
    weights: FloatArray | None = None
    first: IntArray | int | None = None
    bandwidth: FloatArray | None = None

    def __post_init__(self) -> None:
        for name in ("f", "p", "q", "bandwidth", "weights"):
            value = getattr(self, name)
            if value is not None or name in ("f", "p"):
                array = real_array(name, value)
                if array is not value:
                    object.__setattr__(self, name, array)
        if (self.q is None) == (self.cohort is None):
            given = "neither" if self.q is None else "both"
            raise ValueError(
                "a decision has either q, from which K devices are drawn, or cohort, the devices "
                f"chosen; got {given}"
            )
        named = [n for n in ("f", "p", "q", "bandwidth") if getattr(self, n) is not None]
        shapes = [getattr(self, name).shape for name in named]
        if len(set(shapes)) > 1 or self.f.ndim == 0:
            raise ValueError(
                f"{_listed(named)} must have the same shape (..., N), with an entry for each "
                f"device, got {_listed(shapes)}"
            )
        if self.cohort is not None:
            object.__setattr__(self, "cohort", _index_array(self.cohort))
        elif self.bandwidth is not None:
            raise ValueError(
                "bandwidth belongs to a chosen cohort; each device drawn from q has an equal part "
                "of the band: leave bandwidth out, or give cohort in place of q"
            )
        self._check_weights()
        if self.first is not None:
            object.__setattr__(self, "first", self._first_array(self.first))

    def _check_weights(self) -> None:
        if self.weights is None:
            return
        if self.cohort is None:
            raise ValueError(
                "weights belong to a chosen cohort; the updates of devices drawn from q count "
                "w / (K q): leave weights out, or give cohort in place of q"
            )
        if self.weights.shape != self.cohort.shape:
            raise ValueError(
                f"weights must have the shape of cohort, {self.cohort.shape}, "
                f"got {self.weights.shape}"
            )
        if not all_true((self.weights >= 0) & (self.weights < np.inf)):
            raise ValueError(
                f"weights must be finite and at least zero, got {_extremes(self.weights)}"
            )

    def _first_array(self, value: object) -> IntArray:
        """`first` with a number for each system."""
        if self.cohort is None:
            raise ValueError(
                "first belongs to a chosen cohort; a device drawn from q may count more than once: "
                "leave first out, or give cohort in place of q"
            )
        given, shape = np.asarray(value), self.cohort.shape[:-1]
        if given.dtype.kind not in "iu" or given.shape not in ((), shape):
            raise ValueError(
                f"first must be an integer, or integers of shape {shape}, one for each system, "
                f"got {value!r}"
            )
        return np.broadcast_to(given, shape).astype(np.int64)

    def validate(self, scenario: Scenario) -> None:
        """Raise `ValueError` where a shape, bound, sum or cohort does not fit a scenario."""
        if self.f.shape[-1] != scenario.num_devices:
            raise ValueError(
                f"f, p and q must have {scenario.num_devices} entries, one for each device, "
                f"got shape {self.f.shape}"
            )
        _check_range("f", self.f, scenario.f_min, scenario.f_max)
        _check_range("p", self.p, scenario.p_min, scenario.p_max)
        if self.q is None:
            _check_cohort(self, scenario)
        else:
            _check_probabilities(self.q)
        if self.bandwidth is not None:
            _check_bandwidth(self.bandwidth, self.participates, scenario.bandwidth_hz)
        if self.first is not None and self.cohort is not None:
            named = np.count_nonzero(self.cohort >= 0, axis=-1)
            if not np.all((self.first >= 1) & (self.first <= named)):
                raise ValueError(
                    "first must be from 1 to the number of devices in the cohort, "
                    f"{np.asarray(named).tolist()}, got {np.asarray(self.first).tolist()}"
                )

    @property
    def cohort_bandwidth(self) -> FloatArray | None:
        """The `bandwidth` with zero outside the cohort; None if the decision gives none."""
        if self.bandwidth is None:
            return None
        return np.where(self.participates, self.bandwidth, 0.0)

    @cached_property
    def participates(self) -> BoolArray:
        """Members of the chosen cohort, bool of shape (..., N).

        Raises `ValueError` for a sampled decision.
        """
        if self.cohort is None:
            raise ValueError("who takes part in a sampled decision is not known before the draw")
        return membership(self.cohort, self.f.shape[-1])


def decode_action(
    action: NDArray[np.floating],
    scenario: Scenario,
    softmax_scale: float,
    available: BoolArray | None = None,
) -> Allocation:
    """Turn an action, an array of numbers in [-1, 1], into an allocation.

    The rows are f, p and q. The first two map linearly to their ranges; the third is a score that a
    softmax turns into a distribution, so that the zero action is the middle of both ranges with
    uniform sampling, and q varies over devices by at most ``exp(2 * softmax_scale)``. Where the
    scenario's objective is the outcome, the scores rank the devices instead: the cohort is the K
    `available` devices, by default of all, with the highest scores, of equal ones the first.
    Entries outside the box are clipped.

    Raises `ValueError` if the shape is not (..., 3, N), or an entry is NaN or not a number.
    """
    values, shape = real_array("action", action), (3, scenario.num_devices)
    if values.ndim < 2 or values.shape[-2:] != shape:
        raise ValueError(
            f"action must be an Allocation or an array of shape {shape} "
            f"with rows f, p, q, got shape {values.shape}"
        )
    if not all_true(values == values):  # as of NaN alone
        raise ValueError("action must hold numbers in [-1, 1], got NaN")
    unit = values.clip(-1.0, 1.0)
    f = _from_unit(unit[..., 0, :], scenario.f_min, scenario.f_mid, scenario.f_max)
    p = _from_unit(unit[..., 1, :], scenario.p_min, scenario.p_mid, scenario.p_max)
    score = unit[..., 2, :]
    if scenario.objective == "outcome":
        places = min(scenario.cohort_size, scenario.num_devices)
        return Allocation(f, p, cohort=highest(score, places, available))
    score = softmax_scale * score
    odds = np.exp(score - score.max(axis=-1, keepdims=True))
    return Allocation(f, p, q=odds / odds.sum(axis=-1, keepdims=True))


def encode_action(
    allocation: Allocation, scenario: Scenario, softmax_scale: float
) -> NDArray[np.float32]:
    """Turn an allocation into the action, (..., 3, N), from which `decode_action` makes it again.

    Scores are centred in [-1, 1]. Where q varies by more than a factor of ``exp(2 *
    softmax_scale)``, no action expresses it, and scores are clipped. Where the scenario's objective
    is the outcome, the devices of the cohort have the score 1 and the others -1. If the cohort has
    fewer than K devices, `decode_action` fills it up. An action has no bandwidth.

    Raises `ValueError` if the kind of the decision is not that of the scenario's actions: with the
    objective ``"outcome"`` they are chosen, and sampled otherwise.
    """
    if (allocation.q is None) != (scenario.objective == "outcome"):
        kinds = ("chosen", "sampled") if allocation.q is None else ("sampled", "chosen")
        raise ValueError(
            f"an action holds a {kinds[1]} decision where the objective is "
            f"{scenario.objective!r}: a {kinds[0]} decision cannot be encoded"
        )
    if allocation.q is None:
        score = np.where(allocation.participates, 1.0, -1.0)
    else:
        score = np.log(allocation.q) / softmax_scale
        low, high = score.min(axis=-1, keepdims=True), score.max(axis=-1, keepdims=True)
        score = score - 0.5 * (low + high)
    rows = [
        _to_unit(allocation.f, scenario.f_min, scenario.f_max),
        _to_unit(allocation.p, scenario.p_min, scenario.p_max),
        score,
    ]
    action: NDArray[np.float32] = np.stack(rows, axis=-2).clip(-1.0, 1.0).astype(np.float32)
    return action


def _from_unit(row: FloatArray, low: FloatArray, mid: FloatArray, high: FloatArray) -> FloatArray:
    """Numbers in [-1, 1] as values of the range from low to high."""
    # Near the lower end rounding has the size of the upper one, which may be far larger.
    return np.maximum(mid + 0.5 * (high - low) * row, (1 - BOUND_TOLERANCE) * low)


def _to_unit(value: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """The inverse of `_from_unit`; an empty range maps to 0."""
    span = np.where(high > low, high - low, 1.0)
    return np.where(high > low, 2.0 * (value - low) / span - 1.0, 0.0)


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


def _listed(items: Iterable[object]) -> str:
    """Items in words: ``a, b and c``."""
    *others, last = map(str, items)
    return f"{', '.join(others)} and {last}"


def _index_array(value: object) -> IntArray:
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "iu":
            raise TypeError("not integers")
        return array.astype(np.int64)
    except (TypeError, ValueError):
        raise ValueError(f"cohort must hold integer device indices, got {value!r}") from None


def _extremes(value: FloatArray) -> str:
    """The least and the largest value, for messages."""
    return f"values from {value.min():.9g} to {value.max():.9g}"


def _check_range(name: str, value: FloatArray, low: FloatArray, high: FloatArray) -> None:
    if all_true((value >= low) & (value <= high)):
        return
    inside = (value >= low * (1 - BOUND_TOLERANCE)) & (value <= high * (1 + BOUND_TOLERANCE))
    if not all_true(inside):
        worst = np.unravel_index(int(np.argmin(inside)), inside.shape)
        device = int(worst[-1])
        raise ValueError(
            f"{name} must lie in [{low[device]:.12g}, {high[device]:.12g}] for device "
            f"{device}, got {value[worst]:.12g}"
        )


def _check_probabilities(q: FloatArray) -> None:
    # Written so that NaN fails the comparisons.
    if not all_true((q >= _LEAST_Q) & (q <= 1)):
        raise ValueError(
            f"q must lie in (0, 1] for every device and not be below {_LEAST_Q:g}, "
            f"got {_extremes(q)}; a device that must not take part needs a chosen cohort "
            "in place of q"
        )
    total = q.sum(axis=-1)
    if not all_true(np.abs(total - 1) <= _SUM_TOLERANCE):
        raise ValueError(
            f"q must sum to 1 within {_SUM_TOLERANCE:g}, got a sum of {_extremes(total)}"
        )


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


def _check_bandwidth(bandwidth: FloatArray, member: BoolArray, band: float) -> None:
    # Written so that NaN fails the comparisons.
    inside = (bandwidth >= 0) & (bandwidth <= band * (1 + BOUND_TOLERANCE))
    if not all_true(inside):
        where = tuple(np.argwhere(~inside)[0])
        raise ValueError(
            f"bandwidth must lie in [0, bandwidth_hz = {band:g}], in hertz, for every device, "
            f"got {bandwidth[where]:.9g} for device {where[-1]}: give each device of the "
            "cohort its part of the band, and the others zero"
        )
    least = LEAST_SHARE * band
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
