"""The decision of a round, and how it becomes an action of learning agents and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fl_edge_env.checks import all_true, real_array
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray, IntArray

# How far a decision may miss its bounds: relative for f and p, so that bounds that were rounded
# to 32 bits pass, and absolute for the sum of q.
BOUND_TOLERANCE = 1e-7
_SUM_TOLERANCE = 1e-6
# Below it the sampling error, w^2 / q, would leave the range of floating-point numbers.
_LEAST_Q = 1e-100


@dataclass(frozen=True, eq=False)
class Allocation:
    """What the server decides in a round, in SI units.

    A *sampled* decision gives the probabilities `q`, from which K devices are drawn with
    replacement. A *chosen* decision names the `cohort`, at most K distinct devices. Energies, times
    and reward of the round depend on the kind; see `fl_edge_env.simulator.Round`.

    Where devices drop out, a sampled decision still gives a probability to every device, and the
    environment rescales the probabilities of those that are there. A chosen cohort must consist of
    devices that are there.

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

    def __post_init__(self) -> None:
        for name in ("f", "p", "q", "weights"):
            if (value := getattr(self, name)) is not None or name in ("f", "p"):
                object.__setattr__(self, name, real_array(name, value))
        if (self.q is None) == (self.cohort is None):
            given = "neither" if self.q is None else "both"
            raise ValueError(
                "a decision has either q, from which K devices are drawn, or cohort, the devices "
                f"chosen; got {given}"
            )
        named = ("f", "p") if self.q is None else ("f", "p", "q")
        shapes = [getattr(self, name).shape for name in named]
        if len(set(shapes)) > 1 or self.f.ndim == 0:
            raise ValueError(
                f"{_listed(named)} must have the same shape (..., N), got {_listed(shapes)}"
            )
        if self.cohort is not None:
            object.__setattr__(self, "cohort", _index_array(self.cohort))
        self._check_weights()

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

    def validate(self, scenario: Scenario) -> None:
        """Check the decision against a scenario.

        Parameters
        ----------
        scenario : Scenario
            Supplies N, K and the ranges of f and p.

        Raises
        ------
        ValueError
            If a shape, a bound, the sum of `q` or the cohort is wrong, or a value not finite.
        """
        if self.f.shape[-1] != scenario.num_devices:
            raise ValueError(
                f"f, p and q must have {scenario.num_devices} entries, one for each device, "
                f"got shape {self.f.shape}"
            )
        _check_range("f", self.f, scenario.f_min, scenario.f_max)
        _check_range("p", self.p, scenario.p_min, scenario.p_max)
        if self.q is not None:
            _check_distribution(self.q)
        else:
            self._check_cohort(scenario)

    def _check_cohort(self, scenario: Scenario) -> None:
        cohort = self.cohort
        assert cohort is not None
        size, most = cohort.shape[-1] if cohort.ndim else 0, scenario.cohort_size
        if cohort.shape[:-1] != self.f.shape[:-1] or not cohort.ndim or not 1 <= size <= most:
            expected = ", ".join([*map(str, self.f.shape[:-1]), "k"])
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
        if np.any(np.count_nonzero(self.participates, axis=-1) != named):
            raise ValueError(
                f"cohort must name each device once, got {cohort.tolist()}: to draw with "
                "replacement give q in its place"
            )

    @cached_property
    def participates(self) -> BoolArray:
        """Whether each device is in the chosen cohort, shape (..., N).

        Raises
        ------
        ValueError
            If the decision is a sampled one.
        """
        if self.cohort is None:
            raise ValueError("who takes part in a sampled decision is not known before the draw")
        # -1 is the last column, which stands for nobody.
        chosen = np.zeros((*self.f.shape[:-1], self.f.shape[-1] + 1), dtype=np.bool_)
        np.put_along_axis(chosen, self.cohort, True, axis=-1)
        return chosen[..., :-1]


def decode_action(
    action: NDArray[np.floating],
    scenario: Scenario,
    softmax_scale: float,
    available: BoolArray | None = None,
) -> Allocation:
    """Turn an action, an array of numbers in [-1, 1], into an allocation.

    The rows are f, p and q. The first two map linearly to their ranges; the third is a score
    that a softmax turns into a distribution, so that the zero action is the middle of both
    ranges with uniform sampling. Where the scenario's objective is the outcome, the scores rank
    the devices instead: the cohort is the K devices with the highest scores, of equal ones the
    first.
    Entries outside the box are clipped.

    Parameters
    ----------
    action : ndarray, shape (..., 3, N)
        The action.
    scenario : Scenario
        Supplies N and the ranges.
    softmax_scale : float
        Factor on the scores: q varies over devices by at most ``exp(2 * softmax_scale)``.
    available : ndarray of bool, shape (..., N), optional
        Who is there, and may be in a cohort that is ranked; all by default.

    Returns
    -------
    Allocation
        With fields of shape (..., N).

    Raises
    ------
    ValueError
        If the shape is wrong or an entry is NaN or not a number.
    """
    values = real_array("action", action)
    if values.ndim < 2 or values.shape[-2:] != (3, scenario.num_devices):
        raise ValueError(
            f"action must be an Allocation or an array of shape (3, {scenario.num_devices}) "
            f"with rows f, p, q, got shape {values.shape}"
        )
    if np.isnan(values).any():
        raise ValueError("action must hold numbers in [-1, 1], got NaN")
    unit = np.clip(values, -1.0, 1.0)
    f = scenario.f_mid + 0.5 * (scenario.f_max - scenario.f_min) * unit[..., 0, :]
    p = scenario.p_mid + 0.5 * (scenario.p_max - scenario.p_min) * unit[..., 1, :]
    # Near the lower end rounding has the size of the upper one, which may be far larger.
    f = np.maximum(f, (1 - BOUND_TOLERANCE) * scenario.f_min)
    p = np.maximum(p, (1 - BOUND_TOLERANCE) * scenario.p_min)
    if scenario.objective == "outcome":
        places = min(scenario.cohort_size, scenario.num_devices)
        return Allocation(f, p, cohort=highest(unit[..., 2, :], places, available))
    score = softmax_scale * unit[..., 2, :]
    odds = np.exp(score - score.max(axis=-1, keepdims=True))
    return Allocation(f, p, odds / odds.sum(axis=-1, keepdims=True))


def highest(
    score: NDArray[np.floating], count: int, available: BoolArray | None = None
) -> IntArray:
    """The devices of the highest scores, of equal ones the first.

    Parameters
    ----------
    score : ndarray, shape (..., N)
        A score of each device.
    count : int
        How many to name.
    available : ndarray of bool, shape (..., N), optional
        Who may be named; all by default.

    Returns
    -------
    ndarray of int, shape (..., count)
        Filled up with -1 where fewer are there.
    """
    rank = -score if available is None else np.where(available, -score, np.inf)
    order = np.argsort(rank, axis=-1, kind="stable")[..., :count]
    named: IntArray = np.where(np.take_along_axis(rank, order, axis=-1) < np.inf, order, -1)
    if (lacking := count - named.shape[-1]) > 0:
        nobody = np.full((*named.shape[:-1], lacking), -1)
        named = np.concatenate([named, nobody], axis=-1)
    return named


def encode_action(
    allocation: Allocation, scenario: Scenario, softmax_scale: float
) -> NDArray[np.float32]:
    """Turn an allocation into the action from which `decode_action` makes it again.

    Scores are centred in [-1, 1]. Where q varies by more than a factor of
    ``exp(2 * softmax_scale)``, no action expresses it, and scores are clipped. Where the scenario's
    objective is the outcome, the devices of the cohort have the score 1 and the others -1. If the
    cohort has fewer than K devices, `decode_action` fills it up.

    Parameters
    ----------
    allocation : Allocation
        A decision with fields of shape (..., N).
    scenario : Scenario
        Supplies the ranges.
    softmax_scale : float
        As in `decode_action`.

    Returns
    -------
    ndarray of float32, shape (..., 3, N)

    Raises
    ------
    ValueError
        If the kind of the decision is not that of the scenario's actions: with the objective
        ``"outcome"`` they are chosen, and sampled otherwise.
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
    rows = (
        _to_unit(allocation.f, scenario.f_min, scenario.f_max),
        _to_unit(allocation.p, scenario.p_min, scenario.p_max),
        score,
    )
    action: NDArray[np.float32] = np.clip(np.stack(rows, axis=-2), -1.0, 1.0).astype(np.float32)
    return action


def _to_unit(value: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    span = np.where(high > low, high - low, 1.0)  # an empty range maps to 0
    return np.where(high > low, 2.0 * (value - low) / span - 1.0, 0.0)


def _index_array(value: object) -> IntArray:
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "iu":
            raise TypeError("not integers")
        return array.astype(np.int64)
    except (TypeError, ValueError):
        raise ValueError(f"cohort must hold integer device indices, got {value!r}") from None


def _check_distribution(q: FloatArray) -> None:
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


def _check_range(name: str, value: FloatArray, low: FloatArray, high: FloatArray) -> None:
    if all_true((value >= low) & (value <= high)):
        return
    inside = (value >= low * (1 - BOUND_TOLERANCE)) & (value <= high * (1 + BOUND_TOLERANCE))
    if not all_true(inside):
        worst = np.unravel_index(int(np.argmin(inside)), inside.shape)
        device = int(worst[-1])
        raise ValueError(
            f"{name} must lie in [{low[device]:.12g}, {high[device]:.12g}] for device {device}, "
            f"got {value[worst]:.12g}"
        )


def _listed(items: Sequence[object]) -> str:
    return f"{', '.join(map(str, items[:-1]))} and {items[-1]}"


def _extremes(value: FloatArray) -> str:
    return f"values from {value.min():.9g} to {value.max():.9g}"
