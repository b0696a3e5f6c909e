"""The decision of a round, and its conversion from actions of learning agents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fl_edge_env import physics
from fl_edge_env.checks import Array, all_true, real_array
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray, IntArray

# Tolerated violations of a decision's bounds: relative for f, p and bandwidth, so that bounds
# rounded to 32 bits pass, and absolute for the sum of q. `Allocation.validate` then corrects them.
_BOUND_TOLERANCE = 1e-7
_SUM_TOLERANCE = 1e-6
# With a smaller q the sampling error, w^2 / q, would overflow.
LEAST_Q = 1e-100
# Least fraction of the band for a device of a cohort: with less, its time and energy are unbounded.
# It is far below any useful bandwidth, so that a split may be clipped to it.
LEAST_SHARE = 1e-12
# In a band of at least this width [Hz], bandwidths that sum to 1 Hz must be fractions by mistake.
_LEAST_BAND = 100.0


@dataclass(frozen=True, eq=False, init=False)
class Allocation:
    """The decision of the server in a round, in SI units.

    A *sampled* decision gives the probabilities `q`, from which K devices are drawn with
    replacement. A *chosen* decision names the `cohort`, at most K distinct devices. Energies, times
    and reward of the round depend on the kind; see `fl_edge_env.round.Round`.

    If devices drop out, the environment renormalises `q` over the available devices, and a cohort
    must consist of available devices.

    A field may be a number, which holds for all devices, and fields broadcast as in NumPy:
    ``Allocation(f=1e9, p=0.1, q=1 / 120)``. Once one of them has an entry for each device, all are
    arrays of the same shape.

    Parameters
    ----------
    f : array_like, shape (..., N)
        CPU frequency of each device [Hz].
    p : array_like, shape (..., N)
        Transmission power of each device [W].
    q : array_like, shape (..., N), optional
        Sampling probability of each device, in (0, 1], summing to one: a sampled decision.
    cohort : array_like of int, shape (..., k), optional
        Indices of 1 to K distinct devices: a chosen decision. In a batch, rows that name fewer
        devices than others are padded with -1.
    weights : array_like, shape (..., k), optional
        Aggregation weight of each device of a chosen cohort, by default its share of the cohort's
        data. Entries next to a -1 are ignored.
    first : int or array_like of int, shape (...), optional
        The round ends when this many devices of a chosen cohort have finished, or at the scenario's
        deadline. The others are late: they have spent energy until then, but their updates are
        lost. By default the round waits for all.
    bandwidth : array_like, shape (..., N), optional
        Bandwidth of each device of a chosen cohort [Hz], at least ``1e-12`` of the band for each
        and at most the whole band together; other devices' entries are ignored. By default each
        device has ``B / K``, however many take part.

    Raises
    ------
    ValueError
        If an entry is not a real number, the shapes do not fit, or both or neither of `q` and
        `cohort` are given.
    """

    f: FloatArray
    p: FloatArray
    q: FloatArray | None
    cohort: IntArray | None
    weights: FloatArray | None
    first: IntArray | None
    bandwidth: FloatArray | None

    def __init__(
        self,
        f: ArrayLike,
        p: ArrayLike,
        q: ArrayLike | None = None,
        cohort: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        first: ArrayLike | None = None,
        bandwidth: ArrayLike | None = None,
    ) -> None:
        if (q is None) == (cohort is None):
            raise ValueError(
                "a decision needs either q, to draw K devices, or cohort, to choose devices; "
                f"got {'neither' if q is None else 'both'}"
            )
        for name, value in {"weights": weights, "first": first, "bandwidth": bandwidth}.items():
            if cohort is None and value is not None:
                raise ValueError(
                    f"{name} needs a chosen cohort: leave it out, or give cohort instead of q"
                )
        given = {"f": f, "p": p, "q": q, "bandwidth": bandwidth}
        fields: dict[str, NDArray[Any]] = {
            name: real_array(name, value) for name, value in given.items() if value is not None
        }
        if cohort is not None:
            cohort = fields["cohort"] = _integers("cohort", cohort)
            if not cohort.ndim or not cohort.size:
                raise ValueError(
                    f"cohort must have shape (..., k) with k of at least 1, got {cohort.shape}"
                )
        _broadcast(fields)
        if weights is not None:
            given_weights = real_array("weights", weights)
            fields["weights"] = _fitted("weights", given_weights, fields["cohort"].shape)
        if first is not None:
            number = _integers("first", first)
            fields["first"] = _fitted("first", number, fields["cohort"].shape[:-1])
        vars(self).update(_NOTHING_GIVEN, **fields)

    @classmethod
    def _trusted(cls, **arrays: NDArray[Any]) -> Allocation:
        """Make an allocation from arrays of the right type and shape, without checks."""
        allocation = cls.__new__(cls)
        vars(allocation).update(_NOTHING_GIVEN, **arrays)
        return allocation

    def of_shape(self, shape: tuple[int, ...]) -> Allocation:
        """Broadcast f, p, q and bandwidth to a shape (..., N); `ValueError` if they do not fit.

        Numbers hold for all devices, and a decision for one system for all systems of a batch.
        """
        if self.f.shape == shape:
            return self
        try:
            return replace(self, f=np.broadcast_to(self.f, shape))
        except ValueError:
            raise ValueError(
                f"f, p and q must have shape {shape}, a row for each system of a batch, "
                f"got {self.f.shape}"
            ) from None

    def validate(self, scenario: Scenario) -> Allocation:
        """Check the decision, and correct small violations of its bounds.

        Bounds and sums may be violated by 32-bit rounding. f and p are then clipped, q is divided
        by its sum, and bandwidths that exceed the band are scaled down to it. 64-bit rounding
        errors in a sum remain.

        Raises `ValueError` if a shape, bound, sum or cohort does not fit the scenario.
        """
        whole = self.of_shape((*self.f.shape[:-1], scenario.num_devices))
        used: dict[str, Any] = {
            "f": _in_range("f", whole.f, scenario.f_min, scenario.f_max),
            "p": _in_range("p", whole.p, scenario.p_min, scenario.p_max),
        }
        if whole.q is not None:
            used["q"] = _probabilities(whole.q)
        if whole.cohort is not None:
            _check_cohort(whole, whole.cohort, scenario)
        if whole.bandwidth is not None:
            used["bandwidth"] = _bandwidth(
                whole.bandwidth, whole.participates, scenario.bandwidth_hz
            )
        moved = {name: value for name, value in used.items() if value is not getattr(whole, name)}
        return replace(whole, **moved) if moved else whole

    @cached_property
    def participates(self) -> BoolArray:
        """Members of the chosen cohort, bool of shape (..., N).

        Raises `ValueError` for a sampled decision.
        """
        if self.cohort is None or not self.f.ndim:
            raise ValueError(
                "participants are known before the round only if a cohort is chosen and f has an "
                "entry for each device: give cohort instead of q, and f of shape (..., N)"
            )
        # An entry of -1 marks the extra last column, which is dropped.
        chosen = np.zeros((*self.cohort.shape[:-1], self.f.shape[-1] + 1), dtype=np.bool_)
        np.put_along_axis(chosen, self.cohort, True, axis=-1)
        return chosen[..., :-1]


_NOTHING_GIVEN = dict.fromkeys(Allocation.__annotations__)


def decode_action(
    action: NDArray[np.floating],
    scenario: Scenario,
    softmax_scale: float,
    available: BoolArray | None = None,
) -> Allocation:
    """Turn an action, an array of numbers in [-1, 1], into an allocation.

    The rows are f, p and q. f and p map linearly to their ranges; a softmax turns the scores in the
    third row into q. The zero action is the middle of both ranges with uniform sampling, and q
    varies over devices by a factor of at most ``exp(2 * softmax_scale)``. With
    ``objective="outcome"`` the scores rank the devices instead: the cohort is the K `available`
    devices (by default all are) with the highest scores; ties go to the lower index. Entries
    outside the box are clipped.

    Raises `ValueError` if the shape is not (..., 3, N), or an entry is NaN or not a number.
    """
    values = real_array("action", action)
    shape = (3, scenario.num_devices)
    if values.ndim < 2 or values.shape[-2:] != shape:
        raise ValueError(
            f"action must be an Allocation or an array of shape {shape} "
            f"with rows f, p, q, got shape {values.shape}"
        )
    unit = values.clip(-1.0, 1.0)
    if np.isnan(unit.sum()):  # only NaN entries cause this
        raise ValueError("action must hold numbers in [-1, 1], got NaN")
    f = _from_unit(unit[..., 0, :], scenario.f_min, scenario.f_mid, scenario.f_max)
    p = _from_unit(unit[..., 1, :], scenario.p_min, scenario.p_mid, scenario.p_max)
    score = unit[..., 2, :]
    if scenario.objective == "outcome":
        return Allocation._trusted(
            f=f, p=p, cohort=smallest(-score, available, scenario.cohort_size)
        )
    odds = softmax_scale * score
    odds -= odds.max(axis=-1, keepdims=True)
    np.exp(odds, out=odds)
    odds /= odds.sum(axis=-1, keepdims=True)
    return Allocation._trusted(f=f, p=p, q=odds)


def _from_unit(row: FloatArray, low: FloatArray, mid: FloatArray, high: FloatArray) -> FloatArray:
    """Map numbers in [-1, 1] to the range from low to high."""
    value = 0.5 * (high - low) * row
    value += mid
    # Rounding errors scale with the upper end, which may be far larger than the lower one.
    np.maximum(value, low, out=value)
    return np.minimum(value, high, out=value)


def normalized(q: FloatArray) -> FloatArray:
    """Divide probabilities by their sum, unless it is 1 up to rounding."""
    total = q.sum(axis=-1, keepdims=True)
    missed = np.abs(total - 1.0) > physics.ROUNDING
    return q / np.where(missed, total, 1.0) if missed.any() else q


def smallest(key: FloatArray, allowed: BoolArray | None, count: int) -> IntArray:
    """The allowed devices with the smallest keys, in ascending order; by default all are allowed.

    `key` and `allowed` have shape (..., N); ties go to the smaller index. The result has shape
    (..., min(count, N)), padded with -1 if fewer are allowed.
    """
    if allowed is None or all_true(allowed):
        return np.argsort(key, axis=-1, kind="stable")[..., :count]
    # Sort by `allowed` first, then by key.
    order = np.lexsort((key, ~allowed), axis=-1)[..., :count]
    return np.where(np.take_along_axis(allowed, order, axis=-1), order, -1)


def _integers(name: str, value: object) -> IntArray:
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "iu":
            raise TypeError("not integers")
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold integers, got {value!r}") from None
    return array.astype(np.int64)


def _broadcast(fields: dict[str, NDArray[Any]]) -> None:
    """Broadcast the fields to one shape (..., N), and a cohort to shape (..., k)."""
    shapes = {name: values.shape for name, values in fields.items()}
    per_device = [s for name, s in shapes.items() if name != "cohort"]
    batch = shapes.get("cohort", shapes["f"])[:-1]
    if {*per_device} == {(*batch, *shapes["f"][-1:])}:
        return
    try:
        shape = np.broadcast_shapes(*per_device, (*batch, 1))
    except ValueError:
        raise ValueError(
            "a decision must hold numbers or arrays of one shape (..., N), with an entry for each "
            f"device, and cohort of shape (..., k), got {shapes}"
        ) from None
    if any(per_device):  # otherwise the number of devices is not known yet
        for name, values in fields.items():
            whole = (*shape[:-1], values.shape[-1]) if name == "cohort" else shape
            if values.shape != whole:
                fields[name] = np.array(np.broadcast_to(values, whole), order="C")


def _fitted(name: str, values: Array, shape: tuple[int, ...]) -> Array:
    """Broadcast values to a shape; `ValueError` if they do not fit."""
    try:
        return np.broadcast_to(values, shape).copy()  # type: ignore[return-value]
    except ValueError:
        raise ValueError(
            f"{name} must be a number or have shape {shape}, got {values.shape}"
        ) from None


def _extremes(value: FloatArray) -> str:
    """The least and the largest value, or NaN if there is one, for messages."""
    if np.isnan(value).any():
        return "NaN"
    return f"values from {value.min():.9g} to {value.max():.9g}"


def _in_range(name: str, value: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    if all_true((value >= low) & (value <= high)):
        return value
    inside = (value >= low * (1 - _BOUND_TOLERANCE)) & (value <= high * (1 + _BOUND_TOLERANCE))
    if not all_true(inside):
        worst = np.unravel_index(int(np.argmin(inside)), inside.shape)
        device = int(worst[-1])
        raise ValueError(
            f"{name} must lie in [{low[device]:.12g}, {high[device]:.12g}] for device "
            f"{device}, got {value[worst]:.12g}"
        )
    return value.clip(low, high)


def _probabilities(q: FloatArray) -> FloatArray:
    # Written so that NaN fails the comparisons.
    if not all_true((q >= LEAST_Q) & (q <= 1)):
        raise ValueError(
            f"q must lie in (0, 1] for every device and not be below {LEAST_Q:g}, "
            f"got {_extremes(q)}; to exclude devices, give cohort instead of q"
        )
    total = q.sum(axis=-1, keepdims=True)
    error = np.abs(total - 1.0)
    if not all_true(error <= _SUM_TOLERANCE):
        raise ValueError(
            f"q must sum to 1 over its last axis, the devices, within {_SUM_TOLERANCE:g}, got sums "
            f"from {total.min():.9g} to {total.max():.9g}: divide by q.sum(axis=-1, keepdims=True)"
        )
    return q if all_true(error <= physics.ROUNDING) else normalized(q)


def _check_cohort(decision: Allocation, cohort: IntArray, scenario: Scenario) -> None:
    most = scenario.cohort_size
    if cohort.shape[-1] > most:
        raise ValueError(
            f"cohort must have shape (..., k) with k from 1 to cohort_size = {most}, "
            f"got {cohort.shape}"
        )
    if cohort.min() < -1 or cohort.max() >= scenario.num_devices:
        raise ValueError(
            f"cohort must hold device indices from 0 to {scenario.num_devices - 1}, "
            f"or -1 for none, got {cohort.tolist()}"
        )
    named = cohort >= 0
    if not named.any(axis=-1).all():
        raise ValueError(f"cohort must name at least one device, got {cohort.tolist()}")
    if np.count_nonzero(decision.participates) != named.sum():
        raise ValueError(
            f"cohort must name each device once, got {cohort.tolist()}: to draw with "
            "replacement, give q instead of cohort"
        )
    weights = decision.weights
    first = decision.first
    if weights is not None and not all_true((weights >= 0) & (weights < np.inf)):
        raise ValueError(f"weights must be finite and at least zero, got {_extremes(weights)}")
    if first is not None and not all_true((first >= 1) & (first <= named.sum(axis=-1))):
        raise ValueError(
            "first must be from 1 to the number of devices in the cohort, "
            f"{named.sum(axis=-1).tolist()}, got {first.tolist()}"
        )


def _bandwidth(bandwidth: FloatArray, member: BoolArray, band: float) -> FloatArray:
    # Written so that NaN fails the comparison.
    least = LEAST_SHARE * band
    enough = ~member | (bandwidth >= (1 - _BOUND_TOLERANCE) * least)
    given = np.where(member, bandwidth, 0.0)
    total = given.sum(axis=-1, keepdims=True)
    if not all_true(enough) or not all_true(total <= band * (1 + _BOUND_TOLERANCE)):
        raise ValueError(
            f"bandwidth must be at least {least:g} Hz for every device of the cohort and sum to at "
            f"most bandwidth_hz = {band:g}, got {_extremes(bandwidth[member])} with a sum of "
            f"{np.max(total):.9g}"
        )
    # Fractions of the band would pass as fractions of a hertz, and rounds would hardly end.
    if band >= _LEAST_BAND and np.any(np.abs(total - 1) <= _SUM_TOLERANCE):
        raise ValueError(
            "bandwidth must be in hertz and sum to at most bandwidth_hz, got a sum of 1: "
            f"multiply fractions of the band by bandwidth_hz = {band:g}"
        )
    over = total > band * (1 + physics.ROUNDING)
    return given * np.where(over, band / total, 1.0) if over.any() else bandwidth
