"""Facility location over points that are too many for a matrix of their distances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from fl_edge_env.typing import BoolArray, FloatArray, IntArray
from policies.progress import steps

# Columns of the distances that are added up at a time.
_BLOCK = 256
# Columns between two reports of how far the sums have come.
_REPORT = 2048
# First choices whose sums are kept.
_MOST_KEPT = 8


class PointDistances:
    """Euclidean distances between points, computed when they are needed.

    Its greedy choice is that of `policies.divfl.facility_location` on the matrix of the distances.
    That takes ``N**2`` numbers; this takes some times N, and the time of ``2 N**2`` distances for
    the first choice. After the second device the sums that are known bound those to come, as the
    function is submodular, and few are computed anew (Minoux, "Accelerated greedy algorithms for
    maximizing submodular set functions", 1978).

    Parameters
    ----------
    points : ndarray, shape (N, d)
        The points.
    """

    def __init__(self, points: NDArray[np.floating]) -> None:
        self._columns = np.ascontiguousarray(points.T, dtype=np.float64)
        self._forget()

    def _forget(self) -> None:
        self._first: FloatArray | None = None
        self._second: dict[int, FloatArray] = {}

    def __getstate__(self) -> dict[str, Any]:
        """The points alone; what was computed from them follows."""
        return {"_columns": self._columns}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def choose(self, count: int, allowed: BoolArray | None = None) -> IntArray:
        """Greedy choice of points S that lowers ``sum_i min_{j in S} distance[i, j]`` most.

        Parameters
        ----------
        count : int
            Number of points to choose, at most those that are allowed.
        allowed : ndarray of bool, shape (N,), optional
            Points that may be chosen; all by default. The sum is over all points in any case.

        Returns
        -------
        ndarray of int, shape (count,)
            Distinct points in the order of choice; the smallest index where several do equally
            well.
        """
        number = self._columns.shape[1]
        if self._first is None:
            self._first = self._totals(np.full(number, np.inf))
        out = np.zeros(number, dtype=np.bool_) if allowed is None else ~allowed
        chosen: list[int] = []
        nearest, total = np.full(number, np.inf), self._first
        for index in range(count):
            if index == 1:
                total = self._after(chosen[0], nearest).copy()
            elif index > 1:
                self._renew(total, nearest, out)
            best = int(np.argmin(np.where(out, np.inf, total)))
            chosen.append(best)
            out[best] = True
            # A sum falls at most by what the cover does; what it falls by only shrinks.
            before = nearest
            nearest = np.minimum(nearest, self._distances(best))
            if index >= 1:
                total = total - (before.sum() - nearest.sum())
        return np.array(chosen, dtype=np.int64)

    def _after(self, first: int, nearest: FloatArray) -> FloatArray:
        """The sums that follow the choice of a first point."""
        if first not in self._second:
            if len(self._second) == _MOST_KEPT:
                self._second.pop(next(iter(self._second)))
            self._second[first] = self._totals(nearest)
        return self._second[first]

    def _renew(self, total: FloatArray, nearest: FloatArray, out: BoolArray) -> None:
        """Compute anew the least of the sums, of which lower bounds are given, until it is sure."""
        order = np.argsort(np.where(out, np.inf, total), kind="stable")
        order = order[: len(out) - np.count_nonzero(out)]
        best, done, size = np.inf, 0, _BLOCK
        assert self._first is not None
        rounding = 1e-12 * float(self._first.max())  # of the bounds, which are differences
        while done < len(order) and total[order[done]] <= best + rounding:
            block = order[done : done + size]
            total[block] = _sums(self._columns, nearest, self._columns[:, block])
            best = min(best, float(total[block].min()))
            done, size = done + size, 2 * size

    def _totals(self, nearest: FloatArray) -> FloatArray:
        """``sum_i min(nearest_i, distance[i, j])`` of all j."""
        number = len(nearest)
        total = np.empty(number)
        with steps("distances between the devices' data", number) as advance:
            for start in range(0, number, _REPORT):
                part = slice(start, min(start + _REPORT, number))
                total[part] = _sums(self._columns, nearest, self._columns[:, part])
                advance(part.stop - start)
        return total

    def _distances(self, index: int) -> FloatArray:
        """The distances of all points to one."""
        squares: FloatArray = ((self._columns - self._columns[:, index, None]) ** 2).sum(axis=0)
        return np.sqrt(squares)


@njit(cache=True, error_model="numpy", parallel=True)
def _sums(points: FloatArray, nearest: FloatArray, targets: FloatArray) -> FloatArray:
    """``sum_i min(nearest_i, |points_i - targets_j|)`` of every target j, with points (d, N)."""
    dimensions, number = points.shape
    count = targets.shape[1]
    sums = np.zeros(count)
    for block in prange((count + _BLOCK - 1) // _BLOCK):
        start = block * _BLOCK
        stop = min(start + _BLOCK, count)
        own = targets[:, start:stop].copy()
        added = np.zeros(stop - start)
        square = np.empty(stop - start)
        for i in range(number):
            limit = nearest[i]
            square[:] = 0.0
            for dimension in range(dimensions):
                x = points[dimension, i]
                row = own[dimension]
                for j in range(stop - start):
                    difference = x - row[j]
                    square[j] += difference * difference
            for j in range(stop - start):
                added[j] += min(limit, math.sqrt(square[j]))
        sums[start:stop] = added
    return sums
