"""The networks that devices train."""

from __future__ import annotations

from torch import nn


class DigitsCNN(nn.Sequential):
    """Two convolutions and a linear layer for 8 by 8 grey images: 6,090 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 10),
        )
