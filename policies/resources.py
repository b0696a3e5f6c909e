"""Rules that set the f, p and bandwidth of participating devices."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fl_edge_env import Scenario, physics
from fl_edge_env.allocation import LEAST_SHARE, smallest
from fl_edge_env.typing import BoolArray, FloatArray, IntArray
from policies.p2 import best_resources
from policies.solvers.inputs import check_rounds, check_state, rows

# Most steps of `share_band`, and the relative excess over the band at which it stops.
_MOST_STEPS = 100
_EXCESS = 1e-12

# The cohort passed to a resource rule: None if not yet chosen, a mask of its devices (bool), or
# sampling probabilities (float).
TakingPart: TypeAlias = NDArray[Any] | None

# Returns f and p, or f, p and bandwidth, shape (..., N), from gains, queues, scenario and cohort.
ResourceRule: TypeAlias = Callable[
    [FloatArray, FloatArray, Scenario, TakingPart], tuple[FloatArray, ...]
]


def static_resources(
    channel_gain: FloatArray,
    queue: FloatArray,
    scenario: Scenario,
    taking_part: TakingPart = None,  # noqa: ARG001 - the same for all cohorts
) -> tuple[FloatArray, FloatArray]:
    """The f and p of Uni-S: mid power, and the frequency that the remaining energy allows.

    f solves ``(E_cmp + E_up) (1 - (1 - 1/N)^K) = budget``, clipped to its range; if uploading alone
    exceeds the budget, f is f_min. A device that participates as often as under uniform sampling
    then meets its budget. Queues and cohort have no effect.
    """
    channel_gain, _ = check_state(channel_gain, queue, scenario)
    p = np.full_like(channel_gain, scenario.p_mid)
    uniform = np.full(channel_gain.shape, 1.0 / scenario.num_devices)
    participation = physics.participation_probability(uniform, scenario.cohort_size)
    _, f = within_energy(channel_gain, p, scenario.energy_budget_j / participation, scenario)
    return f, p


def within_energy(
    channel_gain: FloatArray,
    p: FloatArray,
    energy: FloatArray,
    scenario: Scenario,
    device: Any = ...,
) -> tuple[FloatArray, FloatArray]:
    """The time [s] of computing and upload, and the f [Hz] that an energy [J] allows at a power.

    If the energy does not even allow f_min, this is the f, and the time is infinite. `device` gives
    the indices of the devices, by default all, which broadcast with the gains.
    """
    upload = physics.upload_time(channel_gain, p, scenario)
    rest = np.maximum(energy[device] - p * upload, 0.0)
    allowed = np.sqrt(rest / scenario.energy_per_hz2[device])
    f = np.clip(allowed, scenario.f_min[device], scenario.f_max[device])
    return np.where(allowed < f, np.inf, scenario.cycles_per_round[device] / f + upload), f


def deadline_resources(
    channel_gain: ArrayLike,
    queue: ArrayLike,
    participates: BoolArray,
    scenario: Scenario,
) -> tuple[FloatArray, FloatArray]:
    """Minimise ``V max T + sum Q E`` over the f and p of a given cohort.

    A device that finishes before the slowest wastes energy, so all that can finish together do:
    each spends the least energy that meets the best common deadline. This is at most the scenario's
    deadline; devices that cannot meet the scenario's are late anyway and get f_min and p_min. With
    unit queues and V as kappa, this is the resource problem of FEDL (Tran et al., "Federated
    learning over wireless networks: optimization model design and analysis", INFOCOM 2019).

    Parameters
    ----------
    channel_gain : array_like, shape (N,) or (B, N)
        Channel gains h, positive.
    queue : array_like, shape (N,) or (B, N)
        Energy queues Q [J], the weights of the energies.
    participates : ndarray of bool, shape (N,) or (B, N)
        The cohort, from one to K devices in each row.
    scenario : Scenario
        The system.

    Returns
    -------
    f, p : ndarray, shape (N,) or (B, N)
        Frequencies [Hz] and powers [W]. Devices outside the cohort get the values with which they
        would meet its deadline.
    """
    rounds, shape = check_rounds(channel_gain, queue, scenario)
    from policies.outcome import kernel  # here, because numba takes half a second to import

    f = np.empty_like(rounds.queue)
    p = np.empty_like(rounds.queue)
    members = rows(np.broadcast_to(participates, shape))
    rounds.run(kernel.meet_rows, (members, scenario.deadline_s), (f, p))
    return f.reshape(shape), p.reshape(shape)


def share_band(
    channel_gain: FloatArray, cohort: IntArray, f: FloatArray, p: FloatArray, scenario: Scenario
) -> FloatArray:
    """Split the band so that a cohort finishes together, at given f and p.

    This makes the round shortest: a device that finished earlier would have bandwidth to spare. The
    round's end fixes ``ln(1 + x) / x`` for the signal-to-noise ratio x of each upload, which
    Lambert's function inverts. The end is the root at which the bandwidths add up to the band. Each
    row of a batch is independent of the others.

    Parameters
    ----------
    channel_gain : ndarray, shape (..., N)
        Channel gains.
    cohort : ndarray of int, shape (..., k)
        Indices of the devices, distinct, filled up with -1.
    f, p : ndarray, shape (..., N)
        Frequencies [Hz] and powers [W].
    scenario : Scenario
        The system.

    Returns
    -------
    ndarray, shape (..., N)
        Bandwidths [Hz]; zero outside the cohort.
    """
    named = cohort >= 0

    def of_cohort(values: FloatArray) -> FloatArray:
        return np.take_along_axis(values, cohort, axis=-1)

    ready = of_cohort(physics.compute_time(f, scenario) + scenario.waiting_time)
    noise = scenario.cohort_size * scenario.noise_power_w  # over all the band
    snr = of_cohort(channel_gain * p) / noise
    upload = scenario.upload_bits * math.log(2) / scenario.bandwidth_hz  # at one nat/s/Hz [s]
    least = upload / snr  # no bandwidth makes an upload shorter
    end = np.where(named, ready + upload / np.log1p(snr), 0.0).max(axis=-1, keepdims=True)
    # The total bandwidth is convex in the end, so Newton's method converges from the left.
    for _ in range(_MOST_STEPS):
        rate = least / np.where(named, end - ready, 2.0 * least)  # ln(1 + x) / x
        x = _ratio_of(rate)
        share = np.where(named, snr / x, 0.0)
        slope = np.where(named, share * rate / ((1.0 / (1.0 + x) - rate) * (end - ready)), 0.0)
        total = share.sum(axis=-1, keepdims=True)
        open_ = total - 1.0 > _EXCESS
        if not open_.any():
            break
        step = (1.0 - total) / slope.sum(axis=-1, keepdims=True)
        end = np.where(open_, end + np.maximum(step, 0.0), end)
    share = np.where(named, np.maximum(share / total, LEAST_SHARE), 0.0)
    bandwidth = np.zeros((*f.shape[:-1], f.shape[-1] + 1))  # the last column is for -1
    np.put_along_axis(bandwidth, cohort, scenario.bandwidth_hz * share, axis=-1)
    return bandwidth[..., :-1]


def _ratio_of(rate: FloatArray) -> FloatArray:
    """The x at which ``ln(1 + x) / x`` is the rate, below 1."""
    from scipy.special import lambertw  # here, because it takes a tenth of a second to import

    gap = 1.0 - rate
    exact = -lambertw(-rate * np.exp(-rate), -1).real / rate - 1.0
    x = np.where(gap < 1e-3, gap * (2.0 + gap * 8.0 / 3.0), exact)
    for _ in range(2):  # for small x, Lambert's function loses half of its digits
        x = x - (np.log1p(x) - rate * x) / (1.0 / (1.0 + x) - rate)
    return x


def _dynamic(
    channel_gain: FloatArray, queue: FloatArray, scenario: Scenario, taking_part: TakingPart = None
) -> tuple[FloatArray, FloatArray]:
    """The f and p that minimise the participants' drift-plus-penalty.

    If the cohort is not yet chosen, each device is optimised alone.
    """
    if taking_part is not None and taking_part.dtype == np.bool_:
        return deadline_resources(channel_gain, queue, taking_part, scenario)
    q = np.ones(scenario.num_devices) if taking_part is None else taking_part
    return best_resources(channel_gain, queue, q, scenario)


def _shared(
    rule: ResourceRule,
    channel_gain: FloatArray,
    queue: FloatArray,
    scenario: Scenario,
    taking_part: TakingPart = None,
) -> tuple[FloatArray, ...]:
    """A rule's f and p, and bandwidths with which a chosen cohort finishes together.

    The scenario's deadline is ignored: if the cohort cannot meet it together, all are late.
    """
    f, p, *_ = rule(channel_gain, queue, scenario, taking_part)
    if taking_part is None or taking_part.dtype != np.bool_:
        return f, p
    cohort = smallest(np.zeros(f.shape), taking_part, scenario.cohort_size)
    return f, p, share_band(channel_gain, cohort, f, p, scenario)


ResourceName = Literal["static", "dynamic", "static-shared", "dynamic-shared"]

RESOURCES: dict[str, ResourceRule] = {
    "static": static_resources,
    "dynamic": _dynamic,
    "static-shared": partial(_shared, static_resources),
    "dynamic-shared": partial(_shared, _dynamic),
}
