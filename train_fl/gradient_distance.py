"""Distances between the devices' gradients, for DivFL."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from fl_edge_env.typing import FloatArray, IntArray

# Columns per step of the inner products, so that the float32 copy stays in the cache.
_COLUMNS = 1 << 14
_LONGEST = 1e19  # largest gradient norm: its square is finite in float32


class GradientDistances:
    """The latest gradient of every device, and Euclidean distances between them.

    Gradients are stored as bfloat16, two bytes per number: 120 devices with the FEMNIST CNN take
    1.6 GB. The error of a distance is about 1e-4 of the longer gradient, or 3e-3 if the two are
    nearly equal.
    """

    def __init__(self, num_devices: int, num_parameters: int, device: torch.device) -> None:
        self.stored = torch.zeros(
            (num_devices, num_parameters), dtype=torch.bfloat16, device=device
        )
        self._distance = np.zeros((num_devices, num_devices))

    def update(self, devices: IntArray, gradients: Iterable[Tensor]) -> FloatArray:
        """Replace devices' gradients, each of shape (d,); return all distances, shape (N, N).

        Each gradient is stored before the next is computed, unless it is not finite.
        """
        for device, gradient in zip(devices.tolist(), gradients, strict=True):
            if torch.linalg.vector_norm(gradient) < _LONGEST:  # NaN fails
                self.stored[device] = gradient
        rows = torch.as_tensor(devices, device=self.stored.device)
        product = torch.zeros(
            (len(devices), len(self.stored)), dtype=torch.float64, device=self.stored.device
        )
        square = torch.zeros(len(self.stored), dtype=torch.float64, device=self.stored.device)
        for columns in torch.split(self.stored, _COLUMNS, dim=1):
            block = columns.float()
            product += block[rows] @ block.T
            square += torch.linalg.vecdot(block, block)
        squares = (square[rows, None] + square - 2.0 * product).clamp_(min=0.0)
        distance = squares.sqrt_().cpu().numpy()
        distance[np.arange(len(devices)), devices] = 0.0  # not the rounding error
        self._distance[devices] = distance
        self._distance[:, devices] = distance.T
        return self._distance.copy()
