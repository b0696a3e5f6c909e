"""Local training: one network, reused for every device, on flat parameter vectors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from train_fl.data.dataset import Augmentation

# Samples in a forward pass at most, where the result does not depend on it.
_CHUNK = 512


def check_network(model: nn.Module) -> None:
    """Refuse what local training cannot treat rightly.

    Parameters
    ----------
    model : torch.nn.Module
        The network.

    Raises
    ------
    ValueError
        If it has buffers, such as the running statistics of batch norm, which are no parameters
        and would not be aggregated, or dropout, whose random numbers no seed names.
    """
    for name, _ in model.named_buffers():
        raise ValueError(f"the network must have no buffers, got {name}: use group norm instead")
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            raise ValueError(f"the network must have no dropout, got {name}: {module}")


class LocalTrainer:
    """Trains a network from given parameters on a device's data.

    All parameters are views of one flat vector, and so is their momentum: loading a model and
    taking its update are single operations on vectors of length d.

    Parameters
    ----------
    model : torch.nn.Module
        The network; see `check_network`.
    batch_size : int
        Samples in a step of SGD.
    momentum : float
        Momentum of SGD, zero at the start of every device's training.
    """

    def __init__(self, model: nn.Module, *, batch_size: int, momentum: float) -> None:
        self._model = model
        self._batch_size = batch_size
        self._momentum = momentum
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
        augment: Augmentation | None = None,
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
            Stream of the orders and of the augmentation.
        augment : callable, optional
            Random changes of the images of a batch.

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
                if augment is not None:
                    batch_images = augment(batch_images, rng)
                loss, gradients = self._backward(batch_images, batch_labels)
                # One pass over the memory: velocity = momentum * velocity + gradient,
                # parameters -= learning rate * velocity.
                torch._fused_sgd_(
                    self._values,
                    gradients,
                    self._velocities,
                    weight_decay=0.0,
                    momentum=self._momentum,
                    lr=learning_rate,
                    dampening=0.0,
                    nesterov=False,
                    maximize=False,
                    is_first_step=False,
                )
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
        total = torch.zeros_like(self._flat)
        for chunk_images, chunk_labels in _batches(images, labels, _CHUNK):
            _, gradients = self._backward(chunk_images, chunk_labels)
            chunk = torch.cat([gradient.flatten() for gradient in gradients])
            total.add_(chunk, alpha=len(chunk_labels) / len(labels))
        return total

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
        for batch_images, batch_labels in _batches(images, labels, _CHUNK):
            scores = self._model(batch_images)
            loss += float(cross_entropy(scores, batch_labels, reduction="sum"))
            correct += int((scores.argmax(dim=1) == batch_labels).sum())
        return loss / len(labels), correct / len(labels)

    @torch.no_grad()
    def losses(self, parameters: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Loss of each sample, shape (samples,).

        Parameters
        ----------
        parameters, images, labels
            As in `update`.
        """
        self._flat.copy_(parameters)
        return torch.cat(
            [
                cross_entropy(self._model(batch_images), batch_labels, reduction="none")
                for batch_images, batch_labels in _batches(images, labels, _CHUNK)
            ]
        )

    def _backward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Mean loss and its gradient, one tensor for each parameter."""
        loss = cross_entropy(self._model(images), labels)
        return loss.detach(), list(torch.autograd.grad(loss, self._parameters))


def _batches(images: Tensor, labels: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(torch.split(images, size), torch.split(labels, size), strict=True)
