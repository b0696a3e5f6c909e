"""The network of `fashion_mnist.toml`, small enough for thirty runs in an hour."""

from torch import nn


class TinyCNN(nn.Sequential):
    """Two convolutions and a linear layer for 28 by 28 grey images: 28,938 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(1568, 10),
        )
