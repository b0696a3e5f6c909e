"""The native batch as a `VecEnv` of Stable-Baselines3, seen whole or device by device."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from fl_edge_env import Allocation, FLEdgeVectorEnv, Scenario
from fl_edge_env.allocation import decode_action, highest
from fl_edge_env.checks import is_integer, is_real
from fl_edge_env.env import check_softmax_scale
from fl_edge_env.memory import GainMemory
from fl_edge_env.scaling import Features, Scaling
from fl_edge_env.spaces import action_space
from fl_edge_env.typing import BoolArray, FloatArray, IntArray
from policies.learning.credit import (
    CREDITS,
    Credit,
    difference_reward,
    local_reward,
    ranked_difference_reward,
    ranked_local_reward,
)
from policies.learning.ranges import SeenRange

# Training seed s plays the episodes of the seeds from FIRST_EPISODE * (s + 1) on: apart from
# those of other training seeds, and from the small numbers used for validation and test.
FIRST_EPISODE = 1_000_000
# The queues of an episode start at a common level, drawn up to the reference queue of the
# scaling, times a factor of each device.
_QUEUE_SPREAD = (0.8, 1.2)
# Where the objective is the outcome they start at the scenario's own queues, each energy queue
# times a factor, each participation queue moved by up to so many rounds.
_BACKLOG_SPREAD = 1.0


def check_training_seed(value: object) -> int:
    """`value` as an int, if it is one whose episodes no other seed has."""
    if not is_integer(value) or not 0 <= value < FIRST_EPISODE:
        raise ValueError(f"seed must be an integer from 0 to {FIRST_EPISODE - 1}, got {value!r}")
    return int(value)


def check_empty_starts(value: object) -> float:
    """`value` as a float, if it is a share below one."""
    if not (is_real(value) and 0 <= value < 1):
        raise ValueError(f"empty_starts must lie in [0, 1), got {value!r}")
    return float(value)


class _Played(NamedTuple):
    """State, decision and reward of a round, of each system."""

    channel_gain: FloatArray
    queue: FloatArray
    allocation: Allocation
    reward: FloatArray
    available: BoolArray | None  # who was there, where devices drop out
    # Where the objective is the outcome: the queues, and the device ranked after the cohort.
    participation_queue: FloatArray | None
    next_device: IntArray | None


class AgentView(VecEnv):
    """Base of the views: a batch of systems as the rows of a `VecEnv`.

    An episode starts with random queues, and at its end the next one starts in the same step;
    the observation before that is the ``terminal_observation`` in the info, with
    ``TimeLimit.truncated``, as an episode never terminates. The info of the last step also has
    the monitor's ``episode``: return ``r``, length ``l`` and time ``t`` [s].

    Agents do not see who is there where devices drop out: the environment renormalises their q,
    and ranks those that are there.

    Where the objective is the outcome, episodes start near the queues of the scenario, and the
    first ones end one after the other, so that systems are in different phases of an episode.

    Parameters
    ----------
    scenario : Scenario
        The system; its `num_rounds` are the length of an episode.
    num_envs : int
        Number of systems B.
    seed : int
        Training seed, which decides on the episodes.
    softmax_scale : float
        As in `FLEdgeEnv`.
    empty_starts : float
        Share of the episodes that start with empty queues; where the objective is the outcome,
        with the scenario's own.
    rows_per_env : int
        Rows of the `VecEnv` for each system.
    observation_space, action_space : gymnasium.spaces.Box
        Of a row.

    Attributes
    ----------
    batch : FLEdgeVectorEnv
        The systems.
    scaling : Scaling
        What observations and rewards are divided by.
    seen : SeenRange
        The range of the features in all rounds so far.

    Raises
    ------
    ValueError
        If `num_envs`, `seed`, `softmax_scale` or `empty_starts` is wrong.
    """

    def __init__(
        self,
        scenario: Scenario,
        num_envs: int,
        seed: int,
        softmax_scale: float,
        empty_starts: float,
        *,
        rows_per_env: int,
        observation_space: spaces.Box,
        action_space: spaces.Box,
    ) -> None:
        seed = check_training_seed(seed)
        self.scenario = scenario
        self.scaling = Scaling(scenario)
        self.softmax_scale = check_softmax_scale(softmax_scale)
        self.empty_starts = check_empty_starts(empty_starts)
        self.batch = FLEdgeVectorEnv(num_envs, scenario, autoreset_mode=AutoresetMode.DISABLED)
        self.rows_per_env = rows_per_env
        super().__init__(self.batch.num_envs * rows_per_env, observation_space, action_space)
        self._first_episode = self._next_episode = FIRST_EPISODE * (seed + 1)
        self._episodes = np.zeros(self.batch.num_envs, dtype=np.int64)
        self._return = np.zeros(self.num_envs)
        self.seen = SeenRange(self.scaling.names)
        self._start_time = time.time()
        self._outcome = scenario.objective == "outcome"
        self._memory = GainMemory.where_needed(scenario, self.batch.simulator.queue.shape)

    @abstractmethod
    def rows(self, features: Features) -> NDArray[np.float32]:
        """The features of the systems, shape (B, N, F), as the observations of the rows."""

    @abstractmethod
    def joint_action(self, actions: NDArray[np.float32]) -> NDArray[np.float32]:
        """The actions of the rows as those of the systems, shape (B, 3, N)."""

    @abstractmethod
    def _reward(self, round_: _Played) -> FloatArray:
        """The rewards of the rows."""

    def reset(self) -> NDArray[np.float32]:
        """Start the first episodes of the training seed, which `seed` of the interface leaves be.

        Returns
        -------
        ndarray of float32
            The observations of the rows.
        """
        self._next_episode = self._first_episode
        self._return[:] = 0.0
        self._start(np.ones(self.batch.num_envs, dtype=np.bool_))
        return self._observe()

    def step_async(self, actions: NDArray[np.float32]) -> None:
        """Take the actions of the coming step.

        Parameters
        ----------
        actions : ndarray
            An action for each row.
        """
        self._actions = actions

    def step_wait(
        self,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], BoolArray, list[dict[str, Any]]]:
        """Play one round in every system.

        Returns
        -------
        observation : ndarray of float32
        reward : ndarray of float32, shape (rows,)
        done : ndarray of bool, shape (rows,)
        info : list of dict
            Empty but at the end of an episode.
        """
        simulator = self.batch.simulator
        gain, queue = simulator.channel_gain.copy(), simulator.queue.copy()  # before they move on
        action = self.joint_action(self._actions)
        allocation = decode_action(action, self.scenario, self.softmax_scale, simulator.available)
        backlog = next_device = None
        if simulator.participation_queue is not None:
            backlog = simulator.participation_queue.copy()
            score = np.clip(action[:, 2], -1.0, 1.0)
            named = highest(score, self.scenario.cohort_size + 1, simulator.available)
            next_device = named[:, -1]
        observed, team_reward, _, truncated, info = self.batch.step(allocation)
        if "q" in info:  # what was left of the decision's q over those that were there
            allocation = Allocation(allocation.f, allocation.p, info["q"])
        if self._memory is not None:
            self._memory.note(observed)
        played = _Played(
            gain, queue, allocation, team_reward, info.get("available"), backlog, next_device
        )
        reward = self._reward(played)
        if self._outcome:
            truncated = truncated | self._cut_short()
        self._return += reward
        observation = self._observe()
        done = np.repeat(truncated, self.rows_per_env)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if truncated.any():
            seconds = time.time() - self._start_time
            for row in np.flatnonzero(done).tolist():
                infos[row] = {
                    "terminal_observation": observation[row],
                    "TimeLimit.truncated": True,
                    "episode": {
                        "r": float(self._return[row]),
                        "l": int(simulator.round_index[row // self.rows_per_env]),
                        "t": seconds,
                    },
                }
            self._return[done] = 0.0
            self._start(truncated)
            observation = self._observe()
        return observation, reward.astype(np.float32), done, infos

    def _cut_short(self) -> BoolArray:
        """Which of the first episodes end here, so that not all end at the same time."""
        first = self._episodes - self._first_episode
        share = (first + 1) / self.batch.num_envs
        played = self.batch.simulator.round_index
        cut: BoolArray = (share <= 1) & (played >= share * self.scenario.num_rounds)
        return cut

    def _start(self, mask: BoolArray) -> None:
        """Start the next episodes in the systems of the mask."""
        systems = np.flatnonzero(mask)
        self._episodes[systems] = self._next_episode + np.arange(systems.size)
        self._next_episode += systems.size
        self.batch.reset(seed=self._episodes.tolist(), options={"reset_mask": mask})
        for system in systems.tolist():
            rng = np.random.default_rng([int(self._episodes[system]), 1])
            if self._outcome:
                self._start_near_the_scenarios_queues(system, rng)
                continue
            # Below the share of empty starts nothing is left of it; above, all levels are likely.
            level = max(rng.random() - self.empty_starts, 0.0) / (1.0 - self.empty_starts)
            start = level * rng.uniform(*_QUEUE_SPREAD, self.scenario.num_devices)
            self.batch.simulator.queue[system] = start * self.scaling.queue
        if self._memory is not None:
            self._memory.start(mask)

    def _start_near_the_scenarios_queues(self, system: int, rng: np.random.Generator) -> None:
        simulator, devices = self.batch.simulator, self.scenario.num_devices
        assert simulator.participation_queue is not None
        if rng.random() < self.empty_starts:
            return
        simulator.queue[system] *= rng.uniform(*_QUEUE_SPREAD, devices)
        moved = rng.uniform(-_BACKLOG_SPREAD, _BACKLOG_SPREAD, devices)
        simulator.participation_queue[system] += moved

    def _observe(self) -> NDArray[np.float32]:
        observation = self.batch.simulator.observe()
        if self._memory is not None:
            observation = self._memory.added_to(observation)
        features = self.scaling.features(observation)
        self.seen.add(features)
        return self.rows(features)

    def state(self) -> dict[str, Any]:
        """Where the episodes are, to be taken up by `restore`."""
        return {
            "next_episode": self._next_episode,
            "episodes": self._episodes.copy(),
            "return": self._return.copy(),
            "simulator": self.batch.simulator.state(),
            "seen": (self.seen.low.copy(), self.seen.high.copy()),
            "memory": self._memory.state() if self._memory is not None else {},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was called.

        Parameters
        ----------
        state : mapping
            As `state` returned it.
        """
        self.batch.reset(seed=state["episodes"].tolist())
        self.batch.simulator.restore(state["episodes"].tolist(), state["simulator"])
        self._next_episode = state["next_episode"]
        self._episodes[:] = state["episodes"]
        self._return[:] = state["return"]
        self.seen.low[:], self.seen.high[:] = state["seen"]
        if self._memory is not None:
            self._memory.restore(state["memory"])

    # The rest of the interface of `VecEnv`, in which the rows are not objects of their own.

    def close(self) -> None:
        """Nothing is open."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of the batch, the same for every row.

        Parameters
        ----------
        attr_name : str
            Name of the attribute.
        indices : optional
            The rows asked for; all by default.
        """
        return [getattr(self.batch, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:  # noqa: ARG002
        """Refused, as the rows share one batch.

        Parameters
        ----------
        attr_name, value, indices
            Not used.
        """
        raise AttributeError(f"the rows share one batch: {attr_name} cannot be set for each")

    def env_method(self, method_name: str, *args: Any, **kwargs: Any) -> list[Any]:  # noqa: ARG002
        """Refused, as the rows share one batch.

        Parameters
        ----------
        method_name, *args, **kwargs
            Not used.
        """
        raise AttributeError(f"the rows share one batch: {method_name} cannot be called on each")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Whether the rows are in a wrapper: never, but the view itself monitors them.

        Parameters
        ----------
        wrapper_class : type
            The wrapper asked for.
        indices : optional
            The rows asked for; all by default.
        """
        monitored = wrapper_class.__name__ == "Monitor"
        return [monitored] * len(list(self._get_indices(indices)))


class JointView(AgentView):
    """A row for each system: one agent decides for all devices and gets the scaled reward.

    Observations are the devices' features, shape (N, F), and actions those of `FLEdgeEnv`.

    Parameters
    ----------
    scenario, num_envs, seed, softmax_scale, empty_starts
        As in `AgentView`.
    """

    def __init__(
        self,
        scenario: Scenario,
        num_envs: int = 1,
        *,
        seed: int = 0,
        softmax_scale: float = 2.0,
        empty_starts: float = 0.0,
    ) -> None:
        super().__init__(
            scenario,
            num_envs,
            seed,
            softmax_scale,
            empty_starts,
            rows_per_env=1,
            observation_space=Scaling(scenario).feature_space(_QUEUE_SPREAD[1]),
            action_space=action_space(scenario),
        )

    def rows(self, features: Features) -> NDArray[np.float32]:
        """The features as they are; see `AgentView.rows`."""
        return features

    def joint_action(self, actions: NDArray[np.float32]) -> NDArray[np.float32]:
        """The actions as they are; see `AgentView.joint_action`."""
        return actions

    def _reward(self, round_: _Played) -> FloatArray:
        reward: FloatArray = self.scaling.reward(round_.reward)
        return reward


class DeviceView(AgentView):
    """A row for each device of each system: one agent decides for every device on its own.

    A row sees the features of its device beside their mean and spread over all devices, shape
    (3 F,), and its action is the device's f, p and score, shape (3,). What it has learned can be
    used for any number of devices.

    Parameters
    ----------
    scenario, num_envs, seed, softmax_scale, empty_starts
        As in `AgentView`.
    credit : {"difference", "local", "team"}
        The reward of a row: how the system's reward changes with the device's decision, which
        needs the model of the system (`policies.learning.credit.difference_reward`, and
        `ranked_difference_reward` where the objective is the outcome); the device's own terms of
        it (`local_reward`, `ranked_local_reward`); or all of it.

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
        if credit not in CREDITS:
            raise ValueError(f"credit must be one of {', '.join(CREDITS)}, got {credit!r}")
        self.credit = credit
        features = Scaling(scenario).feature_space(_QUEUE_SPREAD[1])
        low, high = features.low.min(axis=0), features.high.max(axis=0)
        super().__init__(
            scenario,
            num_envs,
            seed,
            softmax_scale,
            empty_starts,
            rows_per_env=scenario.num_devices,
            observation_space=spaces.Box(
                np.concatenate([low, low, np.zeros_like(low)]),
                np.concatenate([high, high, high - low]),
                dtype=np.float32,
            ),
            action_space=spaces.Box(-1.0, 1.0, (3,), np.float32),
        )

    def rows(self, features: Features) -> NDArray[np.float32]:
        """Each device's features beside their mean and spread; see `AgentView.rows`."""
        return device_rows(features)

    def joint_action(self, actions: NDArray[np.float32]) -> NDArray[np.float32]:
        """The actions of a system's devices side by side; see `AgentView.joint_action`."""
        return gather_rows(actions, self.scenario.num_devices)

    def _reward(self, round_: _Played) -> FloatArray:
        if self.credit == "team":
            return np.repeat(self.scaling.reward(round_.reward), self.rows_per_env)
        if round_.participation_queue is not None:
            return self.scaling.device_reward(self._ranked_reward(round_)).ravel()
        own = difference_reward if self.credit == "difference" else local_reward
        reward = own(
            round_.channel_gain, round_.queue, round_.allocation, self.scenario, round_.available
        )
        return self.scaling.device_reward(reward).ravel()

    def _ranked_reward(self, round_: _Played) -> FloatArray:
        """The devices' rewards where the objective is the outcome."""
        assert round_.participation_queue is not None
        assert round_.next_device is not None
        state = round_.channel_gain, round_.queue, round_.participation_queue, round_.allocation
        if self.credit == "local":
            return ranked_local_reward(*state, self.scenario)
        return ranked_difference_reward(*state, round_.next_device, self.scenario)


def device_rows(features: Features) -> NDArray[np.float32]:
    """A row for each device, with its features beside their mean and spread over all devices.

    Parameters
    ----------
    features : ndarray of float32, shape (B, N, F)
        Features of the devices.

    Returns
    -------
    ndarray of float32, shape (B N, 3 F)
    """
    mean = features.mean(axis=-2, keepdims=True)
    context = np.concatenate([mean, features.std(axis=-2, keepdims=True)], axis=-1)
    everywhere = np.repeat(context, features.shape[-2], axis=-2)
    rows: NDArray[np.float32] = np.concatenate([features, everywhere], axis=-1)
    return rows.reshape(-1, rows.shape[-1])


def gather_rows(actions: NDArray[np.float32], num_devices: int) -> NDArray[np.float32]:
    """The joint actions, shape (B, 3, N), of rows of shape (B N, 3)."""
    return actions.reshape(-1, num_devices, 3).swapaxes(-1, -2)
