"""A policy network for all devices together, whose parameters do not depend on their number."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import Schedule
from torch import nn


class SharedNetworkPolicy(ActorCriticPolicy):
    """The same network for every device, which also sees the mean over all devices.

    An encoder maps each device's features to a hidden vector; from it and the mean of all hidden
    vectors a second layer gives the means of f, p and q. The standard deviations are shared. The
    value comes from an encoder of its own, whose hidden vectors are averaged. When the devices
    are permuted, so are the decisions, and the parameters fit any number of devices.

    Parameters
    ----------
    observation_space : gymnasium.spaces.Box
        Features of the devices, shape (N, F).
    action_space : gymnasium.spaces.Box
        Of shape (3, N).
    lr_schedule : callable
        Learning rate over the remaining progress.
    width : int
        Size of the hidden vectors.
    **kwargs
        As in `stable_baselines3.common.policies.ActorCriticPolicy`; those that shape a network
        do nothing here.
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        lr_schedule: Schedule,
        *,
        width: int = 64,
        **kwargs: Any,
    ) -> None:
        self.width = width
        super().__init__(observation_space, action_space, lr_schedule, **kwargs)

    def _build(self, lr_schedule: Schedule) -> None:
        assert self.observation_space.shape is not None
        num_devices, num_features = self.observation_space.shape
        self._num_devices = num_devices
        self.mlp_extractor = _Encoder(num_devices, num_features, self.width)  # type: ignore[assignment]
        self.action_net = nn.Linear(self.width, 3)
        self.value_net = nn.Linear(self.width, 1)
        self.log_std = nn.Parameter(torch.full((3, 1), self.log_std_init))
        gains = {self.mlp_extractor: np.sqrt(2), self.action_net: 0.01, self.value_net: 1.0}
        for module, gain in gains.items():
            module.apply(partial(self.init_weights, gain=gain))
        options = {"lr": lr_schedule(1), **self.optimizer_kwargs}
        self.optimizer = self.optimizer_class(self.parameters(), **options)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "width": self.width}

    def _get_action_dist_from_latent(self, latent_pi: torch.Tensor) -> Any:
        mean = self.action_net(latent_pi).transpose(-1, -2).flatten(start_dim=-2)
        log_std = self.log_std.expand(3, self._num_devices).flatten()
        return self.action_dist.proba_distribution(mean, log_std)


class _Encoder(nn.Module):
    """From the flat features to what the heads for actions and value read."""

    def __init__(self, num_devices: int, num_features: int, width: int) -> None:
        super().__init__()
        self.latent_dim_pi = self.latent_dim_vf = width
        self._shape = (num_devices, num_features)
        self.embedding = nn.Sequential(nn.Linear(num_features, width), nn.Tanh())
        self.own = nn.Linear(width, width)
        self.context = nn.Linear(width, width, bias=False)
        self.value = nn.Sequential(
            nn.Linear(num_features, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )

    def forward(self, flat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.forward_actor(flat), self.forward_critic(flat)

    def forward_actor(self, flat: torch.Tensor) -> torch.Tensor:
        """A hidden vector for each device, shape (B, N, width)."""
        hidden = self.embedding(flat.view(-1, *self._shape))
        context = self.context(hidden.mean(dim=-2, keepdim=True))
        return torch.tanh(self.own(hidden) + context)

    def forward_critic(self, flat: torch.Tensor) -> torch.Tensor:
        """The mean of the devices' hidden vectors, shape (B, width)."""
        mean: torch.Tensor = self.value(flat.view(-1, *self._shape)).mean(dim=-2)
        return mean
