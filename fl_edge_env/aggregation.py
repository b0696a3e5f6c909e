"""Contributions of a round to the global model: devices and the weights of their updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fl_edge_env.allocation import Allocation, normalized
from fl_edge_env.scenario import Scenario
from fl_edge_env.typing import BoolArray, FloatArray, IntArray


class Contributions(NamedTuple):
    """The devices whose updates arrived, and their weights in the step of the global model.

    Attributes
    ----------
    arrived : ndarray of bool, shape (..., N)
        Devices of the cohort that were not late and whose upload did not fail.
    weight : ndarray, shape (..., N)
        Zero for the others.
    """

    arrived: BoolArray
    weight: FloatArray

    @property
    def participants(self) -> IntArray:
        """The devices whose update arrived in a single system, ascending, shape (k,)."""
        return np.flatnonzero(self.arrived)


def in_time(info: Mapping[str, Any]) -> BoolArray:
    """Devices that took part in a round and were not late, (..., N): x = 1 in the outcome.

    The info is that of a step. An upload that failed counts.
    """
    took_part: BoolArray = np.asarray(info["energy_spent"]) > 0
    return took_part & ~info["late"] if "late" in info else took_part


def contributions(
    decision: Allocation, info: Mapping[str, Any], scenario: Scenario
) -> Contributions:
    """The contributions of a round, for a single system or a batch.

    In a sampled decision each draw counts ``w_n / (K q_n)``, equation (4), with the q of the
    available devices: the expected update over draws is ``sum_n w_n delta_n`` over them. A device
    that was drawn twice trains once and counts twice. A chosen cohort is averaged: each device
    counts its share of the cohort's data, unless the decision gives `weights`.

    A failed upload brings nothing. The weights of draws and those of a decision are divided by
    ``1 - upload_failure``, which leaves the expected update as it is without failures; shares of a
    cohort's data are those of the data that arrived. A late device brings nothing either, and
    nothing makes up for it, as losses are systematic: the late devices are the slow ones.

    Parameters
    ----------
    decision : Allocation
        The decision, as given to `step`.
    info : mapping
        The round's `cohort` of shape (..., K), and where there are such `q`, `failed`
        and `late`, as in `fl_edge_env.round.Round` and in the info of a step.
    scenario : Scenario
        Supplies the data weights and the probability of a failure.
    """
    data = scenario.weights
    cohort = np.asarray(info["cohort"])
    batch, size = cohort.shape[:-1], cohort.shape[-1]
    decision = decision.of_shape((*batch, scenario.num_devices))
    named = cohort >= 0
    # The place of each device of the cohorts among those of all systems.
    systems = np.arange(cohort.size // size).reshape(*batch, 1)
    places = (systems * scenario.num_devices + cohort)[named]
    shape = (*batch, scenario.num_devices)
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
    else:
        there = arrived.reshape(-1, scenario.num_devices)
        total = np.array([data[row].sum() for row in there]).reshape(*batch, 1)
        np.divide(data, total, out=weight, where=arrived)
        return Contributions(arrived, weight)
    return Contributions(arrived, weight / (1.0 - scenario.upload_failure))
