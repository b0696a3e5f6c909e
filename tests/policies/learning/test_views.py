"""The batch as rows for Stable-Baselines3: the single environment, device by device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from stable_baselines3.common.monitor import Monitor

from fl_edge_env import FLEdgeEnv, Scenario, with_tiers
from fl_edge_env.allocation import decode_action
from fl_edge_env.features import FEATURES, Scaling
from policies.learning.credit import difference_reward
from policies.learning.views import FIRST_EPISODE, DeviceView

SCENARIO = with_tiers(Scenario.femnist(num_devices=6, cohort_size=3, num_rounds=4))
LATE = SCENARIO.replace(csi="delayed", latency="round_time")
UNRELIABLE = SCENARIO.replace(availability=0.5, upload_failure=0.5)
F = len(FEATURES)


def actions(view: DeviceView, rounds: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    shape = (rounds, view.num_envs, *view.action_space.shape)
    return rng.uniform(-1.0, 1.0, shape).astype(np.float32)


def play(view: DeviceView, sequence: np.ndarray) -> list:
    """Observation, reward and done of each step."""
    return [[part.copy() for part in view.step(action)[:3]] for action in sequence]


def queues(view: DeviceView) -> np.ndarray:
    return view.batch.simulator.queue.copy()


class Reference:
    """The single environments that a view with B systems and training seed s plays, one by one."""

    def __init__(self, view: DeviceView, seed: int) -> None:
        self.view = view
        self.next_seed = FIRST_EPISODE * (seed + 1)
        self.envs = [FLEdgeEnv(view.scenario) for _ in range(view.batch.num_envs)]
        for env, queue in zip(self.envs, queues(view), strict=True):
            self.start(env, queue)

    def start(self, env: FLEdgeEnv, queue: np.ndarray) -> None:
        env.reset(seed=self.next_seed)
        env.simulator.queue[:] = queue
        self.next_seed += 1

    def rows(self) -> np.ndarray:
        """Features of each device beside mean and spread over those of its system."""
        rows = []
        for env in self.envs:
            features = Scaling(self.view.scenario).features(env.simulator.observe()).astype(float)
            mean = sum(features) / 6
            spread = np.sqrt(sum((row - mean) ** 2 for row in features) / 6)
            rows += [np.concatenate([row, mean, spread]) for row in features]
        return np.array(rows)


@pytest.mark.parametrize("credit", ["difference", "team"])
@pytest.mark.parametrize("scenario", [SCENARIO, LATE, UNRELIABLE], ids=["plain", "late", "drop"])
def test_rows__are_those_of_single_environments_and_rewarded_by_the_credit(scenario, credit):
    view = DeviceView(scenario, 2, seed=3, credit=credit)
    rows = view.reset()
    assert rows.dtype == np.float32
    reference = Reference(view, 3)
    scaling = Scaling(scenario)
    for played, action in enumerate(actions(view, 9)):
        expected = []
        for system, env in enumerate(reference.envs):
            joint = np.empty((3, 6), dtype=np.float32)
            for n in range(6):
                joint[:, n] = action[6 * system + n]  # f, p and q of device n
            simulator = env.simulator
            gain, queue, there = simulator.channel_gain, simulator.queue.copy(), simulator.available
            allocation = decode_action(joint, scenario, 2.0)
            if there is not None:
                there = there.copy()
                q = np.where(there, allocation.q, 0.0)
                allocation = replace(allocation, q=q / q.sum())
            _, team, _, truncated, _ = env.step(joint)
            assert truncated == (played % 4 == 3)
            if credit == "team":
                expected += [scaling.reward(team)] * 6
            else:
                share = difference_reward(gain, queue, allocation, scenario, there)
                # In units of the team's reward, times N.
                unit = scaling.reward(1.0) - scaling.reward(0.0)
                expected += (6 * unit * share).tolist()
        last = reference.rows()
        rows, reward, done, info = view.step(action)
        np.testing.assert_allclose(reward, expected, rtol=1e-5, atol=1e-6)
        assert done.tolist() == [played % 4 == 3] * 12
        assert [bool(entry) for entry in info] == done.tolist()
        if done.any():
            ends = [entry["terminal_observation"] for entry in info]
            np.testing.assert_allclose(ends, last, rtol=1e-4, atol=1e-5)
            assert all(entry["TimeLimit.truncated"] is True for entry in info)
            for system, env in enumerate(reference.envs):
                reference.start(env, queues(view)[system])
        np.testing.assert_allclose(rows, reference.rows(), rtol=1e-4, atol=1e-5)
    assert reference.next_seed == FIRST_EPISODE * 4 + 6


def test_rows__of_a_system_end_together_where_systems_end_at_different_rounds():
    view = DeviceView(SCENARIO, 2)
    view.reset()
    sequence = actions(view, 9)
    play(view, sequence[:1])
    view.batch.simulator.round_index[1] = 3  # system 1 has one round to go, system 0 three
    ends, lengths = [], []
    for action in sequence[1:]:
        systems = view.step(action)[2].reshape(2, 6)
        assert (systems.all(axis=1) == systems.any(axis=1)).all()
        ends.append(systems[:, 0])
        lengths.append(view.state()["simulator"]["round_index"])
    # A system whose episode has ended starts anew, and the other one goes on.
    assert np.transpose(lengths).tolist() == [[2, 3, 0, 1, 2, 3, 0, 1], [0, 1, 2, 3, 0, 1, 2, 3]]
    np.testing.assert_array_equal(ends, np.equal(lengths, 0))
    # Episodes are dealt out in the order in which systems ask for them: 1, 0, 1 and 0.
    assert view.state()["episodes"].tolist() == [FIRST_EPISODE + 5, FIRST_EPISODE + 4]


def test_queues__start_at_a_common_level_up_to_the_reference_with_a_factor_for_each_device():
    view = DeviceView(SCENARIO, 500, seed=0)
    view.reset()
    share = queues(view) / view.scaling.queue
    assert ((share >= 0) & (share <= 1.2)).all()
    # The factors lie between 0.8 and 1.2, whatever the level.
    spread = share.max(axis=1) / share.min(axis=1)
    assert 1.4 < spread.max() <= 1.5
    assert len(np.unique(share)) == share.size
    assert stats.kstest(share.mean(axis=1), stats.uniform.cdf).pvalue > 1e-3
    # Episodes that follow start elsewhere.
    play(view, actions(view, 4))
    again = queues(view) / view.scaling.queue
    assert (again <= 1.2).all()
    assert not np.isclose(again, share, rtol=1e-6).any()


def test_starts__are_empty_for_the_share_asked_for_and_elsewhere_as_wide():
    view = DeviceView(Scenario.digits(num_devices=3), 2_000, empty_starts=0.25)
    view.reset()
    levels = (queues(view) / view.scaling.queue).mean(axis=1)
    empty = levels == 0
    assert abs(empty.mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 2_000)
    usual = DeviceView(view.scenario, 2_000)
    usual.reset()
    all_levels = (queues(usual) / usual.scaling.queue).mean(axis=1)
    assert all_levels.min() > 0
    assert stats.ks_2samp(levels[~empty], all_levels).pvalue > 1e-3


@pytest.mark.parametrize("scenario", [SCENARIO, LATE], ids=["plain", "late"])
@pytest.mark.parametrize("played", [0, 7])
def test_restore__goes_on_with_the_same_numbers_across_the_ends_of_episodes(scenario, played):
    view = DeviceView(scenario, 2, seed=4)
    view.reset()
    sequence = actions(view, played + 10)
    play(view, sequence[:played])
    state = view.state()
    expected = play(view, sequence[played:])
    other = DeviceView(scenario, 2, seed=4)
    other.reset()
    play(other, actions(other, 3, seed=9))
    for resumed in (view, other, DeviceView(scenario, 2, seed=4)):  # the state is not used up
        resumed.restore(state)
        np.testing.assert_equal(play(resumed, sequence[played:]), expected)


# In the first a device alone can spend far more than the reference.
@pytest.mark.parametrize("scenario", [Scenario.cifar10(num_rounds=20), SCENARIO])
def test_observations__lie_in_the_observation_space_for_any_number_of_devices(scenario):
    view = DeviceView(scenario, 4)
    rng = np.random.default_rng(3)
    shown = [view.reset()]
    for _ in range(2 * scenario.num_rounds):
        joint = rng.choice([-1.0, 1.0], (4, 3, scenario.num_devices)).astype(np.float32)
        joint[0, :, 0], joint[0, 2, 1:] = 1.0, -1.0  # a device that spends all it can
        observation, _, _, info = view.step(joint.swapaxes(1, 2).reshape(-1, 3))
        shown += [observation]
        if "terminal_observation" in info[0]:
            shown += [np.stack([entry["terminal_observation"] for entry in info])]
    assert len(shown) == 2 * scenario.num_rounds + 3
    space = view.observation_space
    assert np.shape(shown)[1:] == (view.num_envs, *space.shape) == (view.num_envs, 3 * F)
    assert ((shown >= space.low) & (shown <= space.high)).all()


def test_vec_env__gives_attributes_of_the_batch_and_refuses_to_treat_rows_apart():
    view = DeviceView(SCENARIO, 2)
    assert view.get_attr("scenario", [0, 1]) == [SCENARIO] * 2
    assert view.env_is_wrapped(Monitor, indices=[0]) == [False]
    with pytest.raises(AttributeError, match="one batch: softmax_scale cannot be set"):
        view.set_attr("softmax_scale", 1.0)
    with pytest.raises(AttributeError, match="one batch: reset cannot be called"):
        view.env_method("reset")
