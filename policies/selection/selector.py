"""The base class of selectors, which choose the devices of a round."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from fl_edge_env.allocation import smallest as smallest  # for `Selector.select`
from fl_edge_env.typing import BoolArray, FloatArray, Info
from policies.base import Named


@dataclass(frozen=True, eq=False)
class Candidates:
    """The information a selector gets about the coming round, for one system or a batch of B.

    Attributes
    ----------
    channel_gain : ndarray, shape (N,) or (B, N)
        The observed gains.
    queue : ndarray, shape (N,) or (B, N)
        The energy queues [J].
    available : ndarray of bool, shape (N,) or (B, N)
        The available devices; all of them if the scenario has no dropouts.
    time : ndarray, shape (N,) or (B, N)
        Time of each device [s] at the resources it would get alone.
    energy : ndarray, shape (N,) or (B, N)
        Energy of each device [J] at the same resources.
    number : int
        Number of the coming round in the episode, counted from 1.
    """

    channel_gain: FloatArray
    queue: FloatArray
    available: BoolArray
    time: FloatArray
    energy: FloatArray
    number: int
    _draw: Callable[[], FloatArray]

    @cached_property
    def uniform(self) -> FloatArray:
        """A random number in [0, 1) for each device, from the policy's stream of this round."""
        return self._draw()


class Selector(Named):
    """Chooses devices for a round; `policies.selection.Scheduler` turns it into a policy.

    A new selector needs only `select`. If it remembers something, it creates its memory in `start`
    and updates it in `learn`.

    Parameters
    ----------
    scenario : Scenario
        The system.

    Attributes
    ----------
    name : str
        Name in tables and plots; the class name by default.
    samples : bool
        True if `select` gives sampling probabilities instead of a cohort.
    uses_losses : bool
        True if `learn` needs `local_losses`, see `train_fl.TrainingWrapper`. Without training
        FLEdge rejects such a selector.
    uses_update_norms : bool
        True if `learn` needs the `update_norms` of all devices before the first round.
    resources : callable or None
        The selector's own rule for f and p, see `policies.resources.ResourceRule`; None leaves them
        to the scheduler. For a chosen cohort it is called once, before the cohort is known.
    weights : ndarray or None, shape (N,)
        Weights of the participants' updates; None gives each its share of the cohort's data.
    first : int or None
        The round ends once this many of the cohort have finished, or all if it has fewer; None
        waits for all. See `fl_edge_env.Allocation`.
    memory : dict of ndarray
        The memory of the episode, as `start` made it.
    """

    samples: bool = False
    uses_losses: bool = False
    uses_update_norms: bool = False
    resources: Callable[..., tuple[FloatArray, ...]] | None = None
    weights: FloatArray | None = None
    first: int | None = None
    memory: dict[str, NDArray[Any]]

    @abstractmethod
    def select(self, candidates: Candidates) -> NDArray[Any]:
        """Choose the devices of the coming round.

        Parameters
        ----------
        candidates : Candidates
            The devices as the server knows them.

        Returns
        -------
        ndarray
            A cohort, indices of shape (k,) or (B, k) with at most K distinct available devices,
            padded with -1. If `samples` is True, probabilities of shape (N,) or (B, N).
        """

    def start(self, batch: tuple[int, ...]) -> dict[str, NDArray[Any]]:  # noqa: ARG002
        """Create the memory of an episode, empty by default.

        `batch` is () for one system and (B,) for a batch.
        """
        return {}

    def learn(self, info: Info) -> None:
        """Update `memory` from the environment's info of a reset or of a round."""
