"""The server's step of the global model, and its optimisers.

In plain federated averaging the step is the weighted sum of the updates. Server optimisers treat
this sum as a negative gradient [Reddi2021]_.

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
from torch import Tensor

from fl_edge_env.checks import finite_number, number_below_one, one_of, positive_integer
from fl_edge_env.typing import Float32Array, FloatArray
from train_fl.local_sgd import passes
from train_fl.training_options import TrainingOptions

LARGER_MU = "a larger mu, which evens out the sampling probabilities and so the aggregation weights"


def apply_contributions(
    parameters: Tensor,
    updates: Tensor,
    weights: FloatArray,
    optimizer: ServerOptimizer,
    kept: dict[str, Tensor],
    round_number: int,
) -> None:
    """Apply the updates that arrived, shape (k, d), to the global model, shape (d,), in place.

    `weights`, shape (k,), come from `fl_edge_env.aggregation.contributions`. The optimiser's state
    `kept` is empty before the first round and changed in place. Raises `FloatingPointError`, which
    names the round, if the new model is not finite.
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


def norms_of(updates: Tensor) -> Float32Array:
    """Euclidean norms of updates of shape (k, d), shape (k,)."""
    return torch.linalg.vector_norm(updates, dim=1).cpu().numpy()


@dataclass(frozen=True)
class ServerOptimizer(ABC):
    """Turns the weighted sum of a round's updates into the step of the global model.

    A user-defined optimiser is a subclass with a method `step`; `keeps` names its state vectors.

    Parameters
    ----------
    learning_rate : float
        Factor of the step, positive and finite; `ValueError` otherwise.
    """

    keeps: ClassVar[tuple[str, ...]] = ()

    learning_rate: float = 1.0

    def __post_init__(self) -> None:
        finite_number("the server's learning_rate", self.learning_rate)

    def balance(self, epochs: FloatArray, num_samples: FloatArray) -> FloatArray:  # noqa: ARG002
        """Factors on the updates' weights from the devices' work, shape (N,); ones by default."""
        return np.ones(len(num_samples))

    @abstractmethod
    def step(self, update: Tensor, kept: dict[str, Tensor]) -> Tensor:
        """The step of the global model, shape (d,), from the weighted sum of a round's updates.

        `kept` has the state vectors named in `keeps`, each of shape (d,) and zero before the first
        round; change them in place.
        """


@dataclass(frozen=True)
class FedAvg(ServerOptimizer):
    """Federated averaging: the step is the weighted sum itself, times the learning rate."""

    def step(self, update: Tensor, kept: dict[str, Tensor]) -> Tensor:  # noqa: ARG002
        """See `ServerOptimizer.step`."""
        return self.learning_rate * update


@dataclass(frozen=True)
class FedNova(FedAvg):
    """Normalised averaging: devices with more local steps get no more weight.

    With unequal work, federated averaging converges to the minimum of an objective that weights
    each device by its work [Wang2020]_. FedNova divides each update by the length a of its device's
    path, and multiplies the sum by ``sum_n w_n a_n`` over all devices, which preserves its scale.
    With momentum m, t steps with the same gradient move a device by
    ``a = (t - m (1 - m**t) / (1 - m)) / (1 - m)`` times the learning rate.

    The authors average a over the participants. Averaged over all devices it does not depend on the
    draw, which would otherwise favour devices drawn together with others that do much work.

    Parameters
    ----------
    learning_rate : float
        Factor of the step.
    batch_size, momentum
        Settings of local training, as in `train_fl.training_options.TrainingOptions`.
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
        return np.average(length, weights=num_samples) / length


@dataclass(frozen=True)
class FedAvgM(ServerOptimizer):
    """Federated averaging with momentum: the step is ``v = momentum * v + update``.

    A long sequence of equal updates moves the model ``1 / (1 - momentum)`` times as far as without
    momentum [Hsu2019a]_.

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
    """FedAdam: Algorithm 2 of Reddi et al., which has no bias correction.

    With ``m = momentum * m + (1 - momentum) * update`` and
    ``v = decay * v + (1 - decay) * update**2`` the step is
    ``learning_rate * m / (sqrt(v) + epsilon)``. In its own round, an update moves no parameter by
    more than ``learning_rate * (1 - momentum) / sqrt(1 - decay)``, however large it is. A large
    aggregation weight therefore does not throw the model far off.

    Parameters
    ----------
    learning_rate : float
        Approximate step of a parameter in a round.
    momentum, decay : float
        Decay rates of the moving averages of updates and of their squares, in [0, 1).
    epsilon : float
        Added to the denominator; it damps updates that are small compared with it.
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
    """Make a server optimiser by name; an instance is returned as it is.

    The learning rate is the optimiser's default unless the options have one. FedNova takes its
    batch size and momentum from the options. Raises `ValueError` for an unknown name, a learning
    rate out of range, or FedNova with a proximal term.
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
