"""Agents that decide on the outcome: their teacher, their queues, their memory, their training."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fl_edge_env import Allocation, CellChannel, Scenario, Simulator
from fl_edge_env.allocation import decode_action
from fl_edge_env.lyapunov import participation_target, participation_weight
from policies.learned import SB3Policy
from policies.learning.imitation import oracle_decision
from policies.learning.settings import AgentSettings
from policies.learning.training import Budget, train_agent
from policies.learning.views import DeviceView, by_device
from policies.outcome import priced_scenario, solve_round
from tests.policies.learning.test_training import KilledError, kill_after

FULL = Scenario.cifar10().replace(
    num_devices=12, num_rounds=40, energy_budget_j=150.0, objective="outcome"
)
PARTIAL = FULL.replace(channel=CellChannel(persistence=0.9), csi="participants")
SETTINGS = AgentSettings(
    num_envs=4, episode_rounds=40, width=16, nu_factor=1.0, imitation_rounds=240
)


def train(folder: Path, scenario: Scenario, **options) -> SB3Policy:
    return train_agent(SETTINGS, scenario, Budget(rounds=400), folder, eval_every=80, **options)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> dict[str, tuple[Path, SB3Policy]]:
    """The folder of a training that was not interrupted, and its agent."""
    systems = {"full": FULL, "partial": PARTIAL}
    folders = {name: tmp_path_factory.mktemp(name) for name in systems}
    return {name: (folders[name], train(folders[name], systems[name])) for name in systems}


def as_array(decision: Allocation) -> np.ndarray:
    return np.concatenate([decision.f, decision.p, decision.cohort], axis=-1)


def episode(policy: SB3Policy, scenario: Scenario, seeds: list[int]) -> list[np.ndarray]:
    """Cohorts, f and p of an episode."""
    simulator = Simulator(scenario, len(seeds))
    simulator.reset(seeds)
    policy.reset(seeds)
    decisions, counts = [], scenario.weights / participation_target(scenario)
    for _ in range(12):
        decision = policy.decide(simulator.observe())
        # Decided twice, it is decided the same: only a round moves what it remembers.
        again = policy.decide(simulator.observe())
        np.testing.assert_array_equal(as_array(decision), as_array(again))
        np.testing.assert_allclose(decision.weights, counts[decision.cohort])
        decisions.append(as_array(decision))
        policy.feedback(simulator.advance(decision).info())
    return decisions


def test_teacher__decides_as_the_solution_of_the_round_on_the_true_gains():
    view = DeviceView(priced_scenario(PARTIAL), 5, seed=3)
    view.reset()
    for _ in range(3):
        actions, weights = oracle_decision(view)
        simulator = view.batch.simulator
        solution = solve_round(
            simulator.channel_gain.copy(),
            simulator.queue,
            participation_weight(view.scenario) * simulator.participation_queue,
            view.scenario,
            tolerance=1e-4,
        )
        decided = decode_action(actions, view.scenario, view.softmax_scale)
        full = solution.participates.sum(axis=-1) == view.scenario.cohort_size
        np.testing.assert_array_equal(decided.participates[full], solution.participates[full])
        np.testing.assert_allclose(decided.f, solution.f, rtol=1e-6)
        np.testing.assert_allclose(decided.p, solution.p, rtol=1e-5)
        assert weights.mean() == pytest.approx(1.0, rel=1e-5)
        view.step(by_device(actions))


@pytest.mark.parametrize("kind", ["full", "partial"])
def test_agent__learns_from_the_teacher_and_is_better_than_its_start(trained, tmp_path, kind):
    folder, agent = trained[kind]
    scenario = agent.trained_in
    untaught = dataclasses.replace(SETTINGS, imitation_rounds=0, learning_rate=1e-9)
    start = train_agent(untaught, scenario, Budget(rounds=40), tmp_path, eval_every=1000)
    taught, first = (pd.read_csv(f / "history.csv")["penalty"].min() for f in (folder, tmp_path))
    assert taught < 0.95 * first
    assert agent.name == "PPO taught privileged 0"
    assert start.name == "PPO privileged 0"


@pytest.mark.parametrize("kind", ["full", "partial"])
def test_agent__loaded_and_in_whatever_environment_decides_the_same(trained, kind):
    folder, agent = trained[kind]
    scenario = agent.trained_in
    expected = episode(agent, scenario, [0, 1])
    for system in (scenario, scenario.replace(objective="penalty"), priced_scenario(scenario)):
        loaded = SB3Policy.load(folder, system)
        np.testing.assert_array_equal(episode(loaded, system, [0, 1]), expected)
    # In a batch as singly.
    single = episode(agent, scenario, [1])
    np.testing.assert_allclose(single, np.stack(expected)[:, 1:], rtol=1e-6)


def test_agent__goes_on_from_a_saved_state(trained):
    _, agent = trained["partial"]
    expected = episode(agent, PARTIAL, [0, 1])
    simulator = Simulator(PARTIAL, 2)
    simulator.reset([0, 1])
    agent.reset([0, 1])
    for _ in range(6):
        agent.feedback(simulator.advance(agent.decide(simulator.observe())).info())
    state = agent.state()
    other = SB3Policy.load(trained["partial"][0])
    other.reset([0, 1])
    other.restore(state)
    np.testing.assert_array_equal(as_array(other.decide(simulator.observe())), expected[6])
    with pytest.raises(ValueError, match="state must be a mapping that holds measurements"):
        other.restore({n: v for n, v in state.items() if n != "measurements"})
    with pytest.raises(ValueError, match="queue must be finite and not negative"):
        other.restore(state | {"queue": -state["queue"] - 1.0})


def test_training__a_killed_one_ends_in_the_same_agent(trained, tmp_path):
    folder, agent = trained["partial"]
    with pytest.raises(KilledError):
        train(tmp_path, PARTIAL, on_progress=kill_after(340))
    again = train(tmp_path, PARTIAL)
    for name, weight in agent.weights.items():
        np.testing.assert_array_equal(again.weights[name], weight)
    assert (tmp_path / "history.csv").read_bytes() == (folder / "history.csv").read_bytes()


def test_first_episodes__end_one_after_the_other():
    view = DeviceView(priced_scenario(FULL), 4)
    view.reset()
    done = [view.step(np.zeros((48, 3), np.float32))[2][::12] for _ in range(85)]
    ends = [[1 + played for played in np.flatnonzero(own)] for own in np.transpose(done)]
    assert ends == [[10, 50], [20, 60], [30, 70], [40, 80]]


def test_agents__are_refused_where_they_would_see_other_features(trained):
    folder, _ = trained["full"]
    with pytest.raises(ValueError, match="trained with csi='full' and cannot run with csi='part"):
        SB3Policy.load(folder, PARTIAL)
    with pytest.raises(ValueError, match="are for the objective 'outcome'"):
        train_agent(SETTINGS, FULL.replace(objective="penalty"), Budget(rounds=400), folder)
