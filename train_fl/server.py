"""How the server weighs the updates of a cohort."""

from __future__ import annotations

import numpy as np

from fl_edge_env.typing import FloatArray, IntArray


def aggregation_weights(
    cohort: IntArray, q: FloatArray, weights: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Coefficients of the updates in equation (4): ``w_n / (K q_n)`` for each draw.

    A device that was drawn twice trains once and counts twice, which makes the expected
    update over draws equal to the one with all devices, ``sum_n w_n delta_n``.

    Parameters
    ----------
    cohort : ndarray of int, shape (K,)
        The draws.
    q : ndarray, shape (N,)
        Sampling probabilities.
    weights : ndarray, shape (N,)
        Data weights w_n.

    Returns
    -------
    participants : ndarray of int, shape (k,)
        The distinct devices, ascending.
    coefficients : ndarray, shape (k,)
        Coefficient of each participant's update.
    """
    participants, counts = np.unique(cohort, return_counts=True)
    return participants, counts * weights[participants] / (len(cohort) * q[participants])
