"""How the server weighs the updates of a cohort."""

from __future__ import annotations

import numpy as np

from fl_edge_env import Allocation, Scenario
from fl_edge_env.typing import BoolArray, FloatArray, IntArray


def aggregation_weights(
    allocation: Allocation,
    cohort: IntArray,
    scenario: Scenario,
    *,
    q: FloatArray | None = None,
    failed: BoolArray | None = None,
) -> tuple[IntArray, FloatArray]:
    """Coefficients of the updates in the global model's step.

    In a sampled decision each draw counts ``w_n / (K q_n)``, equation (4). A device that was drawn
    twice trains once and counts twice, which makes the expected update over draws equal to the
    one with all devices, ``sum_n w_n delta_n``. A chosen cohort is averaged: each device counts
    its share of the cohort's data, unless the decision gives `weights`.

    Where devices drop out, the draws are from the q of those that are there, and the expected
    update is ``sum w_n delta_n`` over them. An upload that failed brings nothing. In a scenario
    with failures the weights of draws and those that a decision gives are therefore divided by
    ``1 - upload_failure``, which leaves the expected update as it is without failures; the shares
    of a cohort's data are those of the data that arrived.

    Parameters
    ----------
    allocation : Allocation
        The decision, for a single system.
    cohort : ndarray of int, shape (K,) or (k,)
        The devices drawn or chosen, as in `fl_edge_env.simulator.Round`.
    scenario : Scenario
        Supplies the data weights and the probability of a failure.
    q : ndarray, shape (N,), optional
        What the cohort was drawn from, where it is not the decision's q.
    failed : ndarray of bool, shape (N,), optional
        Devices whose upload failed; none by default.

    Returns
    -------
    participants : ndarray of int, shape (k,)
        The distinct devices whose update arrived, ascending; none where all uploads failed.
    coefficients : ndarray, shape (k,)
        Coefficient of each participant's update.
    """
    data, arrives = scenario.weights, 1.0 - scenario.upload_failure
    if allocation.q is not None:
        q = allocation.q if q is None else q
        participants, counts = np.unique(cohort, return_counts=True)
        coefficients = counts * data[participants] / (len(cohort) * q[participants]) / arrives
        if failed is None:
            return participants, coefficients
        arrived = ~failed[participants]
        return participants[arrived], coefficients[arrived]
    named = np.flatnonzero(cohort >= 0)
    order = named[np.argsort(cohort[named])]
    if failed is not None:
        order = order[~failed[cohort[order]]]
    participants = cohort[order]
    if allocation.weights is not None:
        return participants, allocation.weights[order] / arrives
    return participants, data[participants] / data[participants].sum()
