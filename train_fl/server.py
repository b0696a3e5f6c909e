"""How the server weighs the updates of a cohort."""

from __future__ import annotations

import numpy as np

from fl_edge_env import Allocation, Scenario
from fl_edge_env.typing import FloatArray, IntArray


def aggregation_weights(
    allocation: Allocation, cohort: IntArray, scenario: Scenario
) -> tuple[IntArray, FloatArray]:
    """Coefficients of the updates in the global model's step.

    In a sampled decision each draw counts ``w_n / (K q_n)``, equation (4). A device that was drawn
    twice trains once and counts twice, which makes the expected update over draws equal to the
    one with all devices, ``sum_n w_n delta_n``. A chosen cohort is averaged: each device counts
    its share of the cohort's data, unless the decision gives `weights`.

    Parameters
    ----------
    allocation : Allocation
        The decision, for a single system.
    cohort : ndarray of int, shape (K,) or (k,)
        The devices drawn or chosen, as in `fl_edge_env.simulator.Round`.
    scenario : Scenario
        Supplies the data weights.

    Returns
    -------
    participants : ndarray of int, shape (k,)
        The distinct devices, ascending.
    coefficients : ndarray, shape (k,)
        Coefficient of each participant's update.
    """
    data = scenario.weights
    if allocation.q is not None:
        participants, counts = np.unique(cohort, return_counts=True)
        return participants, counts * data[participants] / (
            len(cohort) * allocation.q[participants]
        )
    named = np.flatnonzero(cohort >= 0)
    order = named[np.argsort(cohort[named])]
    participants = cohort[order]
    if allocation.weights is not None:
        return participants, allocation.weights[order]
    return participants, data[participants] / data[participants].sum()
