"""Agents that any library has trained on ``FLEdgeFlat-v0``, as policies."""

from __future__ import annotations

import inspect
import io
import sys
import zipfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_edge_env import Allocation, Scenario
from fl_edge_env.allocation import decode_action
from fl_edge_env.checks import available, observed, real_array
from fl_edge_env.env import check_softmax_scale
from fl_edge_env.features import Scaling
from fl_edge_env.files import as_value_error, check_regular
from fl_edge_env.memory import GainMemory
from fl_edge_env.typing import FloatArray
from policies.base import Policy
from policies.user_code import running_own


class PredictPolicy(Policy):
    """Decides by an agent's ``predict(observation)``, the observations and actions of `FlatEnv`.

    The agent sees one system at a time, float32 of shape (N F,), and gives its action, of shape
    (3 N,), or a tuple that begins with it. If `predict` has a parameter ``deterministic``, it is
    True. It must remember nothing from call to call.

    Parameters
    ----------
    scenario : Scenario
        The system it controls, with the `objective` and `csi` of its training.
    model : object or str
        The agent; or the file in which Stable-Baselines3 has saved one, such as ``"agent.zip"``.
        Such a file may run any code when it is loaded: take only those of people that you trust.
    softmax_scale : float
        As that of the environment in which it was trained.

    Raises
    ------
    ValueError
        If `model` has no `predict`, or is no file of Stable-Baselines3.
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
        seen = (self._scaling.feature_space().low.size,)
        space: Any = getattr(self.model, "observation_space", None)
        if getattr(space, "shape", seen) != seen:
            raise ValueError(
                f"the agent {self.name!r} was trained on observations of shape {space.shape}, and "
                f"those of {scenario.num_devices} devices have {seen}: give it a scenario with the "
                "num_devices, csi and objective of its training"
            )
        self.reset(0)

    @cached_property
    def _keywords(self) -> dict[str, bool]:
        with_it = "deterministic" in inspect.signature(self.model.predict).parameters
        return {"deterministic": True} if with_it else {}

    def reset(self, seed: int | Sequence[int]) -> None:
        """Forget the gains of the last episode; see `Policy.reset`."""
        self._start(np.shape(seed))

    def _start(self, batch: tuple[int, ...]) -> None:
        self._shape = (*batch, self.scenario.num_devices)
        self._memory = GainMemory(self.scenario, self._shape)

    def decide(self, observation: Mapping[str, FloatArray]) -> Allocation:
        """The agent's action as the environment takes it; see `Policy.decide`."""
        shape = np.shape(observed(observation)[0])
        if shape != self._shape:
            self._start(shape[:-1])  # of a batch for which it was not reset
        self._memory.note(observation)
        features = self._scaling.features(self._memory.added_to(observation))
        systems = features.reshape(-1, features.shape[-2] * features.shape[-1])
        rows = np.stack([self._rows(each) for each in systems])
        action = rows.reshape(*shape[:-1], *rows.shape[1:])
        return decode_action(action, self.scenario, self._softmax_scale, available(observation))

    def _rows(self, features: NDArray[np.float32]) -> FloatArray:
        """The agent's action for a system, with its rows apart."""
        with running_own(f"predict of {self.name} fails for an observation of {features.shape}"):
            action: Any = self.model.predict(features, **self._keywords)
        action = action[0] if isinstance(action, tuple) else action
        devices = self.scenario.num_devices
        values = real_array(f"the action of {self.name}", action)
        if values.shape != (3 * devices,):
            raise ValueError(
                f"predict of {self.name} must give an action of shape ({3 * devices},), "
                f"frequencies, powers, scores of {devices} devices, got {values.shape}"
            )
        return values.reshape(3, devices)


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

    def predict(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """The mean of its actions."""
        from policies.learned import torch_threads

        with torch_threads(1):
            action: NDArray[np.float32] = self._network.predict(observation, deterministic=True)[0]
        return action
