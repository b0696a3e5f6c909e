"""Trained agents as policies: the same decisions from a file, and refusals."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

from fl_edge_env import Scenario, Simulator
from policies import evaluate, make_policy
from policies.benchmark.jobs import Job, job_keys
from policies.learned import SB3Policy, torch_threads, weights_of
from policies.learning.settings import AgentSettings

SCENARIO = Scenario.femnist(num_devices=6, num_rounds=15)
PARTIAL = SCENARIO.replace(csi="participants")


def agent(scenario: Scenario = SCENARIO) -> SB3Policy:
    """One with random weights."""
    settings = AgentSettings()
    torch.manual_seed(0)
    network = settings.make_network(scenario)
    with torch.no_grad():  # far enough from where they start for decisions to differ
        for weight in network.parameters():
            weight.add_(0.05 * torch.randn(weight.shape))
    cost = {"rounds": 5, "minutes": 0.5}
    return SB3Policy(scenario, settings, weights_of(network), cost=cost)


def observation(scenario: Scenario, batch: int) -> dict[str, np.ndarray]:
    simulator = Simulator(scenario, batch)
    simulator.reset(range(batch))
    seen = simulator.observe()
    return seen | {"queue": np.random.default_rng(0).uniform(0, 50, seen["queue"].shape)}


def test_agent__from_a_file_decides_the_same(tmp_path):
    policy = agent()
    policy.save(tmp_path / "agent.pt")
    seen = observation(SCENARIO, 3)
    expected = policy.decide(seen)
    expected.validate(SCENARIO)
    assert np.ptp(expected.f) > 0
    assert np.ptp(expected.q) > 0
    loaded = [SB3Policy.load(path) for path in (tmp_path, tmp_path / "agent.pt", str(tmp_path))]
    loaded += [make_policy(str(tmp_path), SCENARIO), copy.deepcopy(policy)]
    loaded += [pickle.loads(pickle.dumps(policy))]
    for other in loaded:
        assert other.name == policy.name
        assert other.scenario == SCENARIO
        assert other.cost == {"rounds": 5, "minutes": 0.5}
        decided = other.decide(seen)
        for name in ("f", "p", "q"):
            np.testing.assert_array_equal(getattr(decided, name), getattr(expected, name))
    (tmp_path / "agent.pt").unlink()
    with pytest.raises(ValueError, match=r"cannot use the agent '.*agent\.pt': .*No such file"):
        SB3Policy.load(tmp_path)


def test_agent__decides_for_each_system_of_a_batch_on_its_own():
    policy, seen = agent(), observation(SCENARIO, 4)
    batch = policy.decide(seen)
    for system in range(4):  # given as lists
        alone = policy.decide({name: values[system].tolist() for name, values in seen.items()})
        for name in ("f", "p", "q"):
            together = getattr(batch, name)[system]
            np.testing.assert_allclose(getattr(alone, name), together, rtol=1e-5)


def test_agent__runs_with_any_number_of_devices(tmp_path):
    agent().save(tmp_path / "agent.pt")
    scenario = SCENARIO.replace(num_devices=11, num_samples=200)
    policy = SB3Policy.load(tmp_path, scenario)
    assert policy.trained_in == SCENARIO
    assert len(evaluate([policy], scenario, [0, 1])) == 2
    # Devices that look the same are treated the same.
    same = {"channel_gain": np.full(11, 0.2), "queue": np.full(11, 3.0)}
    decided = policy.decide(same)
    np.testing.assert_allclose(decided.q, 1 / 11, rtol=1e-6)
    np.testing.assert_allclose(decided.f, decided.f[0], rtol=1e-6)


def test_agent__remembers_what_participants_measured():
    simulator, policy = Simulator(PARTIAL, 2), agent(PARTIAL)
    simulator.reset([0, 1])
    policy.reset([0, 1])
    for _ in range(6):
        decision = policy.decide(simulator.observe())
        # Decided twice, it is decided the same: only a round moves what it remembers.
        np.testing.assert_array_equal(policy.decide(simulator.observe()).q, decision.q)
        policy.feedback(simulator.advance(decision).info())
    seen, other, forgetful = simulator.observe(), copy.deepcopy(policy), agent(PARTIAL)
    expected = policy.decide(seen).q
    np.testing.assert_array_equal(other.decide(seen).q, expected)
    assert not np.array_equal(forgetful.decide(seen).q, expected)


def test_agent__is_refused_where_it_would_see_other_features(tmp_path):
    agent().save(tmp_path / "agent.pt")
    with pytest.raises(ValueError, match="trained with csi='full' and cannot run with csi='part"):
        SB3Policy.load(tmp_path, PARTIAL)


def test_agent__energy_is_dearer_by_the_factor_of_its_training():
    # What the network sees of a queue is its ratio to a reference, which falls with nu.
    cheap, dear = agent(), agent()
    dear.settings = AgentSettings(nu_factor=0.5)
    seen = observation(SCENARIO, 1)
    seen["queue"] = seen["queue"] + 1.0
    expected = cheap.decide(seen | {"queue": seen["queue"] / 0.5 * 0.97})
    np.testing.assert_allclose(dear.decide(seen).f, expected.f, rtol=1e-5)


def test_agent__is_one_job_before_and_after_it_has_decided():
    before, after = agent(), agent()
    after.decide(observation(SCENARIO, 1))
    other = agent()
    other.weights["log_std"] = other.weights["log_std"] + 1
    keys = [job_keys([Job(policy, SCENARIO, (0,))]) for policy in (before, after, other)]
    assert keys[0] == keys[1] != keys[2]


def test_torch_threads__are_what_they_were_also_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(ValueError, match=str(before + 1)), torch_threads(before + 1):
        raise ValueError(torch.get_num_threads())
    assert torch.get_num_threads() == before
