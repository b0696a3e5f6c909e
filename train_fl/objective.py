"""What a network learns and is judged by: the loss and the metric."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, l1_loss, mse_loss

from fl_edge_env.checks import is_real, one_of
from policies.own import running_own

# Of a network's outputs for a batch, shape (batch, outputs), and its targets the loss of each
# sample, shape (batch,).
Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Metric:
    """By which models are judged on the test set.

    Parameters
    ----------
    name : str
        As tables and columns call it, such as ``"top5"``.
    value : callable
        ``value(outputs, targets)`` gives one number, of the network's outputs for all test samples,
        shape (samples, outputs), and their targets, tensors in the processor's memory.
    larger_is_better : bool
        False for an error: a target is then reached from above.

    Raises
    ------
    ValueError
        If an argument is of another kind, or the name is taken.
    """

    name: str
    value: Callable[[Tensor, Tensor], Any]
    larger_is_better: bool = True

    def __post_init__(self) -> None:
        name = self.name
        if not (isinstance(name, str) and name.isidentifier()) or name == "loss":
            raise ValueError(
                f"a metric's name must be letters, digits and underscores, and not 'loss', "
                f"got {name!r}"
            )
        if name == "accuracy" and self.value is not _accuracy:
            raise ValueError("a metric of one's own must have another name than 'accuracy'")
        if not callable(self.value):
            raise ValueError(
                f"value of the metric {name!r} must be a function of outputs and targets, "
                f"got {self.value!r}"
            )
        if not isinstance(self.larger_is_better, bool):
            raise ValueError(
                f"larger_is_better of the metric {name!r} must be True or False, "
                f"got {self.larger_is_better!r}"
            )

    def of(self, outputs: Tensor, targets: Tensor) -> float:
        """The metric of a network's outputs.

        Raises
        ------
        ValueError
            If its function fails or gives no number, or NaN although all outputs are finite.
        """
        with running_own(f"the metric {self.name!r} must be called as value(outputs, targets)"):
            value = self.value(outputs.cpu(), targets.cpu().clone())  # which it may change
        if isinstance(value, Tensor) and value.ndim == 0:
            value = value.item()
        if not is_real(value):
            shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
            got = f"a {type(value).__name__}{shape}" if shape else repr(value)
            raise ValueError(
                f"the metric {self.name!r} must give one real number for all samples, got {got}"
            )
        if math.isnan(value) and torch.isfinite(outputs).all():
            raise ValueError(
                f"the metric {self.name!r} must give a number, got NaN for finite outputs of "
                f"{len(outputs)} samples"
            )
        return float(value)


def _accuracy(outputs: Tensor, targets: Tensor) -> float:
    return float((outputs.argmax(dim=1) == targets).double().mean())


def cross_entropies(outputs: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy of each sample, shape (batch,)."""
    return cross_entropy(outputs, targets, reduction="none")


def _squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return mse_loss(outputs, targets, reduction="none").mean(dim=1)


def _absolute(outputs: Tensor, targets: Tensor) -> Tensor:
    return l1_loss(outputs, targets, reduction="none").mean(dim=1)


def _rmse(outputs: Tensor, targets: Tensor) -> float:
    return math.sqrt(mse_loss(outputs.double(), targets.double()))


def _mae(outputs: Tensor, targets: Tensor) -> float:
    return float(l1_loss(outputs.double(), targets.double()))


ACCURACY = Metric("accuracy", _accuracy)
# By name, for classes and for targets that are numbers: the first are those by default.
_LOSSES: dict[bool, dict[str, Loss]] = {
    True: {"cross_entropy": cross_entropies},
    False: {"mse": _squared, "mae": _absolute},
}
_METRICS = {
    True: {"accuracy": ACCURACY},
    False: {
        "rmse": Metric("rmse", _rmse, larger_is_better=False),
        "mae": Metric("mae", _mae, larger_is_better=False),
    },
}


def make_loss(loss: str | Loss | None, *, classes: bool) -> Loss:
    """A loss by its name, the one by default, or the one given.

    Raises
    ------
    ValueError
        If there is no such loss for classes, or for targets that are numbers.
    """
    if callable(loss):
        return loss
    known = _LOSSES[classes]
    if loss is not None:
        one_of(f"the loss of {_kind(classes)}", loss, list(known))
    return known[loss or next(iter(known))]


def make_metric(metric: str | Metric | None, *, classes: bool) -> Metric:
    """A metric by its name, the one by default, or the one given; see `make_loss`."""
    if isinstance(metric, Metric):
        return metric
    if callable(metric):
        raise ValueError(
            f"metric must be a name or a Metric, got {metric!r}: give it a name and a direction, "
            "Metric(name, value, larger_is_better=…)"
        )
    known = _METRICS[classes]
    if metric is not None:
        one_of(f"the metric of {_kind(classes)}", metric, list(known))
    return known[metric or next(iter(known))]


def _kind(classes: bool) -> str:
    return "classes" if classes else "targets that are numbers"


def check_loss(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The losses of a few samples, if these are finite and gradients flow back from them.

    Raises
    ------
    ValueError
        If the function fails or gives something else.
    """
    given = []
    for count in (len(outputs), 1):  # a batch may be a single sample
        some, wanted = outputs[:count], targets[:count].clone()
        with running_own("the loss must be called as loss(outputs, targets)"):
            losses = loss(some, wanted)
        if not isinstance(losses, Tensor) or tuple(losses.shape) != (count,):
            got = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else repr(losses)
            raise ValueError(
                f"the loss must give a number for each sample, shape ({count},) for outputs of "
                f"shape {tuple(some.shape)} and targets of shape {tuple(wanted.shape)}, got {got}: "
                'give torch\'s losses reduction="none", and the mean over outputs'
            )
        if not torch.equal(wanted, targets[:count]):
            raise ValueError("the loss must leave the targets as they are, and it changed them")
        given.append(losses)
    losses = given[0]
    if not losses.is_floating_point():
        raise ValueError(f"the loss must give floats, got {losses.dtype}")
    if not losses.requires_grad:
        raise ValueError(
            "the loss must give numbers that gradients flow back from, got a detached tensor: "
            "leave out detach(), torch.no_grad() and the way through NumPy"
        )
    if not (finite := torch.isfinite(losses)).all():
        raise ValueError(
            f"the loss must be finite, got {losses[~finite][0].item()} for the first samples"
        )
    return losses
