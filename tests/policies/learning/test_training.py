"""Training: what is kept, what a kill loses, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fl_edge_env import Scenario
from policies import LROA, evaluate
from policies.benchmark.protocol import VALIDATION_SEEDS
from policies.learned import SB3Policy, weights_of
from policies.learning import training
from policies.learning.settings import AgentSettings
from policies.learning.training import Budget, Progress, train_agent

SCENARIO = Scenario.digits(num_devices=5, num_rounds=20)
KINDS = [
    {"view": "devices", "algorithm": "ppo"},
    {"view": "devices", "algorithm": "ppo", "credit": "team"},
    {"view": "joint", "algorithm": "ppo", "network": "shared"},
    {"view": "joint", "algorithm": "ppo"},
    {"view": "devices", "algorithm": "sac"},
    {"view": "joint", "algorithm": "sac"},
    {"view": "devices", "algorithm": "td3"},
    {"view": "joint", "algorithm": "td3"},
]


class KilledError(Exception):
    pass


def kill_after(rounds: int):
    def stop(progress: Progress) -> None:
        if progress.rounds >= rounds:
            raise KilledError

    return stop


def contents(folder: Path) -> dict[str, bytes]:
    names = ("history.csv", "settings.json")
    return {name: (folder / name).read_bytes() for name in names}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(kind.values()))
def test_training__a_killed_one_ends_in_the_same_agent(tmp_path, monkeypatch, kind):
    # The kill finds off-policy agents before and after they begin to learn.
    settings = AgentSettings(num_envs=4, episode_rounds=60, seed=3, **kind)
    off_policy = kind["algorithm"] != "ppo"
    if off_policy:
        first = {"devices": (1_500, 3_000), "joint": (350, 600)}
        monkeypatch.setattr("policies.learning.settings._OFF_POLICY", first)
    budget = Budget(rounds=500 if off_policy else 1_000)

    def train(folder: str, **options: object) -> SB3Policy:
        return train_agent(settings, SCENARIO, budget, tmp_path / folder, eval_every=250, **options)

    whole = train("whole")
    with pytest.raises(KilledError):
        train("killed", on_progress=kill_after(100))  # nothing is saved yet
    with pytest.raises(KilledError):
        train("killed", on_progress=kill_after(400))
    again = train("killed")
    assert contents(tmp_path / "whole") == contents(tmp_path / "killed")
    np.testing.assert_equal(again.weights, whole.weights)
    assert again.cost["rounds"] == whole.cost["rounds"] >= budget.rounds
    history = pd.read_csv(tmp_path / "whole" / "history.csv")
    assert history["rounds"].is_monotonic_increasing
    assert len(history) >= 2
    assert history["penalty"].nunique() > 1  # it does learn something


def test_training__keeps_the_best_agent_within_lroas_energy(tmp_path):
    folder = tmp_path / "run"
    settings = AgentSettings(num_envs=4, episode_rounds=60)
    policy = train_agent(settings, SCENARIO, Budget(rounds=2_000), folder, eval_every=250)
    history = pd.read_csv(folder / "history.csv")
    mine = evaluate([policy], SCENARIO, VALIDATION_SEEDS)
    allowed = evaluate([LROA(SCENARIO)], SCENARIO, VALIDATION_SEEDS)["worst_energy_ratio"].max()
    excess = (history["worst_energy_ratio"] - allowed).clip(lower=0)
    kept = history.assign(excess=excess).sort_values(["excess", "penalty"]).iloc[0]
    assert mine["mean_objective"].mean() == pytest.approx(kept["penalty"], rel=1e-12)
    assert mine["worst_energy_ratio"].max() == pytest.approx(kept["worst_energy_ratio"], rel=1e-12)


def test_training__comes_close_to_lroa(tmp_path):
    scenario = Scenario.digits(num_devices=10, num_rounds=200)
    settings = AgentSettings(episode_rounds=50)
    policy = train_agent(
        settings, scenario, Budget(rounds=4_000), tmp_path / "run", eval_every=1_000
    )
    torch.manual_seed(0)
    untrained = SB3Policy(scenario, settings, weights_of(settings.make_network(scenario)))
    untrained.name = "untrained"
    table = evaluate([policy, LROA(scenario), untrained], scenario, range(5))
    penalty = table.groupby("policy")["mean_objective"].mean()
    gap = penalty - penalty["LROA"]
    assert gap[policy.name] < 0.1 * gap["untrained"]


def test_training__that_is_finished_is_not_run_again(tmp_path, monkeypatch):
    settings = AgentSettings(num_envs=4, episode_rounds=20)
    first = train_agent(settings, SCENARIO, Budget(rounds=300), tmp_path / "run", eval_every=100)
    monkeypatch.setattr(AgentSettings, "make_model", None)
    again = train_agent(settings, SCENARIO, Budget(rounds=300), tmp_path / "run", eval_every=100)
    np.testing.assert_equal(again.weights, first.weights)


def test_training__ends_after_the_minutes_it_was_given(tmp_path):
    reports: list[Progress] = []
    policy = train_agent(
        AgentSettings(num_envs=4, episode_rounds=20),
        SCENARIO,
        Budget(minutes=0.02, rounds=10**9),
        tmp_path / "run",
        eval_every=10**6,
        on_progress=reports.append,
    )
    assert 0.02 <= policy.cost["minutes"] < 0.5
    shares = [report.share for report in reports]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert reports[-1].penalty == pd.read_csv(tmp_path / "run" / "history.csv")["penalty"].min()


def test_learning_rate__falls_linearly_with_what_is_left_of_the_budget(tmp_path, monkeypatch):
    rates: list[float] = []

    class Recorded(training._LearningRate):
        def __call__(self, progress: float) -> float:
            rates.append(super().__call__(progress))
            return rates[-1]

    monkeypatch.setattr(training, "_LearningRate", Recorded)
    settings = AgentSettings(num_envs=4, episode_rounds=20, learning_rate=2e-3)
    train_agent(settings, SCENARIO, Budget(rounds=640), tmp_path / "run", eval_every=1_000)
    # An update after each 32 rounds but the last, and the rate before the first.
    np.testing.assert_allclose(list(dict.fromkeys(rates)), 2e-3 * (1 - np.arange(20) / 20))


def test_training__writes_events_when_asked(tmp_path):
    train_agent(
        AgentSettings(num_envs=4, episode_rounds=20),
        SCENARIO,
        Budget(rounds=200),
        tmp_path / "run",
        eval_every=100,
        tensorboard=True,
    )
    events = [path.read_bytes() for path in (tmp_path / "run" / "tensorboard").rglob("events*")]
    history = pd.read_csv(tmp_path / "run" / "history.csv")
    assert sum(content.count(b"validation/penalty") for content in events) == len(history)


def test_training__of_something_else_in_the_same_folder_is_refused(tmp_path):
    folder, settings = tmp_path / "run", AgentSettings(num_envs=4, episode_rounds=20)
    train_agent(settings, SCENARIO, Budget(rounds=100), folder, eval_every=100)
    before = (folder / "agent.pt").read_bytes()
    others = {
        "settings": (AgentSettings(num_envs=4, seed=1), SCENARIO, Budget(rounds=100), 100),
        "scenario": (settings, SCENARIO.replace(mu=2), Budget(rounds=100), 100),
        "budget": (settings, SCENARIO, Budget(rounds=101), 100),
        "eval_every": (settings, SCENARIO, Budget(rounds=100), 50),
    }
    for name, (agent, scenario, budget, every) in others.items():
        with pytest.raises(ValueError, match=f"began with other {name}.*choose another folder"):
            train_agent(agent, scenario, budget, folder, eval_every=every)
    assert (folder / "agent.pt").read_bytes() == before


@pytest.mark.parametrize("missing", ["checkpoint.pt", "settings.json"])
def test_training__overwrites_no_agent_of_another(tmp_path, missing):
    folder, settings = tmp_path / "run", AgentSettings(num_envs=4, episode_rounds=20)
    train_agent(settings, SCENARIO, Budget(rounds=100), folder, eval_every=100)
    before = (folder / "agent.pt").read_bytes()
    (folder / missing).unlink()
    other = AgentSettings(num_envs=4, episode_rounds=20, seed=1)
    with pytest.raises(ValueError, match="choose another folder, or delete it"):
        train_agent(other, SCENARIO, Budget(rounds=100), folder, eval_every=100)
    assert (folder / "agent.pt").read_bytes() == before


def test_training__that_was_killed_between_agent_and_checkpoint_starts_anew(tmp_path):
    folder, settings = tmp_path / "run", AgentSettings(num_envs=4, episode_rounds=20)
    first = train_agent(settings, SCENARIO, Budget(rounds=100), folder, eval_every=100)
    (folder / "checkpoint.pt").unlink()
    again = train_agent(settings, SCENARIO, Budget(rounds=100), folder, eval_every=100)
    np.testing.assert_equal(again.weights, first.weights)


def test_training__that_failed_before_anything_was_saved_does_not_lock_its_folder(tmp_path):
    folder = tmp_path / "run"
    wrong, right = (AgentSettings(num_envs=4, seed=seed, episode_rounds=20) for seed in (0, 1))
    with pytest.raises(KilledError):
        train_agent(wrong, SCENARIO, Budget(rounds=300), folder, on_progress=kill_after(50))
    policy = train_agent(right, SCENARIO, Budget(rounds=100), folder)
    assert policy.settings.seed == 1


def test_training__too_short_for_an_update_is_refused(tmp_path):
    with pytest.raises(ValueError, match="spent after 8 rounds, before the first update"):
        train_agent(AgentSettings(num_envs=4), SCENARIO, Budget(rounds=5), tmp_path / "run")
    assert not (tmp_path / "run" / "agent.pt").exists()


@pytest.mark.parametrize("threads", [0, 1.5, 10**6])
def test_training__refuses_a_number_of_threads_that_the_machine_has_not(tmp_path, threads):
    with pytest.raises(ValueError, match=r"threads must be an integer from 1 to \d+, got"):
        train_agent(AgentSettings(), SCENARIO, Budget(rounds=5), tmp_path, threads=threads)


def test_settings__take_the_numbers_of_numpy(tmp_path):
    settings = AgentSettings(num_envs=np.int64(4), learning_rate=np.float32(0.5), gamma=0)
    assert settings == AgentSettings(num_envs=4, learning_rate=0.5)
    policy = train_agent(
        settings,
        SCENARIO,
        Budget(rounds=np.int64(100)),
        tmp_path / "run",
        eval_every=np.int64(50),
        threads=np.int64(1),
    )
    assert SB3Policy.load(tmp_path / "run").settings == policy.settings == settings


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\x00\xff"])
def test_training__with_a_damaged_folder_is_refused(tmp_path, content):
    folder, settings = tmp_path / "run", AgentSettings(num_envs=4, episode_rounds=20)
    train_agent(settings, SCENARIO, Budget(rounds=100), folder)
    (folder / "settings.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"settings\.json' is not the settings of a training"):
        train_agent(settings, SCENARIO, Budget(rounds=100), folder)


def test_training__with_a_damaged_checkpoint_is_refused(tmp_path):
    folder, settings = tmp_path / "run", AgentSettings(num_envs=4, episode_rounds=20)
    train_agent(settings, SCENARIO, Budget(rounds=100), folder, eval_every=100)
    path = folder / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"cannot go on from '.*checkpoint\.pt'"):
        train_agent(settings, SCENARIO, Budget(rounds=100), folder, eval_every=100)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"algorithm": "dqn"}, "ppo, sac, td3, which act in continuous spaces, got 'dqn'"),
        ({"view": "flat"}, "view must be one of devices, joint, got 'flat'"),
        ({"credit": "none"}, "credit must be one of difference, local, team, got 'none'"),
        ({"network": "MultiInputPolicy"}, "arrays and not dictionaries, got 'MultiInputPolicy'"),
        ({"network": "shared"}, "network 'shared' is for the view 'joint'.*got view 'devices'"),
        ({"view": "joint", "credit": "team"}, "credit is for the view 'devices', got 'team'"),
        ({"network": "shared", "view": "joint", "algorithm": "sac"}, "use 'mlp', got .*'sac'"),
        ({"num_envs": 0}, "num_envs must be an integer of at least 1, got 0"),
        ({"width": 1.5}, r"width must be an integer of at least 1, got 1\.5"),
        ({"gamma": 1.0}, r"gamma must lie in \[0, 1\), got 1\.0"),
        ({"learning_rate": 0}, "learning_rate must be positive and finite, got 0"),
        ({"nu_factor": float("inf")}, "nu_factor must be positive and finite, got inf"),
        ({"empty_starts": 1}, r"empty_starts must lie in \[0, 1\), got 1"),
        ({"softmax_scale": -1}, "softmax_scale must be positive.*got -1"),
        ({"seed": -1}, "seed must be an integer from 0 to 999999, got -1"),
    ],
)
def test_settings__what_is_wrong_is_named(fields, message):
    with pytest.raises(ValueError, match=message):
        AgentSettings(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "a budget needs rounds or minutes"),
        ({"rounds": 0}, "rounds must be an integer of at least 1, got 0"),
        ({"rounds": 1.0}, re.escape("rounds must be an integer of at least 1, got 1.0")),
        ({"minutes": 0}, "minutes must be positive and finite, got 0"),
        ({"minutes": float("nan")}, "minutes must be positive and finite, got nan"),
    ],
)
def test_budget__what_is_wrong_is_named(fields, message):
    with pytest.raises(ValueError, match=message):
        Budget(**fields)


def test_budget__whichever_ends_first():
    budget = Budget(rounds=100, minutes=2)
    assert budget.progress(50, 0.1) == 0.5
    assert budget.progress(10, 1.5) == 0.75
    assert budget.progress(500, 0) == 1.0


def test_training__refuses_a_wrong_interval_of_validation(tmp_path):
    with pytest.raises(ValueError, match="eval_every must be an integer of at least 1, got 0"):
        train_agent(AgentSettings(), SCENARIO, Budget(rounds=1), tmp_path / "run", eval_every=0)
    assert not (tmp_path / "run").exists()
