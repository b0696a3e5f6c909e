"""Trained agents as policies."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import tomllib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.policies import BasePolicy

from fl_edge_env import Allocation, ExponentialChannel, Scenario, lyapunov
from fl_edge_env.allocation import decode_action
from fl_edge_env.checks import available, is_real, observed, saved_array
from fl_edge_env.contributions import in_time
from fl_edge_env.files import as_value_error, atomic_path, check_zip
from fl_edge_env.memory import GainMemory
from fl_edge_env.scaling import FEATURES, Features, Scaling, feature_names
from fl_edge_env.scenario import toml
from fl_edge_env.typing import FloatArray
from policies.base import Policy
from policies.learning.ranges import (
    Range,
    SeenRange,
    checked_ranges,
    departures,
    foreseen_departures,
)
from policies.learning.settings import AgentSettings
from policies.learning.views import device_rows, gather_rows

_FORMAT = 3
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

    Made by `policies.learning.training.train_agent` or `load`. The first decision on features that
    lie outside their range in training, by more than a tenth of what they are logarithms of, warns
    of them, unless `load` has. A queue is outside only if it is larger.

    One that was trained with the objective ``"outcome"`` chooses its cohorts by queues of its own,
    which begin at the dual prices and move by what the rounds take, as those of `Opportunistic` do:
    it runs in every environment of its scenario, whatever that counts. Where the server knows the
    gains of participants alone, it also remembers what they have measured in the episode.

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
    seen : mapping, optional
        The lowest and the highest value of each feature in training, by name.

    Raises
    ------
    ValueError
        If the network is for other features, or shares out a band that the scenario does not.
    """

    def __init__(
        self,
        scenario: Scenario,
        settings: AgentSettings,
        weights: Mapping[str, NDArray[Any]],
        *,
        trained_in: Scenario | None = None,
        cost: Mapping[str, float] | None = None,
        seen: Mapping[str, Range] | None = None,
    ) -> None:
        super().__init__(scenario)
        self.settings = settings
        self.weights = dict(weights)
        self.trained_in = trained_in if trained_in is not None else scenario
        self.cost = dict(cost or {})
        self.seen = dict(seen or {})
        self._told: tuple[str, ...] = ()  # features that the user has been warned of by `load`
        self.name = f"{settings.label} {settings.seed}"
        # What it is for, and what it decides on, is that of its training, not of the environment.
        self._own = scenario
        if scenario.objective != self.trained_in.objective:
            self._own = scenario.replace(objective=self.trained_in.objective)
        if feature_names(self._own) != feature_names(self.trained_in):
            raise ValueError(
                f"the agent {self.name!r} was trained with csi={self.trained_in.csi!r} and cannot "
                f"run with csi={scenario.csi!r}, where it would see other features"
            )
        self._reset(())

    @cached_property
    def _system(self) -> Scenario:
        return self.settings.training_scenario(self._own)

    _has_warned = False

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
        derived = ("_system", "_scaling", "_network", "_has_warned")
        return {name: value for name, value in vars(self).items() if name not in derived}

    def reset(self, seed: int | Sequence[int]) -> None:
        """Start with queues at the dual prices and an empty memory; see `Policy.reset`."""
        self._reset(np.shape(seed))

    def _reset(self, batch: tuple[int, ...]) -> None:
        self._shape = (*batch, self.scenario.num_devices)
        self._queues: dict[str, FloatArray] | None = None
        self._memory = GainMemory.where_needed(self._own, self._shape)
        self._has_news = False  # measurements that the memory has not taken up

    def _own_queues(self) -> dict[str, FloatArray]:
        """Its queues by name; empty where those of the environment count."""
        if self._queues is None:  # settling takes seconds, and some never need them
            names = ("queue", "participation_queue") if self._own.objective == "outcome" else ()
            first = {name: getattr(self._system, f"initial_{name}") for name in names}
            self._queues = {n: np.broadcast_to(v, self._shape).copy() for n, v in first.items()}
        return self._queues

    def feedback(self, info: Mapping[str, Any]) -> None:
        """Move the queues by the `energy_spent` of the round; see `Policy.feedback`."""
        if "energy_spent" not in info:
            return
        self._has_news = self._memory is not None
        if queues := self._own_queues():
            spent = info["energy_spent"]
            excess = spent - self.scenario.energy_budget_j
            missing = lyapunov.participation_target(self.scenario) - in_time(info)
            self._queues = {
                "queue": lyapunov.next_queue(queues["queue"], excess),
                "participation_queue": queues["participation_queue"] + missing,
            }

    def state(self) -> dict[str, NDArray[Any]]:
        """Its queues and what it remembers; see `Policy.state`."""
        state: dict[str, NDArray[Any]] = {n: v.copy() for n, v in self._own_queues().items()}
        if self._memory is not None:
            state |= self._memory.state() | {"has_news": np.array(self._has_news)}
        return state

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up its queues and its memory; see `Policy.restore`."""
        queues = {}
        if self._own.objective == "outcome":
            now = np.empty(self._shape)
            queues["queue"] = saved_array(state, "queue", now).copy()
            backlog = saved_array(state, "participation_queue", now, any_sign=True)
            queues["participation_queue"] = backlog.copy()
        if self._memory is not None:
            self._memory.restore(state)
            self._has_news = bool(np.asarray(state.get("has_news", False)))
        self._queues = queues

    def _as_it_sees(self, observation: Mapping[str, FloatArray]) -> Mapping[str, FloatArray]:
        """The observation with its own queues and what it remembers."""
        shape = np.shape(observed(observation)[0])
        if shape != self._shape:
            self._reset(shape[:-1])  # of a batch for which it was not reset
        observation = {**observation, **self._own_queues()}
        if self._memory is not None:
            if self._has_news:
                self._memory.note(observation)
                self._has_news = False
            observation = self._memory.added_to(observation)
        return observation

    def decide(self, observation: Mapping[str, FloatArray]) -> Allocation:
        """The mean of the agent's actions; see `Policy.decide`."""
        features = self._scaling.features(self._as_it_sees(observation))
        if self.seen and not self._has_warned:
            self._check_range(features)
        systems = features.reshape(-1, *features.shape[-2:])
        with torch_threads(1):
            rows, _ = self._network.predict(device_rows(systems), deterministic=True)
        action = gather_rows(rows, self.scenario.num_devices)
        if features.ndim == 2:
            action = action[0]
        decided = decode_action(
            action, self._own, self.settings.softmax_scale, available(observation)
        )
        if decided.cohort is None:
            return decided
        # A device that takes part in a share rho of the rounds counts w / rho each time.
        counts = self.scenario.weights / lyapunov.participation_target(self.scenario)
        return dataclasses.replace(decided, weights=counts[decided.cohort])

    def _check_range(self, features: Features) -> None:
        met = SeenRange(FEATURES)  # those of the outcome vary by far more from round to round
        met.add(features[..., : len(FEATURES)])
        # Episodes start with empty queues, which those of training may never come down to: only
        # larger queues are news.
        known = self.seen | {"queue": (-math.inf, self.seen["queue"][1])}
        outside = departures(met.by_name(), known).items()
        if told := [text for name, text in outside if name not in self._told]:
            self._has_warned = True
            self._warn(told, stacklevel=4)

    def _warn(self, told: Iterable[str], stacklevel: int) -> None:
        warnings.warn(
            f"{self.settings.label} leaves what it was trained with: {'; '.join(told)}. There it "
            "extrapolates and may do much worse than LROA: compare it with LROA in this scenario, "
            "or train an agent in it",
            UserWarning,
            stacklevel=stacklevel,
        )

    def save(self, path: str | Path) -> None:
        """Write the agent to a file, whole or not at all."""
        content = {
            "format": _FORMAT,
            "features": list(feature_names(self.trained_in)),
            "settings": json.dumps(dataclasses.asdict(self.settings)),
            **scenario_texts(self.trained_in),
            "cost": self.cost,
            "seen": {name: list(ends) for name, ends in self.seen.items()},
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

        Warns
        -----
        UserWarning
            If the constants or the channel gains of the scenario lead to features outside their
            range in training, or its sampling error has another weight, which no feature shows.
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
                seen=checked_ranges(content["seen"], feature_names(trained_in)),
            )
            # The network fails where the weights do not fit.
            for name, weight in policy._network.state_dict().items():
                if not torch.isfinite(weight).all():
                    raise ValueError(f"its weight {name!r} is not finite")
        if told := foreseen_departures(policy.scenario, trained_in, policy.seen):
            policy._told = tuple(told)
            policy._warn(told.values(), stacklevel=3)
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
    fields = toml.fields_of(tomllib.loads(content["scenario"]))
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
