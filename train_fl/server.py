"""What the server does with the updates of a cohort: their weights, and its own optimiser.

The weighted sum of the updates is the step of plain federated averaging. A server optimiser takes
it for the negative of a gradient [Reddi2021]_.

References
----------
.. [Reddi2021] Reddi et al., "Adaptive Federated Optimization", ICLR 2021.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_edge_env import Allocation, Scenario
from fl_edge_env.checks import finite_number
from fl_edge_env.typing import BoolArray, FloatArray, IntArray
from policies.benchmark.training_options import one_of, share


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


def weighted_sum(updates: Tensor, coefficients: FloatArray) -> Tensor:
    """The updates of a round together, shape (d,).

    Parameters
    ----------
    updates : Tensor, shape (k, d)
        Those of the participants.
    coefficients : ndarray, shape (k,)
        As `aggregation_weights` gives them.
    """
    total: Tensor = torch.as_tensor(coefficients).to(updates) @ updates
    return total


def norms_of(updates: Tensor) -> NDArray[np.float32]:
    """Euclidean norm of each update, shape (k,).

    Parameters
    ----------
    updates : Tensor, shape (k, d)
        Those of the participants.
    """
    norms: NDArray[np.float32] = torch.linalg.vector_norm(updates, dim=1).cpu().numpy()
    return norms


@dataclass(frozen=True)
class ServerOptimizer(ABC):
    """Turns the weighted sum of a round's updates into the step of the global model.

    A new one is a class with one method, `step`, and the names of the vectors that it keeps.

    Parameters
    ----------
    learning_rate : float
        Factor of the step.

    Raises
    ------
    ValueError
        If it is not positive and finite.
    """

    keeps: ClassVar[tuple[str, ...]] = ()

    learning_rate: float = 1.0

    def __post_init__(self) -> None:
        finite_number("the server's learning_rate", self.learning_rate)

    @abstractmethod
    def step(self, update: Tensor, kept: dict[str, Tensor]) -> Tensor:
        """The step of the global model.

        Parameters
        ----------
        update : Tensor, shape (d,)
            Weighted sum of the updates of a round.
        kept : dict of Tensor, shape (d,)
            The vectors of `keeps`, zero before the first round; to be changed in place.

        Returns
        -------
        Tensor, shape (d,)
        """


@dataclass(frozen=True)
class FedAvg(ServerOptimizer):
    """Federated averaging: the step is the weighted sum itself, times the learning rate."""

    def step(self, update: Tensor, kept: dict[str, Tensor]) -> Tensor:  # noqa: ARG002
        """See `ServerOptimizer.step`."""
        return self.learning_rate * update


@dataclass(frozen=True)
class FedAvgM(ServerOptimizer):
    """Federated averaging with momentum: ``v = momentum * v + update``, and v is the step.

    A run of rounds that agree moves the model ``1 / (1 - momentum)`` times as far as without
    [Hsu2019a]_.

    Parameters
    ----------
    learning_rate : float
        Factor of the step.
    momentum : float
        In [0, 1).

    References
    ----------
    .. [Hsu2019a] Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for
       Federated Visual Classification", 2019.
    """

    keeps = ("velocity",)

    momentum: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        share("momentum", self.momentum)

    def step(self, update: Tensor, kept: dict[str, Tensor]) -> Tensor:
        """See `ServerOptimizer.step`."""
        velocity = kept["velocity"].mul_(self.momentum).add_(update)
        return self.learning_rate * velocity


@dataclass(frozen=True)
class FedAdam(ServerOptimizer):
    """FedAdam, Algorithm 2 of Reddi et al., without a correction of the bias, as there.

    With ``m = momentum * m + (1 - momentum) * update`` and
    ``v = decay * v + (1 - decay) * update**2`` the step is
    ``learning_rate * m / (sqrt(v) + epsilon)``. However large an update is, no parameter moves
    by more than ``learning_rate * (1 - momentum) / sqrt(1 - decay)`` for it in its round: a large
    aggregation weight does not throw the model far away.

    Parameters
    ----------
    learning_rate : float
        About how far a parameter moves in a round.
    momentum, decay : float
        Of the means of the updates and of their squares, in [0, 1).
    epsilon : float
        Updates below it are taken for small.
    """

    keeps = ("mean", "square")

    learning_rate: float = 0.01
    momentum: float = 0.9
    decay: float = 0.99
    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        share("momentum", self.momentum)
        share("decay", self.decay)
        finite_number("epsilon", self.epsilon)

    def step(self, update: Tensor, kept: dict[str, Tensor]) -> Tensor:
        """See `ServerOptimizer.step`."""
        mean = kept["mean"].lerp_(update, 1.0 - self.momentum)
        square = kept["square"].lerp_(update.square(), 1.0 - self.decay)
        return self.learning_rate * mean / (square.sqrt() + self.epsilon)


# The server optimisers by name.
SERVER_OPTIMIZERS: dict[str, Callable[..., ServerOptimizer]] = {
    "fedavg": FedAvg,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
}


def make_server_optimizer(name: str, learning_rate: float | None = None) -> ServerOptimizer:
    """A server optimiser by name.

    Parameters
    ----------
    name : {"fedavg", "fedavgm", "fedadam"}
        Which.
    learning_rate : float, optional
        Its learning rate; by default its own.

    Raises
    ------
    ValueError
        If there is no such optimiser, or the learning rate is not positive and finite.
    """
    one_of("the server optimiser", name, SERVER_OPTIMIZERS)
    options = {} if learning_rate is None else {"learning_rate": learning_rate}
    return SERVER_OPTIMIZERS[name](**options)


def check_server_optimizer(server: str | ServerOptimizer) -> ServerOptimizer:
    """A server optimiser, given as itself or by its name.

    Parameters
    ----------
    server : str or ServerOptimizer
        As a user gives it.

    Raises
    ------
    ValueError
        If it is neither.
    """
    if isinstance(server, str):
        return make_server_optimizer(server)
    if not isinstance(server, ServerOptimizer):
        raise ValueError(f"server must be a name or a ServerOptimizer, got {server!r}")
    return server
