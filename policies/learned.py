"""Trained agents as policies."""

from __future__ import annotations

import dataclasses
import io
import json
import tomllib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.policies import BasePolicy

from fl_edge_env import Allocation, ExponentialChannel, Scenario
from fl_edge_env.allocation import decode_action
from fl_edge_env.checks import available, is_real, observed
from fl_edge_env.features import Scaling, feature_names
from fl_edge_env.files import as_value_error, atomic_path, check_zip
from fl_edge_env.memory import GainMemory
from fl_edge_env.scenario import toml
from fl_edge_env.typing import FloatArray
from policies.base import Policy
from policies.learning.settings import AgentSettings
from policies.learning.views import device_rows, gather_rows

_FORMAT = 4
AGENT_FILE = "agent.pt"


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Give torch a number of threads, and after the block the number that it had before.

    In small networks threads only wait for each other, and their number changes the last digits.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class SB3Policy(Policy):
    """An agent trained with Stable-Baselines3, which takes the mean of its actions.

    Made by `policies.learning.training.train_agent` or `load`. If the server knows only the gains
    of participants, it remembers what they have measured in the episode.

    Parameters
    ----------
    scenario : Scenario
        The system it controls, not necessarily the one it was trained in.
    settings : AgentSettings
        Its kind and its training.
    weights : mapping of ndarray
        Parameters of its network.
    trained_in : Scenario, optional
        The system it was trained in; `scenario` by default.
    cost : mapping, optional
        Cost of the training, ``rounds`` and ``minutes``, and whether it is ``finished``.

    Raises
    ------
    ValueError
        If the network is for other features.
    """

    def __init__(
        self,
        scenario: Scenario,
        settings: AgentSettings,
        weights: Mapping[str, NDArray[Any]],
        *,
        trained_in: Scenario | None = None,
        cost: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(scenario)
        self.settings = settings
        self.weights = dict(weights)
        self.trained_in = trained_in if trained_in is not None else scenario
        self.cost = dict(cost or {})
        self.name = f"{settings.label} {settings.seed}"
        # Its actions are those of the paper's reward, whatever the environment rewards.
        self._own = scenario
        if scenario.objective != "penalty":
            self._own = scenario.replace(objective="penalty")
        if feature_names(self._own) != feature_names(self.trained_in):
            raise ValueError(
                f"the agent {self.name!r} was trained with csi={self.trained_in.csi!r} and cannot "
                f"run with csi={scenario.csi!r}, where it would see other features"
            )
        self._reset(())

    @cached_property
    def _system(self) -> Scenario:
        return self.settings.training_scenario(self._own)

    @cached_property
    def _scaling(self) -> Scaling:
        return Scaling(self._system)

    @cached_property
    def _network(self) -> BasePolicy:
        network = self.settings.make_network(self._own)
        network.load_state_dict({name: torch.as_tensor(w) for name, w in self.weights.items()})
        network.set_training_mode(False)
        return network

    def __getstate__(self) -> dict[str, Any]:
        """The attributes without those that follow from others."""
        derived = ("_system", "_scaling", "_network")
        return {name: value for name, value in vars(self).items() if name not in derived}

    def reset(self, seed: int | Sequence[int]) -> None:
        """Start with an empty memory; see `Policy.reset`."""
        self._reset(np.shape(seed))

    def _reset(self, batch: tuple[int, ...]) -> None:
        self._shape = (*batch, self.scenario.num_devices)
        self._memory = GainMemory(self._own, self._shape)
        self._has_news = False  # measurements that the memory has not taken up

    def feedback(self, info: Mapping[str, Any]) -> None:
        """Note that the coming observation has new measurements; see `Policy.feedback`."""
        if "energy_spent" in info:
            self._has_news = True

    def _as_it_sees(self, observation: Mapping[str, FloatArray]) -> Mapping[str, FloatArray]:
        """The observation with what it remembers."""
        shape = np.shape(observed(observation)[0])
        if shape != self._shape:
            self._reset(shape[:-1])  # of a batch for which it was not reset
        if self._has_news:
            self._memory.note(observation)
            self._has_news = False
        return self._memory.added_to(observation)

    def decide(self, observation: Mapping[str, FloatArray]) -> Allocation:
        """The mean of the agent's actions; see `Policy.decide`."""
        features = self._scaling.features(self._as_it_sees(observation))
        systems = features.reshape(-1, *features.shape[-2:])
        with torch_threads(1):
            rows, _ = self._network.predict(device_rows(systems), deterministic=True)
        action = gather_rows(rows, self.scenario.num_devices)
        if features.ndim == 2:
            action = action[0]
        return decode_action(action, self._own, self.settings.softmax_scale, available(observation))

    def save(self, path: str | Path) -> None:
        """Write the agent to a file, whole or not at all."""
        content = {
            "format": _FORMAT,
            "features": list(feature_names(self.trained_in)),
            "settings": json.dumps(dataclasses.asdict(self.settings)),
            **scenario_texts(self.trained_in),
            "cost": self.cost,
            "weights": {name: torch.as_tensor(w) for name, w in self.weights.items()},
        }
        write_torch(Path(path), content)

    @classmethod
    def load(cls, path: str | Path, scenario: Scenario | None = None) -> SB3Policy:
        """Read an agent that `save` or a training has written.

        Parameters
        ----------
        path : str or Path
            The file, or the folder of a training.
        scenario : Scenario, optional
            The system it is to control; the one it was trained in by default. An agent that was
            trained with a channel class of the user's own needs one with this channel.

        Raises
        ------
        ValueError
            If there is no such file, it is not one of an agent, it was written by another
            version, or the agent cannot run in the scenario.
        """
        path = Path(path)
        if path.is_dir():
            agents = sorted(path.glob(f"seed-*/{AGENT_FILE}"))
            if not (path / AGENT_FILE).exists() and agents:
                raise ValueError(
                    f"{str(path)!r} holds agents by their training seeds: name one, such as "
                    f"{str(agents[0].parent)!r}"
                )
            path = path / AGENT_FILE
        with as_value_error(f"cannot use the agent {str(path)!r}: "):
            content = read_checked(path)
            if not isinstance(content, dict) or "format" not in content:
                raise ValueError("it is not the file of an agent")
            if content["format"] != _FORMAT:
                raise ValueError("it was written by another version: train the agent anew")
            cost = content["cost"]
            if not all(is_real(value) or isinstance(value, bool) for value in cost.values()):
                raise ValueError(f"its cost must be numbers, got {cost!r}")
            trained_in = _trained_in(content, scenario)
            if content["features"] != list(feature_names(trained_in)):
                raise ValueError("it was written by another version: train the agent anew")
            settings = AgentSettings(**json.loads(content["settings"]))
            least, size = 4 * settings.width**2, path.stat().st_size
            if least > size:  # before it is built
                raise ValueError(
                    f"its width {settings.width} makes at least {least} bytes of weights, and it "
                    f"has {size}"
                )
            policy = cls(
                scenario if scenario is not None else trained_in,
                settings,
                {name: weight.numpy() for name, weight in content["weights"].items()},
                trained_in=trained_in,
                cost=cost,
            )
            # The network fails where the weights do not fit.
            for name, weight in policy._network.state_dict().items():
                if not torch.isfinite(weight).all():
                    raise ValueError(f"its weight {name!r} is not finite")
        return policy


def scenario_texts(scenario: Scenario) -> dict[str, str]:
    """The scenario as TOML, beside it a channel class of the user's own, which TOML cannot hold."""
    fields = scenario.saved_fields()
    try:
        return {"scenario": toml.dumps(fields), "channel": ""}
    except ValueError:
        other = fields | {"channel": ExponentialChannel()}
        return {"scenario": toml.dumps(other), "channel": repr(scenario.channel)}


def _trained_in(content: Mapping[str, str], scenario: Scenario | None) -> Scenario:
    """The inverse of `scenario_texts`; a channel class of the user's own is that of `scenario`."""
    if not (channel := content["channel"]):
        return Scenario.from_toml(content["scenario"])
    if scenario is None or repr(scenario.channel) != channel:
        raise ValueError(f"it was trained with the channel {channel}: give a scenario with it")
    fields = tomllib.loads(content["scenario"])
    return Scenario(**fields | {"channel": scenario.channel})


def read_checked(path: Path) -> Any:
    """The content that `torch.save` wrote, if the checksums in the file are right.

    It is tensors and plain values only: a file cannot bring code.
    """
    # TorchScript, which older versions of torch load whatever is asked for.
    if any(name.endswith("constants.pkl") for name in check_zip(path)):
        raise ValueError("it is a program and no plain values")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is odd about the file is an error
        return torch.load(path, map_location="cpu", weights_only=True)


def write_torch(path: Path, content: Any) -> None:
    """Write what `torch.save` can, whole or not at all.

    Raises
    ------
    OSError
        If it cannot be written; torch itself would not say why.
    """
    buffer = io.BytesIO()
    torch.save(content, buffer)
    with atomic_path(path) as temporary:
        temporary.write_bytes(buffer.getbuffer())


def weights_of(network: BasePolicy) -> dict[str, NDArray[Any]]:
    """Copies of the parameters of a network, by name."""
    return {name: value.cpu().numpy().copy() for name, value in network.state_dict().items()}
