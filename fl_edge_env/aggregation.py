"""Contributions of a round to the global model: the updates that arrived, and their weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fl_edge_env.allocation import Allocation, normalized
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray, Info, IntArray


class Contributions(NamedTuple):
    """The devices whose updates arrived, and their weights in the global update.

    Attributes
    ----------
    arrived : ndarray of bool, shape (..., N)
        Devices of the cohort that were not late and whose upload did not fail.
    weight : ndarray, shape (..., N)
        Weight of each device's update, zero if it did not arrive.
    """

    arrived: BoolArray
    weight: FloatArray

    @property
    def participants(self) -> IntArray:
        """The devices whose update arrived in a single system, ascending, shape (k,)."""
        return np.flatnonzero(self.arrived)


def in_time(info: Info) -> BoolArray:
    """Devices that took part in a round and were not late, bool of shape (..., N).

    `info` is returned by a step. A failed upload still counts as participation.
    """
    took_part = np.asarray(info["energy_spent"]) > 0
    return took_part & ~info["late"] if "late" in info else took_part


def surplus(info: Info, scenario: Scenario) -> IntArray:
    """Number of devices in a round's cohort beyond K, shape (...)."""
    named = np.count_nonzero(info["cohort"] >= 0, axis=-1)
    return np.maximum(named - scenario.cohort_size, 0)


def contributions(decision: Allocation, info: Info, scenario: Scenario) -> Contributions:
    """Return the contributions of a round, for a single system or a batch.

    In a sampled decision each draw has the weight ``w_n / (K q_n)``, equation (4), with q
    renormalised over the available devices, so the expected update is ``sum_n w_n delta_n`` over
    them. A device drawn twice trains once and counts twice. A chosen cohort is averaged: each
    device is weighted by its share of the cohort's data, unless the decision gives `weights`.

    Failed uploads contribute nothing. The weights of draws and of a decision are divided by
    ``1 - upload_failure``, so the expected update is the same as without failures; data shares are
    taken over the uploads that arrived. Late devices contribute nothing either, and nothing
    compensates for them, as these losses are systematic: the late devices are the slow ones.

    Parameters
    ----------
    decision : Allocation
        The decision, as given to `step`.
    info : mapping
        The round's `cohort`, shape (..., K), and `q`, `failed` and `late` if present, as in
        `fl_edge_env.round.Round` and in the info of a step.
    scenario : Scenario
        Supplies the data weights and the probability of upload failures.
    """
    data = scenario.weights
    cohort = np.asarray(info["cohort"])
    size = cohort.shape[-1]
    shape = (*cohort.shape[:-1], scenario.num_devices)
    decision = decision.of_shape(shape)
    # Index of each cohort member into the flattened devices of all systems.
    systems = np.arange(cohort.size // size).reshape(*cohort.shape[:-1], 1)
    places = (systems * scenario.num_devices + cohort)[cohort >= 0]
    count = np.bincount(places, minlength=int(np.prod(shape))).reshape(shape)
    arrived = count > 0
    for lost in ("failed", "late"):
        if info.get(lost) is not None:
            arrived &= ~info[lost]
    weight = np.zeros(shape)
    if decision.q is not None:
        drawn_from = normalized(decision.q) if info.get("q") is None else info["q"]
        np.divide(count * data, size * drawn_from, out=weight, where=arrived)
    elif decision.weights is not None:
        assert decision.cohort is not None
        weight.reshape(-1)[places] = decision.weights[decision.cohort >= 0]
        weight[~arrived] = 0.0
    else:  # shares of the data of the devices that arrived
        systems = arrived.reshape(-1, data.size)
        total = np.array([data[row].sum() for row in systems]).reshape(*shape[:-1], 1)
        np.divide(data, total, out=weight, where=arrived)
        return Contributions(arrived, weight)
    return Contributions(arrived, weight / (1.0 - scenario.upload_failure))
