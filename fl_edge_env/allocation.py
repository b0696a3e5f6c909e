"""The decision of a round, and how it becomes an action of learning agents and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fl_edge_env.checks import all_true, real_array
from fl_edge_env.decision import PARTS, SETTINGS, Decoding, extremes, membership
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray, IntArray

_NAMES = tuple(part.name for part in PARTS)
_SETTINGS = tuple(part.name for part in SETTINGS)


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
        together at most the whole; those of other devices do not count. Only in a scenario whose
        ``bandwidth_split`` is ``"shared"``. By default each device has ``B / K``, however many take
        part.

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
        for name in (*_NAMES, "weights"):
            value = getattr(self, name)
            if value is not None or name in _SETTINGS:
                array = real_array(name, value)
                if array is not value:
                    object.__setattr__(self, name, array)
        if (self.q is None) == (self.cohort is None):
            given = "neither" if self.q is None else "both"
            raise ValueError(
                "a decision has either q, from which K devices are drawn, or cohort, the devices "
                f"chosen; got {given}"
            )
        named = [name for name in _NAMES if getattr(self, name) is not None]
        shapes = [getattr(self, name).shape for name in named]
        if len(set(shapes)) > 1 or self.f.ndim == 0:
            raise ValueError(
                f"{listed(named)} must have the same shape (..., N), with an entry for each "
                f"device, got {listed(shapes)}"
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
                f"weights must be finite and at least zero, got {extremes(self.weights)}"
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
                f"{listed(part.name for part in scenario.decision)} must have "
                f"{scenario.num_devices} entries, one for each device, got shape {self.f.shape}"
            )
        for part in scenario.decision:
            part.check(self, scenario)
        for part in PARTS if len(scenario.decision) < len(PARTS) else ():
            if part not in scenario.decision and getattr(self, part.name) is not None:
                raise ValueError(
                    f"{part.name} is no part of a decision in this scenario{part.absent}"
                )
        if self.first is not None and self.cohort is not None:
            named = np.count_nonzero(self.cohort >= 0, axis=-1)
            if not np.all((self.first >= 1) & (self.first <= named)):
                raise ValueError(
                    "first must be from 1 to the number of devices in the cohort, "
                    f"{np.asarray(named).tolist()}, got {np.asarray(self.first).tolist()}"
                )

    @property
    def settings(self) -> dict[str, FloatArray]:
        """The settings of the devices by name, as `physics.time_and_energy` takes them.

        Where the decision shares out the band, devices outside the cohort have none of it.
        """
        values = {name: getattr(self, name) for name in _SETTINGS}
        if self.bandwidth is not None:
            values["bandwidth"] = np.where(self.participates, self.bandwidth, 0.0)
        return values

    def band(self, scenario: Scenario) -> FloatArray:
        """Part of the band of each device if it takes part [Hz], shape (..., N)."""
        equal = np.full(self.f.shape, scenario.bandwidth_hz / scenario.cohort_size)
        return (
            equal if self.bandwidth is None else np.where(self.participates, self.bandwidth, equal)
        )

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

    The rows are the parts of the scenario's decision, f, p and q, and the band where it is shared
    out. The first two map linearly to their ranges; the third is a score that a softmax turns into
    a distribution, so that the zero action is the middle of both ranges with uniform sampling, and
    q varies over devices by at most ``exp(2 * softmax_scale)``. Where the scenario's objective is
    the outcome, the scores rank the devices instead: the cohort is the K `available` devices, by
    default of all, with the highest scores, of equal ones the first. A softmax over the cohort
    turns the fourth row into parts of the whole band; beside a distribution q it does not count, as
    each draw has an equal part. Entries outside the box are clipped.

    Raises `ValueError` if the shape is not (..., 3, N), or (..., 4, N) where the band is shared
    out, or an entry is NaN or not a number.
    """
    values, parts = real_array("action", action), scenario.decision
    shape = (len(parts), scenario.num_devices)
    if values.ndim < 2 or values.shape[-2:] != shape:
        raise ValueError(
            f"action must be an Allocation or an array of shape {shape} "
            f"with rows {', '.join(part.name for part in parts)}, got shape {values.shape}"
        )
    if not all_true(values == values):  # as of NaN alone
        raise ValueError("action must hold numbers in [-1, 1], got NaN")
    unit = values.clip(-1.0, 1.0)
    by = Decoding(scenario, softmax_scale, available, {})
    for row, part in enumerate(parts):
        part.decode(unit[..., row, :], by)
    return Allocation(**by.decided)


def encode_action(
    allocation: Allocation, scenario: Scenario, softmax_scale: float
) -> NDArray[np.float32]:
    """Turn an allocation into the action, (..., 3, N), from which `decode_action` makes it again.

    Scores are centred in [-1, 1]. Where q, or the parts of the band in a fourth row, vary by more
    than a factor of ``exp(2 * softmax_scale)``, no action expresses them, and scores are clipped.
    Where the scenario's objective is the outcome, the devices of the cohort have the score 1 and
    the others -1. If the cohort has fewer than K devices, `decode_action` fills it up, and if the
    band is not shared out completely, it shares out the rest in proportion.

    Raises `ValueError` if the kind of the decision is not that of the scenario's actions: with the
    objective ``"outcome"`` they are chosen, and sampled otherwise.
    """
    rows = [part.encode(allocation, scenario, softmax_scale) for part in scenario.decision]
    return np.clip(np.stack(rows, axis=-2), -1.0, 1.0).astype(np.float32)


def listed(items: Iterable[object]) -> str:
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
