"""Policies from agents that any library has trained on FLEdge's environments."""

from __future__ import annotations

import inspect
import io
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from fl_edge_env import Allocation, Scenario
from fl_edge_env.allocation import decode_action
from fl_edge_env.core import check_softmax_scale
from fl_edge_env.features import Features, Scaling
from fl_edge_env.files import as_value_error, check_regular, user_path
from fl_edge_env.flat_view import FlatForm, FlatView
from fl_edge_env.observations import available_devices
from fl_edge_env.rule import RuleForm
from fl_edge_env.typing import FloatArray, Observed
from policies.base import Policy
from policies.user_code import user_errors

# Features whose bounds grow with the rounds of an episode.
_GROWING = ("queue", "participation", "measurements")
# The values in a file of Stable-Baselines3 that make the network.
_MADE_OF = {"policy_class", "policy_kwargs", "observation_space", "action_space"}


class PredictPolicy(Policy):
    """Decides with an agent's ``predict(observation)``, on the spaces of `FlatEnv` or others.

    The agent sees one system at a time, float32 of shape (N F,), and returns its action, shape
    (3 N,), or a tuple of action and state. An agent with the spaces of `RuleForm` decides by its
    rule. An agent with the spaces of `DeviceForm` sees and returns a row for each device. Both play
    any number of devices.

    If `predict` takes ``deterministic``, by name or in ``**kwargs``, it gets True. If it takes
    ``state``, it gets the state that it returned in the previous round, None at the start of an
    episode. If it takes ``episode_start``, it gets an array that is True in the first round.

    Parameters
    ----------
    scenario : Scenario
        The system it controls, which must be the training system unless the agent has one rule or
        one network for all devices.
    model : object or str
        The agent, or the path of one saved by Stable-Baselines3, such as ``"agent.zip"``. Loading
        such a file can run arbitrary code: load only files from sources that you trust.
    softmax_scale : float
        The `softmax_scale` of the training environment.

    Raises
    ------
    ValueError
        If `model` has no `predict` or is not a file of Stable-Baselines3; or if its
        `observation_space` and `action_space` do not match the scenario, for example because a
        wrapper scaled them in training.
    """

    def __init__(self, scenario: Scenario, *, model: Any, softmax_scale: float = 2.0) -> None:
        super().__init__(scenario)
        if isinstance(model, (str, Path)):
            path = user_path(model)
            self.name = path.stem
            self.model: Any = SavedAgent.read(path)
        elif isinstance(model, type) or not callable(getattr(model, "predict", None)):
            raise ValueError(
                "model must be an agent with predict(observation), or the path of one saved by "
                f"Stable-Baselines3, got {model!r}"
            )
        elif getattr(model, "get_vec_normalize_env", lambda: None)() is not None:
            raise ValueError(
                "the agent was trained on observations that VecNormalize scales: give an object "
                "whose predict normalises them first, as docs/train_an_agent.md shows"
            )
        else:
            self.name = type(model).__name__
            self.model = model
        self._softmax_scale = check_softmax_scale(softmax_scale)
        self.reset(0)
        self._form = self._find_form()
        taken = inspect.signature(self.model.predict).parameters.values()
        self._takes = [each.name for each in taken]
        if any(each.kind is each.VAR_KEYWORD for each in taken):
            self._takes.append("deterministic")

    def _find_form(self) -> FlatForm:
        """The form with the agent's spaces; `ValueError` if there is none."""
        spaces = [getattr(self.model, f"{each}_space", None) for each in ("observation", "action")]
        theirs = _shapes(spaces)
        ours = []
        for name, kind in _FORMS.items():
            form = kind(self._view.scaling)
            shapes = _shapes(form.spaces)
            ours.append(f"{shapes} in {name}")
            if spaces == [None, None] or (theirs == shapes and self._fits(spaces, form)):
                return form
        raise ValueError(
            f"the agent {self.name!r} was trained with observations and actions of {theirs}, but "
            f"here they are of {', '.join(ours)}: "
            "train it on one of these, with the scenario's num_devices, csi and objective"
        )

    def _fits(self, spaces: Sequence[Any], form: FlatForm) -> bool:
        """Whether spaces of a form's shapes have its bounds; otherwise `ValueError`.

        Bounds of features that grow with the rounds may differ. In a form for any number of
        devices, the bounds of all features may.
        """
        seen, acted = spaces
        ours, actions = form.spaces
        same = np.isclose(seen.low, ours.low) & np.isclose(seen.high, ours.high)
        same |= np.isin(np.resize(self._view.scaling.names, same.shape), _GROWING)
        if acted == actions and (seen.is_bounded() if form.shared else same.all()):
            return True
        raise ValueError(
            f"the agent {self.name!r} was trained with other bounds of observations or actions, "
            "though of the same shapes: use the system of its training, and let predict scale "
            "them as wrappers did there"
        )

    def reset(self, seed: int | Sequence[int]) -> None:
        """Forget the last episode; see `Policy.reset`."""
        self._start(np.shape(seed))

    def _start(self, batch: tuple[int, ...]) -> None:
        self._view = FlatView(self.scenario, batch)
        self._states: list[Any] = [None] * int(np.prod(batch))
        self._first = True

    def decide(self, observation: Observed) -> Allocation:
        """Decode the agent's action as the environment does; see `Policy.decide`."""
        self._view.scaling.check(observation)
        *batch, _ = np.shape(observation["channel_gain"])
        if tuple(batch) != self._view.batch:
            self._start(tuple(batch))  # a batch without a reset
        features = self._view.see(observation)
        systems = features.reshape(-1, *features.shape[-2:])
        rows = np.stack([self._rows(system, each) for system, each in enumerate(systems)])
        self._first = False
        action = rows.reshape(*batch, *rows.shape[1:])
        return decode_action(
            action, self.scenario, self._softmax_scale, available_devices(observation)
        )

    def _rows(self, system: int, features: Features) -> FloatArray:
        """The agent's f, p and scores for a system, between -1 and 1, shape (3, N)."""
        seen = self._form.seen(features)
        keywords = {
            "deterministic": True,
            "state": self._states[system],
            "episode_start": np.full(self._form.agents or 1, self._first),
        }
        given = {name: value for name, value in keywords.items() if name in self._takes}
        with user_errors(f"predict of {self.name} fails for an observation of {seen.shape}"):
            action = self.model.predict(seen, **given)
        if isinstance(action, tuple):
            action, self._states[system] = action[0], action[-1]
        return self._form.checked_rows(action, features, f"the action of {self.name}")


class DeviceForm(FlatForm):
    """A row for each device, so that one agent decides for all devices.

    A row has the device's features and their mean and standard deviation over all devices, shape
    (3 F,); its action is the device's f, p and score, shape (3,).
    """

    shared = True
    holds = "frequency, power and score of each device"

    def __init__(self, scaling: Scaling) -> None:
        self.agents = (scaling.scenario.num_devices,)
        low, high = scaling.feature_bounds()
        context = np.concatenate([low, low, np.zeros_like(low)])
        seen = Box(context, np.concatenate([high, high, high - low]), dtype=np.float32)
        self.spaces = seen, Box(-1.0, 1.0, (3,), np.float32)

    def seen(self, features: Features) -> Features:
        """Features (..., N, F) with their means and standard deviations, shape (..., N, 3 F)."""
        mean = features.mean(axis=-2, keepdims=True)
        context = np.concatenate([mean, features.std(axis=-2, keepdims=True)], axis=-1)
        everywhere = np.repeat(context, features.shape[-2], axis=-2)
        return np.concatenate([features, everywhere], axis=-1)

    def rows(self, action: FloatArray, features: Features) -> FloatArray:  # noqa: ARG002
        """See `FlatForm.rows`."""
        return action.swapaxes(-1, -2)


_FORMS = {"FLEdgeFlat-v0": FlatForm, "FLEdgeRule-v0": RuleForm, "BatchVecEnv": DeviceForm}


def _shapes(spaces: Sequence[Any]) -> str:
    return " and ".join(str(getattr(space, "shape", None) or space) for space in spaces)


class SavedAgent:
    """An agent saved by Stable-Baselines3, kept as the content of its file."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @classmethod
    def read(cls, path: Path) -> SavedAgent:
        """Read an agent's file; `ValueError` if it is not one."""
        with as_value_error(f"cannot use the agent {str(path)!r}: "):
            check_regular(path)
            agent = cls(path.read_bytes())
            agent.network  # noqa: B018 - fail now rather than in the first round
            return agent

    @cached_property
    def network(self) -> Any:
        """The policy of Stable-Baselines3."""
        from stable_baselines3.common.save_util import load_from_zip_file

        damaged = ValueError("it is damaged, or was not written by Stable-Baselines3")
        try:
            made, weights, _ = load_from_zip_file(io.BytesIO(self._content), device="cpu")
        except (KeyError, RuntimeError, ValueError):  # these say something else
            raise damaged from None
        if made is None or not made.keys() >= _MADE_OF or "policy" not in weights:
            raise damaged
        kind = made["policy_class"]
        keywords = dict(made["policy_kwargs"])
        if made.get("use_sde"):
            keywords["use_sde"] = True
        if "lr_schedule" in inspect.signature(kind).parameters:  # ARS, for example, has none
            keywords["lr_schedule"] = lambda _: 0.0
        network = kind(made["observation_space"], made["action_space"], **keywords)
        network.load_state_dict(weights["policy"])
        network.set_training_mode(False)
        return network

    @property
    def observation_space(self) -> Any:
        """The observation space of its training."""
        return self.network.observation_space

    @property
    def action_space(self) -> Any:
        """The action space of its training."""
        return self.network.action_space

    def predict(self, observation: Features, state: Any = None, episode_start: Any = None) -> Any:
        """The deterministic action, and the state of a recurrent agent."""
        import torch

        # More threads would slow small networks down, and change the last digits of a result.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return self.network.predict(observation, state, episode_start, deterministic=True)
        finally:
            torch.set_num_threads(threads)
