"""Agents that any library has trained on ``FLEdgeFlat-v0``, as policies."""

from __future__ import annotations

import inspect
import io
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from fl_edge_env import Allocation, Scenario
from fl_edge_env.allocation import decode_action
from fl_edge_env.checks import available, observed, real_array
from fl_edge_env.env import check_softmax_scale
from fl_edge_env.features import Features, Scaling
from fl_edge_env.files import as_value_error, check_regular
from fl_edge_env.flat import flat_spaces
from fl_edge_env.memory import GainMemory
from fl_edge_env.scenario.presets import PRESETS
from fl_edge_env.typing import FloatArray
from policies.base import Policy
from policies.user_code import running_own

# Features whose bounds grow with the rounds of an episode.
_GROWING = ("queue", "participation", "measurements")


class PredictPolicy(Policy):
    """Decides by an agent's ``predict(observation)``, the observations and actions of `FlatEnv`.

    The agent sees one system at a time, float32 of shape (N F,), and gives its action, of shape
    (3 N,), or a tuple of it and its state. If the agent's spaces are those of `device_spaces`, it
    sees a row for each device, shape (N, 3 F), and gives a row for each, shape (N, 3).

    If `predict` takes ``deterministic``, by name or in ``**kwargs``, it is True. If it takes
    ``state``, it is given the state that it returned in the round before, None at the start of an
    episode; and ``episode_start``, if it takes that.

    Parameters
    ----------
    scenario : Scenario
        The system it controls: that of its training.
    model : object or str
        The agent; or the file in which Stable-Baselines3 has saved one, such as ``"agent.zip"``.
        Such a file may run any code when it is loaded: take only those of people that you trust.
    softmax_scale : float
        As that of the environment in which it was trained.

    Raises
    ------
    ValueError
        If `model` has no `predict`, or is no file of Stable-Baselines3; or if it has an
        `observation_space` and an `action_space` that are not those of the scenario, as after
        wrappers that scale them.
    """

    def __init__(self, scenario: Scenario, *, model: Any, softmax_scale: float = 2.0) -> None:
        super().__init__(scenario)
        if isinstance(model, (str, Path)):
            self.name = Path(model).stem
            self.model: Any = SavedAgent.read(Path(model))
        elif isinstance(model, type) or not callable(getattr(model, "predict", None)):
            raise ValueError(
                "model must be an agent with predict(observation), or the path of one that "
                f"Stable-Baselines3 has saved, got {model!r}"
            )
        else:
            self.name = type(model).__name__
            self.model = SavedAgent.of(model) or model
        self._softmax_scale = check_softmax_scale(softmax_scale)
        self._scaling = Scaling(scenario)
        self._by_device = self._decides_by_device()
        taken = inspect.signature(self.model.predict).parameters.values()
        self._takes = {each.name for each in taken}
        if any(each.kind is each.VAR_KEYWORD for each in taken):
            self._takes.add("deterministic")
        self.reset(0)

    def _decides_by_device(self) -> bool:
        """Whether the agent sees a row for each device; `ValueError` if its spaces are others."""
        names = "observation_space", "action_space"
        trained = tuple(getattr(self.model, name, None) for name in names)
        if trained == (None, None):
            return False
        for by_device in (False, True):
            if _fits(trained, self._scaling, by_device=by_device):
                return by_device
        ours = [
            tuple(space.shape for space in make(self._scaling))
            for make in (flat_spaces, device_spaces)
        ]
        shapes = " or ".join(f"{seen} and {action}" for seen, action in ours)
        theirs = tuple(getattr(space, "shape", space) for space in trained)
        told = f"{theirs[0]} and {theirs[1]}"
        systems = {name: Scaling(Scenario.preset(name)) for name in PRESETS}
        others = [
            name
            for name, scaling in systems.items()
            if any(_fits(trained, scaling, by_device=each) for each in (False, True))
        ]
        if others:
            instead = f"it fits the scenario {others[0]}"
        elif theirs in ours:
            instead = (
                "the shapes are right and the bounds are not, as in another system, or in wrappers "
                "that scale observations or actions: wrap predict in the same way"
            )
        else:
            instead = "give it the num_devices, csi and objective of its training"
        raise ValueError(
            f"the agent {self.name!r} was trained with observations and actions of shapes {told}, "
            f"and those of this scenario are {shapes}: {instead}"
        )

    def reset(self, seed: int | Sequence[int]) -> None:
        """Forget the last episode; see `Policy.reset`."""
        self._start(np.shape(seed))

    def _start(self, batch: tuple[int, ...]) -> None:
        self._shape = (*batch, self.scenario.num_devices)
        self._memory = GainMemory(self.scenario, self._shape)
        self._states: list[Any] = [None] * int(np.prod(batch))
        self._first = True

    def decide(self, observation: Mapping[str, FloatArray]) -> Allocation:
        """The agent's action as the environment takes it; see `Policy.decide`."""
        shape = np.shape(observed(observation)[0])
        if shape != self._shape:
            self._start(shape[:-1])  # of a batch for which it was not reset
        self._memory.note(observation)
        features = self._scaling.features(self._memory.added_to(observation))
        systems = features.reshape(-1, *features.shape[-2:])
        rows = np.stack([self._rows(system, each) for system, each in enumerate(systems)])
        self._first = False
        action = rows.reshape(*shape[:-1], *rows.shape[1:])
        return decode_action(action, self.scenario, self._softmax_scale, available(observation))

    def _rows(self, system: int, features: Features) -> FloatArray:
        """The agent's action for a system, with its rows apart, shape (3, N)."""
        seen = device_rows(features) if self._by_device else features.ravel()
        keywords = {
            "deterministic": True,
            "state": self._states[system],
            "episode_start": np.full(len(features) if self._by_device else 1, self._first),
        }
        given = {name: value for name, value in keywords.items() if name in self._takes}
        with running_own(f"predict of {self.name} fails for an observation of {seen.shape}"):
            action: Any = self.model.predict(seen, **given)
        if isinstance(action, tuple):
            action, self._states[system] = action[0], action[-1]
        devices = self.scenario.num_devices
        expected = (devices, 3) if self._by_device else (3 * devices,)
        values = real_array(f"the action of {self.name}", action)
        if values.shape != expected:
            raise ValueError(
                f"predict of {self.name} must give an action of shape {expected}, frequencies, "
                f"powers, scores of {devices} devices, got {values.shape}"
            )
        return values.T if self._by_device else values.reshape(3, devices)


def device_spaces(scaling: Scaling) -> tuple[spaces.Box, spaces.Box]:
    """What an agent that decides for each device alone sees of it, (3 F,), and its action, (3,)."""
    box = scaling.feature_space()
    low, high = box.low.min(axis=0), box.high.max(axis=0)
    context = np.concatenate([low, low, np.zeros_like(low)])
    seen = spaces.Box(context, np.concatenate([high, high, high - low]), dtype=np.float32)
    return seen, spaces.Box(-1.0, 1.0, (3,), np.float32)


def device_rows(features: Features) -> Features:
    """Features (..., N, F) as rows (..., N, 3 F): beside a device's their mean and spread."""
    mean = features.mean(axis=-2, keepdims=True)
    context = np.concatenate([mean, features.std(axis=-2, keepdims=True)], axis=-1)
    everywhere = np.repeat(context, features.shape[-2], axis=-2)
    rows: Features = np.concatenate([features, everywhere], axis=-1)
    return rows


def _fits(trained: Sequence[Any], scaling: Scaling, *, by_device: bool) -> bool:
    """Whether spaces are those of a scenario, apart from bounds that grow with its rounds."""
    ours = (device_spaces if by_device else flat_spaces)(scaling)
    for theirs, own in zip(trained, ours, strict=True):
        if not isinstance(theirs, spaces.Box) or theirs.shape != own.shape:
            return False
    seen, own = trained[0], ours[0]
    blocks = own.shape[0] // len(scaling.names)
    fixed = np.tile([name not in _GROWING for name in scaling.names], blocks)
    bounds = (seen.low, own.low), (seen.high, own.high)
    alike = all(np.allclose(one[fixed], other[fixed]) for one, other in bounds)
    return alike and bool(trained[1] == ours[1])


class SavedAgent:
    """An agent as Stable-Baselines3 saves it, by the content of the file."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @classmethod
    def read(cls, path: Path) -> SavedAgent:
        """The agent of a file; `ValueError` if it cannot be read as one."""
        with as_value_error(f"cannot use the agent {str(path)!r}: "):
            check_regular(path)
            agent = cls(path.read_bytes())
            if not zipfile.is_zipfile(io.BytesIO(agent._content)):
                raise ValueError("it is not a ZIP file, as Stable-Baselines3 writes them")
            agent._network  # noqa: B018 - load it now, and refuse it now
            return agent

    @classmethod
    def of(cls, model: object) -> SavedAgent | None:
        """An agent of Stable-Baselines3 without the environments of its training, else None.

        Itself it could not be copied after training, as its tensors lead to gradients.
        """
        library = sys.modules.get("stable_baselines3.common.base_class")  # imported, if it is one
        if library is None or not isinstance(model, library.BaseAlgorithm):
            return None
        if model.get_vec_normalize_env() is not None:
            raise ValueError(
                "the agent sees what VecNormalize makes of observations: give an object whose "
                "predict normalises them first, as docs/train_an_agent.md shows"
            )
        model.save(content := io.BytesIO())
        return cls(content.getvalue())

    def __getstate__(self) -> dict[str, Any]:
        """The file alone, so that the same agent is always pickled to the same bytes."""
        return {"_content": self._content}

    @cached_property
    def _network(self) -> Any:
        from stable_baselines3.common.save_util import load_from_zip_file

        made, weights, _ = load_from_zip_file(io.BytesIO(self._content), device="cpu")
        if made is None or "policy" not in weights:
            raise ValueError("Stable-Baselines3 has saved no policy in it")
        keywords = dict(made["policy_kwargs"])
        if made.get("use_sde"):
            keywords["use_sde"] = True
        network = made["policy_class"](
            made["observation_space"], made["action_space"], lambda _: 0.0, **keywords
        )
        network.load_state_dict(weights["policy"])
        network.set_training_mode(False)
        return network

    @property
    def observation_space(self) -> Any:
        """The space of what it has seen in training."""
        return self._network.observation_space

    @property
    def action_space(self) -> Any:
        """The space of its actions."""
        return self._network.action_space

    def predict(self, observation: Features, state: Any = None, episode_start: Any = None) -> Any:
        """The mean of its actions, and the state of a recurrent one."""
        with _one_thread():
            return self._network.predict(observation, state, episode_start, deterministic=True)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Give torch one thread for a block: in small networks more wait for each other.

    Their number would change the last digits.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
