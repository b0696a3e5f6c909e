"""Gains that follow a finite-state Markov chain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator

from fl_edge_env.channels.exponential import ExponentialChannel
from fl_edge_env.checks import number_below_one, real_array
from fl_edge_env.typing import FloatArray

_STATES = 16  # of a discretised exponential channel


@dataclass(frozen=True)
class MarkovChannel:
    """Each device's gain follows an independent finite-state Markov chain.

    The chains start from their stationary distribution. The paper's performance analysis covers
    such channels if the chain is irreducible and aperiodic.

    Parameters
    ----------
    gains : sequence of float, length S
        Gain in each state, positive and ascending.
    transition : sequence of sequences of float, shape (S, S)
        Probability of moving from the row's state to the column's.

    Raises
    ------
    ValueError
        If the gains are not ascending, the rows are not distributions or the chain has no
        unique stationary distribution.
    """

    gains: Sequence[float]
    transition: Sequence[Sequence[float]]

    def __post_init__(self) -> None:
        gains = real_array("gains", self.gains)
        matrix = real_array("transition", self.transition)
        size = gains.size
        ascending = gains.ndim == 1 and size > 1 and gains[0] > 0 and np.all(np.diff(gains) > 0)
        if not (ascending and gains[-1] < math.inf):
            raise ValueError(
                f"gains must be two or more, positive and ascending, got {self.gains!r}"
            )
        if matrix.shape != (size, size):
            raise ValueError(
                f"transition must have shape ({size}, {size}) for {size} gains, "
                f"got shape {matrix.shape}"
            )
        if not (np.all(matrix >= 0) and np.allclose(matrix.sum(axis=1), 1, atol=1e-9)):
            raise ValueError(
                f"every row of transition must be a distribution, got {self.transition!r}"
            )
        if np.linalg.matrix_rank(matrix.T - np.eye(size), tol=1e-9) < size - 1:
            raise ValueError(
                "transition must have one stationary distribution, got a chain that has several"
            )
        rows = tuple(map(tuple, matrix.tolist()))
        vars(self).update(gains=tuple(gains.tolist()), transition=rows)

    @classmethod
    def correlated(cls, persistence: float) -> MarkovChannel:
        """Discretise the paper's exponential channel, with gains that persist.

        A device keeps its gain with the probability `persistence`, in [0, 1), which is the
        correlation of the gains in successive rounds; otherwise it draws one of 16 equally likely
        gains. Raises `ValueError` for another `persistence`.
        """
        persistence = number_below_one("persistence", persistence)
        middle = (np.arange(_STATES) + 0.5) / _STATES
        gains = ExponentialChannel().truncated(middle)
        transition = np.full((_STATES, _STATES), (1 - persistence) / _STATES)
        transition[np.diag_indices(_STATES)] += persistence
        return cls(gains.tolist(), transition.tolist())

    @property
    def gain_min(self) -> float:
        """Gain in the worst state."""
        return self.gains[0]

    @property
    def gain_max(self) -> float:
        """Gain in the best state."""
        return self.gains[-1]

    @cached_property
    def mean(self) -> float:
        """Mean gain under the stationary distribution."""
        return float(self.stationary @ np.array(self.gains))

    @cached_property
    def stationary(self) -> FloatArray:
        """Stationary distribution of the chain, shape (S,)."""
        size = len(self.gains)
        system = np.vstack([np.array(self.transition).T - np.eye(size), np.ones(size)])
        positive = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0))[0].clip(0.0)
        return positive / positive.sum()

    def draw(
        self,
        rng: Generator,
        rounds: int,
        num_devices: int,
        *,
        previous: FloatArray | None = None,
        **_: object,
    ) -> FloatArray:
        """Draw the gains of the next rounds; see `ChannelModel.draw`."""
        gains = np.array(self.gains)
        start = np.cumsum(self.stationary)
        steps = np.cumsum(self.transition, axis=1)
        start[-1] = steps[:, -1] = math.inf  # rounding must not lead past the last state
        states = np.empty((rounds, num_devices), dtype=np.int64)
        last = None if previous is None else np.searchsorted(gains, previous)
        for index, uniform in enumerate(rng.random((rounds, num_devices))):
            cdf = start if last is None else steps[last]
            last = states[index] = np.sum(cdf <= uniform[:, None], axis=1)
        return gains[states]

    def sample(self, rng: Generator, count: int, num_devices: int) -> FloatArray:
        """Draw independent rounds; see `ChannelModel.sample`."""
        return rng.choice(np.array(self.gains), (count, num_devices), p=self.stationary)
