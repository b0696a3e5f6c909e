"""The native batch as a `VecEnv` of Stable-Baselines3, with a row for each device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from fl_edge_env import FLEdgeVectorEnv, Scenario
from fl_edge_env.allocation import decode_action
from fl_edge_env.checks import is_integer, is_real
from fl_edge_env.env import check_softmax_scale
from fl_edge_env.features import Features, Scaling
from fl_edge_env.memory import GainMemory
from fl_edge_env.typing import BoolArray, FloatArray
from policies.learning.credit import CREDITS, Credit, difference_reward

# Training seed s plays the episodes of the seeds from FIRST_EPISODE * (s + 1) on: apart from
# those of other training seeds, and from the small numbers used for validation and test.
FIRST_EPISODE = 1_000_000
# The queues of an episode start at a common level, drawn up to the reference queue of the
# scaling, times a factor of each device.
_QUEUE_SPREAD = (0.8, 1.2)
# Arrays of the simulator and of the memory that depend on the actions.
_LEFT = ("queue", "participation_queue", "round_index", "elapsed_time", "_known_gain", "_age")
_MEMORY = ("measurements", "total")


def check_training_seed(value: object) -> int:
    """`value` as an int, if no other seed has its episodes."""
    if not is_integer(value) or not 0 <= value < FIRST_EPISODE:
        raise ValueError(f"seed must be an integer from 0 to {FIRST_EPISODE - 1}, got {value!r}")
    return int(value)


def check_empty_starts(value: object) -> float:
    """`value` as a float, if it is a share below one."""
    if not (is_real(value) and 0 <= value < 1):
        raise ValueError(f"empty_starts must lie in [0, 1), got {value!r}")
    return float(value)


def check_credit(value: object) -> None:
    """Raise `ValueError` for an unknown credit."""
    if value not in CREDITS:
        raise ValueError(f"credit must be one of {', '.join(CREDITS)}, got {value!r}")


class DeviceView(VecEnv):
    """A batch of systems with a row for each device: one agent decides for every device.

    A row sees the features of its device beside their mean and spread over all devices, shape
    (3 F,), and its action is the device's column of `FLEdgeEnv`'s: f, p and the score. So an agent
    can be used for any number of devices. Agents do not see which devices are available.

    An episode starts with random queues, and at its end the next one starts in the same step; the
    observation before that is the ``terminal_observation`` in the info, with
    ``TimeLimit.truncated``, as an episode never terminates.

    Parameters
    ----------
    scenario : Scenario
        The system; its `num_rounds` are the length of an episode.
    num_envs : int
        Number of systems B.
    seed : int
        Training seed, which decides on the episodes.
    credit : {"difference", "team"}
        The reward of a row: how the system's reward changes with the device's decision, which
        needs the model of the system, or the system's reward itself.
    softmax_scale : float
        As in `FLEdgeEnv`.
    empty_starts : float
        Share of the episodes that start with empty queues.

    Attributes
    ----------
    batch : FLEdgeVectorEnv
        The systems.
    scaling : Scaling
        The scales of observations and rewards.

    Raises
    ------
    ValueError
        If an argument is wrong.
    """

    def __init__(
        self,
        scenario: Scenario,
        num_envs: int = 1,
        *,
        seed: int = 0,
        credit: Credit = "difference",
        softmax_scale: float = 2.0,
        empty_starts: float = 0.0,
    ) -> None:
        seed = check_training_seed(seed)
        check_credit(credit)
        self.scenario, self.credit = scenario, credit
        self.scaling = Scaling(scenario)
        self.softmax_scale = check_softmax_scale(softmax_scale)
        self.empty_starts = check_empty_starts(empty_starts)
        self.batch = FLEdgeVectorEnv(num_envs, scenario, autoreset_mode=AutoresetMode.DISABLED)
        features = self.scaling.feature_space(_QUEUE_SPREAD[1])
        low, high = features.low.min(axis=0), features.high.max(axis=0)
        super().__init__(
            self.batch.num_envs * scenario.num_devices,
            spaces.Box(
                np.concatenate([low, low, np.zeros_like(low)]),
                np.concatenate([high, high, high - low]),
                dtype=np.float32,
            ),
            spaces.Box(-1.0, 1.0, (3,), np.float32),
        )
        self._first_episode = self._next_episode = FIRST_EPISODE * (seed + 1)
        self._episodes = np.zeros(self.batch.num_envs, dtype=np.int64)
        self._memory = GainMemory(scenario, self.batch.simulator.queue.shape)

    def reset(self) -> NDArray[np.float32]:
        """Start the first episodes of the training seed, whatever `seed` was called with."""
        self._next_episode = self._first_episode
        self._start(np.ones(self.batch.num_envs, dtype=np.bool_))
        return self._observe()

    def step_async(self, actions: NDArray[np.float32]) -> None:
        """Take the actions of the coming step, one for each row."""
        self._actions = actions

    def step_wait(
        self,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], BoolArray, list[dict[str, Any]]]:
        """Play one round in every system; infos are empty but at the end of an episode."""
        action = gather_rows(self._actions, self.scenario.num_devices)
        reward, truncated = self._play(action)
        observation = self._observe()
        done = np.repeat(truncated, self.scenario.num_devices)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if truncated.any():
            for row in np.flatnonzero(done).tolist():
                end = observation[row]
                infos[row] = {"terminal_observation": end, "TimeLimit.truncated": True}
            self._start(truncated)
            observation = self._observe()
        return observation, reward.astype(np.float32), done, infos

    def _play(self, action: NDArray[np.float32]) -> tuple[FloatArray, BoolArray]:
        """Rewards of the rows, and the systems whose episode ends."""
        simulator, scenario = self.batch.simulator, self.scenario
        gain, queue = simulator.channel_gain.copy(), simulator.queue.copy()  # before they move on
        allocation = decode_action(action, scenario, self.softmax_scale, simulator.available)
        observed, team_reward, _, truncated, info = self.batch.step(allocation)
        self._memory.note(observed)
        if self.credit == "team":
            reward = np.repeat(self.scaling.reward(team_reward), scenario.num_devices)
            return reward, truncated
        if "q" in info:  # the decision's q as renormalised over the available devices
            allocation = replace(allocation, q=info["q"])
        own = difference_reward(gain, queue, allocation, scenario, info.get("available"))
        return self.scaling.device_reward(own).ravel(), truncated

    def _start(self, mask: BoolArray) -> None:
        """Start the next episodes in the systems of the mask."""
        systems = np.flatnonzero(mask)
        self._episodes[systems] = self._next_episode + np.arange(systems.size)
        self._next_episode += systems.size
        self.batch.reset(seed=self._episodes.tolist(), options={"reset_mask": mask})
        simulator, devices = self.batch.simulator, self.scenario.num_devices
        for system in systems.tolist():
            rng = np.random.default_rng([int(self._episodes[system]), 1])
            # Below the share of empty starts nothing is left of it; above, all levels are likely.
            level = max(rng.random() - self.empty_starts, 0.0) / (1.0 - self.empty_starts)
            start = level * rng.uniform(*_QUEUE_SPREAD, devices)
            simulator.queue[system] = start * self.scaling.queue
        self._memory.start(mask)

    def _observe(self) -> NDArray[np.float32]:
        observation = self.batch.simulator.observe()
        return device_rows(self.scaling.features(self._memory.added_to(observation)))

    def state(self) -> dict[str, Any]:
        """Copies of everything that depends on the actions so far, for `restore`."""
        simulator, memory = vars(self.batch.simulator), vars(self._memory)
        return {
            "next_episode": self._next_episode,
            "episodes": self._episodes.copy(),
            "simulator": {n: simulator[n].copy() for n in _LEFT if simulator[n] is not None},
            "memory": {n: memory[n].copy() for n in _MEMORY},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where `state` was called."""
        self._episodes[:] = state["episodes"]
        self._next_episode = state["next_episode"]
        self.batch.reset(seed=self._episodes.tolist())
        simulator = self.batch.simulator
        for _ in range(int(state["simulator"]["round_index"][0])):
            simulator._next_round()
        for name, values in state["simulator"].items():
            getattr(simulator, name)[...] = values
        for name, values in state["memory"].items():
            getattr(self._memory, name)[...] = values

    # The rest of the interface of `VecEnv`, in which the rows are not objects of their own.

    def close(self) -> None:
        """Nothing is open."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of the batch, the same for every row."""
        return [getattr(self.batch, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:  # noqa: ARG002
        """Refused, as the rows share one batch."""
        raise AttributeError(f"the rows share one batch: {attr_name} cannot be set for each")

    def env_method(self, method_name: str, *args: Any, **kwargs: Any) -> list[Any]:  # noqa: ARG002
        """Refused, as the rows share one batch."""
        raise AttributeError(f"the rows share one batch: {method_name} cannot be called on each")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:  # noqa: ARG002
        """The rows are in no wrapper."""
        return [False] * len(list(self._get_indices(indices)))


def device_rows(features: Features) -> NDArray[np.float32]:
    """Features (B, N, F) as rows (B N, 3 F): beside each device's their mean and spread."""
    mean = features.mean(axis=-2, keepdims=True)
    context = np.concatenate([mean, features.std(axis=-2, keepdims=True)], axis=-1)
    everywhere = np.repeat(context, features.shape[-2], axis=-2)
    rows: NDArray[np.float32] = np.concatenate([features, everywhere], axis=-1)
    return rows.reshape(-1, rows.shape[-1])


def gather_rows(actions: NDArray[np.float32], num_devices: int) -> NDArray[np.float32]:
    """Actions of devices, shape (B N, 3), as those of their systems, shape (B, 3, N)."""
    return actions.reshape(-1, num_devices, actions.shape[-1]).swapaxes(-1, -2)
