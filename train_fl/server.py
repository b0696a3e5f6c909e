"""The server's step of the global model, and its optimisers.

The weighted sum of the updates is the step of plain federated averaging. A server optimiser takes
it for the negative of a gradient [Reddi2021]_.

References
----------
.. [Hsu2019a] Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for
   Federated Visual Classification", 2019.
.. [Reddi2021] Reddi et al., "Adaptive Federated Optimization", ICLR 2021.
.. [Wang2020] Wang, Liu, Liang, Joshi and Poor, "Tackling the objective inconsistency problem in
   heterogeneous federated optimization", NeurIPS 2020.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_edge_env.checks import finite_number, number_below_one, one_of, positive_integer
from fl_edge_env.typing import FloatArray
from train_fl.local_sgd import passes
from train_fl.options import TrainingOptions

LARGER_MU = (
    "a larger mu, which keeps the sampling probabilities and with them the aggregation weights even"
)


def apply_contributions(
    parameters: Tensor,
    updates: Tensor,
    weights: FloatArray,
    optimizer: ServerOptimizer,
    kept: dict[str, Tensor],
    round_number: int,
) -> None:
    """Move the global model (d,) in place by the updates (k, d) that arrived, if there are any.

    `weights` (k,) are those of `fl_edge_env.aggregation.contributions`. What the optimiser keeps
    is changed in place, and empty before the first round. A model that is then not finite is a
    `FloatingPointError`, which names the round.
    """
    if not len(updates):
        return
    for name in optimizer.keeps:
        if name not in kept:
            kept[name] = torch.zeros_like(parameters)
    parameters += optimizer.step(torch.from_numpy(weights).to(updates) @ updates, kept)
    if not torch.isfinite(parameters).all():
        raise FloatingPointError(
            f"the global model after round {round_number} is not finite: its largest aggregation "
            f"weight is {weights.max():g}; choose {LARGER_MU}"
        )


def norms_of(updates: Tensor) -> NDArray[np.float32]:
    """Euclidean norms of updates of shape (k, d), shape (k,)."""
    norms: NDArray[np.float32] = torch.linalg.vector_norm(updates, dim=1).cpu().numpy()
    return norms


@dataclass(frozen=True)
class ServerOptimizer(ABC):
    """Turns the weighted sum of a round's updates into the step of the global model.

    A new one is a class with one method, `step`, and the names of the vectors that it keeps.

    Parameters
    ----------
    learning_rate : float
        Factor of the step, positive and finite; `ValueError` if it is not.
    """

    keeps: ClassVar[tuple[str, ...]] = ()

    learning_rate: float = 1.0

    def __post_init__(self) -> None:
        finite_number("the server's learning_rate", self.learning_rate)

    def balance(self, epochs: FloatArray, num_samples: FloatArray) -> FloatArray:  # noqa: ARG002
        """Factors on the weights of the devices' updates by their work, all of shape (N,); ones."""
        return np.ones(len(num_samples))

    @abstractmethod
    def step(self, update: Tensor, kept: dict[str, Tensor]) -> Tensor:
        """The step of the global model, shape (d,), from the weighted sum of a round's updates.

        `kept` has the vectors of `keeps`, each of shape (d,), zero before the first round; they are
        changed in place.
        """


@dataclass(frozen=True)
class FedAvg(ServerOptimizer):
    """Federated averaging: the step is the weighted sum itself, times the learning rate."""

    def step(self, update: Tensor, kept: dict[str, Tensor]) -> Tensor:  # noqa: ARG002
        """See `ServerOptimizer.step`."""
        return self.learning_rate * update


@dataclass(frozen=True)
class FedNova(FedAvg):
    """Normalised averaging: a device that does more steps does not pull the model further.

    Federated averaging with unequal work ends where the gradients vanish in a mean that counts each
    device by its work [Wang2020]_. Here an update is divided by the length a of its device's path,
    and the sum multiplied by ``sum_n w_n a_n`` over all devices, so that it is as large as without.
    With momentum m, a device that does t steps of one gradient has moved by
    ``a = (t - m (1 - m**t) / (1 - m)) / (1 - m)`` times the learning rate.

    The authors take the mean of a over those who take part. Over all devices it does not depend on
    the draw, which otherwise would favour devices that meet others with much work.

    Parameters
    ----------
    learning_rate : float
        Factor of the step.
    batch_size, momentum
        Of local training, as in `train_fl.options.TrainingOptions`.
    """

    batch_size: int = 32
    momentum: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_integer("batch_size", self.batch_size)
        number_below_one("momentum", self.momentum)

    def balance(self, epochs: FloatArray, num_samples: FloatArray) -> FloatArray:
        """See `ServerOptimizer.balance`."""
        steps = np.array(
            [
                sum(-(-part // self.batch_size) for part in passes(epoch, samples))
                for epoch, samples in zip(epochs.tolist(), map(int, num_samples), strict=True)
            ]
        )
        m = self.momentum
        length = (steps - m * (1.0 - m**steps) / (1.0 - m)) / (1.0 - m)
        factors: FloatArray = np.average(length, weights=num_samples) / length
        return factors


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
    """

    keeps = ("velocity",)

    momentum: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        number_below_one("momentum", self.momentum)

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
        number_below_one("momentum", self.momentum)
        number_below_one("decay", self.decay)
        finite_number("epsilon", self.epsilon)

    def step(self, update: Tensor, kept: dict[str, Tensor]) -> Tensor:
        """See `ServerOptimizer.step`."""
        mean = kept["mean"].lerp_(update, 1.0 - self.momentum)
        square = kept["square"].lerp_(update.square(), 1.0 - self.decay)
        return self.learning_rate * mean / (square.sqrt() + self.epsilon)


# The server optimisers by name.
SERVER_OPTIMIZERS: dict[str, Callable[..., ServerOptimizer]] = {
    "fedavg": FedAvg,
    "fednova": FedNova,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
}


def make_server_optimizer(
    server: str | ServerOptimizer, options: TrainingOptions | None = None
) -> ServerOptimizer:
    """A server optimiser by name, with its own learning rate by default; or the one given.

    FedNova normalises local training with the batch size and the momentum of the options. A name
    that is none, a learning rate out of its range, or FedNova with a proximal term is a
    `ValueError`.
    """
    if isinstance(server, ServerOptimizer):
        return server
    one_of("the server optimiser", server, list(SERVER_OPTIMIZERS))
    options = options or TrainingOptions()
    rate = options.server_learning_rate
    given: dict[str, Any] = {} if rate is None else {"learning_rate": rate}
    if server == "fednova":
        if options.proximal:
            raise ValueError(f"fednova needs proximal = 0, got {options.proximal}")
        given |= {"batch_size": options.batch_size, "momentum": options.momentum}
    return SERVER_OPTIMIZERS[server](**given)
