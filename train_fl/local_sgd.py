"""Local training: one network, reused for every device, on flat parameter vectors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from policies.benchmark.training_options import TrainingOptions
from train_fl.data.dataset import Augmentation

# Samples in a forward pass at most, where the result does not depend on it.
_CHUNK = 512


class LocalTrainer:
    """Trains a network from given parameters on a device's data.

    All parameters are views of one flat vector, and so is their momentum, which is zero at the
    start of every device's training: loading a model and taking its update are single operations
    on vectors of length d. Weight decay times the parameters is added to the gradient, and
    `proximal` times the distance from the global model, so that a device does not go far on its own
    data [Li2020]_. With ``"bfloat16"`` convolutions and matrix products round their inputs to 8
    bits of mantissa, as torch's autocast does; parameters and updates are always float32.
    `channels_last` changes only the last digits of results.

    References
    ----------
    .. [Li2020] Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020.
    """

    def __init__(self, model: nn.Module, options: TrainingOptions) -> None:
        self._model, self._options = model, options
        self._rounds = options.precision == "bfloat16"
        self._parameters = list(model.parameters())
        self._flat = torch.cat([p.detach().flatten() for p in self._parameters])
        self._velocity = torch.zeros_like(self._flat)
        self._values = self._views(self._flat)
        self._velocities = self._views(self._velocity)
        for parameter, value in zip(self._parameters, self._values, strict=True):
            parameter.data = value

    def _views(self, flat: Tensor) -> list[Tensor]:
        parts = torch.split(flat, [p.numel() for p in self._parameters])
        return [part.view_as(p) for part, p in zip(parts, self._parameters, strict=True)]

    def initial_parameters(self) -> Tensor:
        """The network's parameters as they are, shape (d,)."""
        return self._flat.clone()

    def update(
        self,
        parameters: Tensor,
        images: Tensor,
        labels: Tensor,
        *,
        epochs: float,
        learning_rate: float,
        rng: np.random.Generator,
        augment: Augmentation | None = None,
    ) -> tuple[Tensor, float]:
        """Run some epochs of SGD from the global model, each in a new order drawn from `rng`.

        A fraction of an epoch is a pass over as large a part of the samples, of one at least.
        `parameters` have shape (d,), `images` (samples, channels, height, width). Gives the local
        model less the global one, shape (d,), and the mean loss over the samples seen.
        """
        options = self._options
        self._flat.copy_(parameters)
        self._velocity.zero_()
        received = self._views(parameters)
        total = torch.zeros((), device=images.device)
        for samples in passes(epochs, len(labels)):
            order = torch.from_numpy(rng.permutation(len(labels))[:samples]).to(images.device)
            for batch_images, batch_labels in _batches(
                images[order], labels[order], options.batch_size
            ):
                if augment is not None:
                    batch_images = augment(batch_images, rng)
                loss, gradients = self._backward(batch_images, batch_labels)
                if options.proximal:
                    moved = torch._foreach_sub(self._values, received)
                    torch._foreach_add_(gradients, moved, alpha=options.proximal)
                # One pass over the memory: velocity = momentum * velocity + gradient,
                # parameters -= learning rate * velocity.
                torch._fused_sgd_(
                    self._values,
                    gradients,
                    self._velocities,
                    weight_decay=options.weight_decay,
                    momentum=options.momentum,
                    lr=learning_rate,
                    dampening=0.0,
                    nesterov=False,
                    maximize=False,
                    is_first_step=False,
                )
                total += loss * len(batch_labels)
        return self._flat - parameters, float(total) / sum(passes(epochs, len(labels)))

    def gradient(self, parameters: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Gradient of the mean loss over all given samples, shape (d,)."""
        self._flat.copy_(parameters)
        total = torch.zeros_like(self._flat)
        for chunk_images, chunk_labels in _batches(images, labels, _CHUNK):
            _, gradients = self._backward(chunk_images, chunk_labels)
            chunk = torch.cat([gradient.flatten() for gradient in gradients])
            total.add_(chunk, alpha=len(chunk_labels) / len(labels))
        return total

    @torch.no_grad()
    def evaluate(self, parameters: Tensor, images: Tensor, labels: Tensor) -> tuple[float, Tensor]:
        """Mean loss, and for each sample if its largest score is that of its class."""
        self._flat.copy_(parameters)
        loss = 0.0
        right = []
        for batch_images, batch_labels in _batches(images, labels, _CHUNK):
            scores = self._scores(batch_images)
            loss += float(cross_entropy(scores, batch_labels, reduction="sum"))
            right.append(scores.argmax(dim=1) == batch_labels)
        return loss / len(labels), torch.cat(right)

    @torch.no_grad()
    def losses(self, parameters: Tensor, images: Tensor, labels: Tensor) -> tuple[float, float]:
        """Mean and root mean square of the losses of the samples."""
        self._flat.copy_(parameters)
        losses = torch.cat(
            [
                cross_entropy(self._scores(batch_images), batch_labels, reduction="none")
                for batch_images, batch_labels in _batches(images, labels, _CHUNK)
            ]
        )
        return float(losses.mean()), float(losses.square().mean().sqrt())

    def _backward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Mean loss and its gradient, one tensor for each parameter."""
        loss = cross_entropy(self._scores(images), labels)
        gradients = torch.autograd.grad(loss, self._parameters)
        # Stored as the parameters are, which channels_last changes.
        return loss.detach(), [gradient.contiguous() for gradient in gradients]

    def _scores(self, images: Tensor) -> Tensor:
        """The network's scores for images, float32 of shape (batch, C)."""
        if self._options.channels_last:
            images = _channels_last(images)
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self._rounds):
            scores: Tensor = self._model(images)
        return scores.float() if self._rounds else scores


def passes(epochs: float, samples: int) -> list[int]:
    """Number of samples in each pass of some epochs over a device's data."""
    seen = max(1, round(epochs * samples))
    rest = [seen % samples] if seen % samples else []
    return [samples] * (seen // samples) + rest


def _channels_last(images: Tensor) -> Tensor:
    """The same images stored pixel by pixel."""
    count, channels, height, width = images.shape
    # With one channel torch takes both orders for the same, and would go on channel by channel.
    strides = (channels * height * width, 1, width * channels, channels)
    stored = images.contiguous(memory_format=torch.channels_last)
    return stored.as_strided((count, channels, height, width), strides)


def _batches(images: Tensor, labels: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(torch.split(images, size), torch.split(labels, size), strict=True)
