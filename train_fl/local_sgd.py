"""Local training: one network, reused for every device, on flat parameter vectors."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fl_edge_env.typing import FloatArray
from train_fl.data.dataset import Augmentation
from train_fl.training_options import TrainingOptions

# Batch size of a device's gradients and losses over all its samples.
_CHUNK = 512
# Batch size of evaluations on test samples: a processor's cache holds the outputs of few layers.
_EVALUATED = 256


class LocalTrainer:
    """Trains a network from given parameters on a device's data.

    All parameters are views of one flat vector of length d, so loading a model and computing its
    update are single operations. Their momentum is another such vector, and starts at zero for
    every device. `proximal` times the difference from the global model is added to the gradient,
    which keeps devices from drifting apart [Li2020]_. The loss is the cross-entropy.

    References
    ----------
    .. [Li2020] Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020.
    """

    def __init__(self, model: nn.Module, options: TrainingOptions) -> None:
        self._model = model
        self._options = options
        self._parameters = list(model.parameters())
        self._flat = torch.cat([p.detach().flatten() for p in self._parameters])
        self._velocity = torch.zeros_like(self._flat)
        self._values = self._views(self._flat)
        # torch rejects them without momentum.
        self._velocities = self._views(self._velocity) if options.momentum else []
        for parameter, value in zip(self._parameters, self._values, strict=True):
            parameter.data = value

    def __reduce__(self) -> tuple[type[LocalTrainer], tuple[nn.Module, TrainingOptions]]:
        """Copy or pickle the network; the copy's parameters are views of its own vector."""
        return LocalTrainer, (copy.deepcopy(self._model), self._options)

    def _views(self, flat: Tensor) -> list[Tensor]:
        parts = torch.split(flat, [p.numel() for p in self._parameters])
        return [part.view_as(p) for part, p in zip(parts, self._parameters, strict=True)]

    def initial_parameters(self) -> Tensor:
        """A copy of the network's parameters, shape (d,)."""
        return self._flat.clone()

    def update(
        self,
        parameters: Tensor,
        inputs: Tensor,
        targets: Tensor,
        *,
        epochs: float,
        learning_rate: float,
        rng: np.random.Generator,
        augment: Augmentation | None = None,
    ) -> tuple[Tensor, float]:
        """Run SGD from the global model, with the samples shuffled by `rng` in each epoch.

        A fraction of an epoch is a pass over that fraction of the samples, at least one sample.
        `parameters` have shape (d,), `inputs` (samples, ...). Returns the update, the local minus
        the global model, shape (d,), and the mean loss over the samples seen.
        """
        options = self._options
        self._flat.copy_(parameters)
        self._velocity.zero_()
        received = self._views(parameters)
        total = torch.zeros((), device=inputs.device)
        for samples in passes(epochs, len(targets)):
            order = torch.from_numpy(rng.permutation(len(targets))[:samples]).to(inputs.device)
            for batch_inputs, batch_targets in _batches(
                inputs[order], targets[order], options.batch_size
            ):
                if augment is not None:
                    batch_inputs = augment(batch_inputs, rng)
                loss, gradients = self._backward(batch_inputs, batch_targets)
                if options.proximal:
                    moved = torch._foreach_sub(self._values, received)
                    torch._foreach_add_(gradients, moved, alpha=options.proximal)
                # In one pass over memory: velocity = momentum * velocity + gradient,
                # parameters -= learning rate * velocity.
                torch._fused_sgd_(
                    self._values,
                    gradients,
                    self._velocities,
                    weight_decay=0.0,
                    momentum=options.momentum,
                    lr=learning_rate,
                    dampening=0.0,
                    nesterov=False,
                    maximize=False,
                    is_first_step=False,
                )
                total += loss * len(batch_targets)
        return self._flat - parameters, float(total) / sum(passes(epochs, len(targets)))

    def gradient(self, parameters: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """Gradient of the mean loss over all given samples, shape (d,)."""
        self._flat.copy_(parameters)
        total = torch.zeros_like(self._flat)
        for chunk_inputs, chunk_targets in _batches(inputs, targets, _CHUNK):
            _, gradients = self._backward(chunk_inputs, chunk_targets)
            chunk = torch.cat([gradient.flatten() for gradient in gradients])
            total.add_(chunk, alpha=len(chunk_targets) / len(targets))
        return total

    @torch.no_grad()
    def evaluate(
        self, parameters: Tensor, inputs: Tensor, targets: Tensor, *, at_once: int = _EVALUATED
    ) -> tuple[float, Tensor]:
        """Mean loss, and the network's outputs for all samples, shape (samples, outputs)."""
        self._flat.copy_(parameters)
        loss = 0.0
        all_outputs = []
        for batch_inputs, batch_targets in _batches(inputs, targets, at_once):
            outputs = self._model(batch_inputs)
            loss += float(cross_entropy(outputs, batch_targets, reduction="sum"))
            all_outputs.append(outputs)
        return loss / len(targets), torch.cat(all_outputs)

    def losses(self, parameters: Tensor, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
        """Mean and root mean square of the samples' losses."""
        _, outputs = self.evaluate(parameters, inputs, targets, at_once=_CHUNK)
        losses = cross_entropy(outputs, targets, reduction="none")
        return float(losses.mean()), float(losses.square().mean().sqrt())

    def _backward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Mean loss and its gradient, one tensor for each parameter."""
        loss = cross_entropy(self._model(inputs), targets)
        gradients = torch.autograd.grad(loss, self._parameters)
        # Stored like the parameters, which layers do not guarantee.
        return loss.detach(), [gradient.contiguous() for gradient in gradients]


def samples_seen(epochs: ArrayLike, samples: ArrayLike) -> FloatArray:
    """Number of samples that local training goes through, counted in each pass; at least one."""
    return np.maximum(1.0, np.rint(np.multiply(epochs, samples)))


def passes(epochs: float, samples: int) -> list[int]:
    """Number of samples in each pass over a device's data; the last pass may be partial."""
    seen = int(samples_seen(epochs, samples))
    rest = [seen % samples] if seen % samples else []
    return [samples] * (seen // samples) + rest


def _batches(inputs: Tensor, targets: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(torch.split(inputs, size), torch.split(targets, size), strict=True)
