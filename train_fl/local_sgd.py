"""Local training: one network, reused for every device, on flat parameter vectors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

# Samples in a pass without gradients.
_EVALUATION_BATCH = 2048


class LocalTrainer:
    """Trains a network from given parameters on a device's data.

    All parameters are views of one flat vector, and so are their gradients: loading a model,
    a step of SGD and an update are each a few operations on vectors of length d.

    Parameters
    ----------
    model : torch.nn.Module
        The network; without buffers that change in training, such as running statistics.
    batch_size : int
        Samples in a step of SGD.
    momentum : float
        Momentum of SGD, zero at the start of every device's training.
    """

    def __init__(self, model: nn.Module, *, batch_size: int, momentum: float) -> None:
        self._model = model
        self._batch_size = batch_size
        self._momentum = momentum
        parameters = list(model.parameters())
        self._flat = torch.cat([p.detach().flatten() for p in parameters])
        self._gradient = torch.zeros_like(self._flat)
        self._velocity = torch.zeros_like(self._flat)
        start = 0
        for parameter in parameters:
            end = start + parameter.numel()
            parameter.data = self._flat[start:end].view_as(parameter)
            parameter.grad = self._gradient[start:end].view_as(parameter)
            start = end

    @property
    def num_parameters(self) -> int:
        """Number of parameters d."""
        return self._flat.numel()

    def initial_parameters(self) -> Tensor:
        """The network's parameters as they are, shape (d,)."""
        return self._flat.clone()

    def update(
        self,
        parameters: Tensor,
        images: Tensor,
        labels: Tensor,
        *,
        epochs: int,
        learning_rate: float,
        rng: np.random.Generator,
    ) -> tuple[Tensor, float]:
        """Run some epochs of SGD from the given parameters.

        Parameters
        ----------
        parameters : Tensor, shape (d,)
            The global model.
        images : Tensor, shape (samples, channels, height, width)
            The device's images.
        labels : Tensor of int64, shape (samples,)
            Their classes.
        epochs : int
            Passes over the data, each in a new order.
        learning_rate : float
            Step size.
        rng : numpy.random.Generator
            Stream of the orders.

        Returns
        -------
        update : Tensor, shape (d,)
            The local model less the global one.
        loss : float
            Mean loss over the samples seen.
        """
        self._flat.copy_(parameters)
        self._velocity.zero_()
        total = torch.zeros((), device=images.device)
        for _ in range(epochs):
            order = torch.from_numpy(rng.permutation(len(labels))).to(images.device)
            for batch_images, batch_labels in _batches(
                images[order], labels[order], self._batch_size
            ):
                loss = self._backward(batch_images, batch_labels)
                self._velocity.mul_(self._momentum).add_(self._gradient)
                self._flat.add_(self._velocity, alpha=-learning_rate)
                total += loss * len(batch_labels)
        return self._flat - parameters, float(total) / (epochs * len(labels))

    def gradient(self, parameters: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Gradient of the mean loss over all given samples, shape (d,).

        Parameters
        ----------
        parameters, images, labels
            As in `update`.
        """
        self._flat.copy_(parameters)
        self._backward(images, labels)
        return self._gradient.clone()

    @torch.no_grad()
    def evaluate(self, parameters: Tensor, images: Tensor, labels: Tensor) -> tuple[float, float]:
        """Mean loss and accuracy.

        Parameters
        ----------
        parameters, images, labels
            As in `update`.

        Returns
        -------
        loss : float
        accuracy : float
            Share of samples whose largest score is that of their class.
        """
        self._flat.copy_(parameters)
        loss, correct = 0.0, 0
        for batch_images, batch_labels in _batches(images, labels, _EVALUATION_BATCH):
            scores = self._model(batch_images)
            loss += float(cross_entropy(scores, batch_labels, reduction="sum"))
            correct += int((scores.argmax(dim=1) == batch_labels).sum())
        return loss / len(labels), correct / len(labels)

    def _backward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Write the gradient of the mean loss into the gradient vector; return the loss."""
        self._gradient.zero_()
        loss = cross_entropy(self._model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


def _batches(images: Tensor, labels: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(torch.split(images, size), torch.split(labels, size), strict=True)
